"""The rules of .gitignore: git itself decides their meaning."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.memory.ignore import MAX_BYTES, MAX_GLOBS, MAX_PATH, Rules, TooLarge, rules_of
from tests.memory.hostile_repository import AUTOMATON, BACKTRACKING, NAME

ATOMS = [
    *(
        b"a",
        b"b",
        b"ab",
        b"\xe9",
        b"*",
        b"**",
        b"***",
        b"?",
        b"/",
        b"/**/",
        b"**/",
        b"!",
        b"#",
        b" ",
        b"\\",
        b"-",
    ),
    *(b"[ab]", b"[!a]", b"[^a]", b"[a-c]", b"[c-a]", b"[]a]", b"[a\\]]", b"[a", b"[[:alpha:]]", b"[[:no:]]"),
    *(b"[[:digit:]b]", b"[!-a]", b"[a-]", b"[[:a]", b"\\a", b"\\*", b"\\ ", b"\r", b"\t", b"[a-\\c]", b"[/]"),
]
NAMES = [
    *(
        b"a",
        b"b",
        b"c",
        b"ab",
        b"ba",
        b"aab",
        b"abc",
        b"-",
        b" a",
        b"a ",
        b"#a",
        b"!a",
        b"*",
        b"\xe9",
        b"]",
        b"\\",
    )
]
QUIRK = re.compile(rb"^!?/?[^*?\[\\]*[^*?\[\\/]\*\*+(/|\\/|$)")
"""``a**/b``: git before 2.52 took the asterisks for directories, against its own documentation"""


def lists(values: list[bytes], joined: bytes, most: int) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=most).map(joined.join)


LINES = st.lists(lists(ATOMS, b"", 6).filter(lambda line: not QUIRK.search(line)), min_size=1, max_size=4)
PATHS = st.lists(lists(NAMES, b"/", 4), min_size=1, max_size=8, unique=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    top = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", top], check=True, env=environment())
    yield top


def environment() -> dict[str, str]:
    return {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}


def ignored_by_git(repository: Path, paths: list[bytes]) -> set[bytes]:
    command = ["git", "-C", str(repository), "check-ignore", "--no-index", "--stdin", "-z"]
    done = subprocess.run(
        command, input=b"".join(path + b"\0" for path in paths), capture_output=True, env=environment()
    )
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.split(b"\0")) - {b""}


def ignored(content: bytes, path: bytes) -> bool:
    rules, parts = Rules(content), path.split(b"/")
    for depth in range(1, len(parts) + 1):
        is_directory = depth < len(parts)
        if said := rules.excludes(b"/".join(parts[:depth]), is_directory=is_directory):
            return True
    return bool(said)


@pytest.mark.slow
@settings(max_examples=int(os.environ.get("EXAMPLES", "150")), deadline=None)
@given(lines=LINES, paths=PATHS)
def test_rules_mean_what_git_means(repository: Path, lines: list[bytes], paths: list[bytes]) -> None:
    content = b"\n".join(lines) + b"\n"
    (repository / ".gitignore").write_bytes(content)
    expected = ignored_by_git(repository, paths)
    assert {path for path in paths if ignored(content, path)} == expected


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (BACKTRACKING.encode(), NAME.encode()),
        (b"**/*a?*" * 400 + b"b\n", b"/".join([b"a" * 250] * 4)),
        (b"".join(b"*%d?*\n" % n for n in range(4000)), b"a" * 250),
        (b"".join(b"a/b%d\n" % n for n in range(20_000)), b"a/b"),
        (b"[" * 30_000, b"["),
        (b"\\ " * 15_000, b" "),
    ],
    ids=["backtracking", "directories", "many", "literal", "brackets", "spaces"],
)
def test_hostile_rules_take_little_time(content: bytes, path: bytes) -> None:
    began = time.process_time()
    rules = Rules(content)
    for end in range(1, len(path), 10):
        rules.excludes(path[:end], is_directory=True)
    assert time.process_time() - began < 3.0


def test_patterns_that_cost_too_much_are_found_so_once() -> None:
    rules = Rules(AUTOMATON.encode())
    path = b"/".join(bytes(random.Random(seed).choices(b"ab", k=250)) for seed in range(4))
    for _ in range(2):
        began = time.process_time()
        with pytest.raises(TooLarge):
            rules.excludes(path, is_directory=True)
    assert time.process_time() - began < 0.01


@pytest.mark.parametrize(
    "content",
    [b"x" * (MAX_BYTES + 1), b"*a\n" * (MAX_GLOBS // 2 + 1), b"*" + b"a" * MAX_GLOBS],
    ids=["bytes", "patterns", "one pattern"],
)
def test_more_rules_than_are_matched_are_none(content: bytes) -> None:
    assert rules_of(content) is None
    with pytest.raises(TooLarge):
        Rules(content)


def test_a_path_that_is_longer_than_any_is_refused() -> None:
    with pytest.raises(TooLarge):
        Rules(b"*.log").excludes(b"a/" * MAX_PATH, is_directory=True)

"""The files of a tree that are learned, and the directory that is its workspace."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from localspec.errors import InvalidOptions
from localspec.home import read_regular, repository_of, workspace_of
from localspec.memory import sources as asked
from localspec.memory.secrets import is_secret
from localspec.memory.text_files import MAX_BYTES, may_learn, near_files, read_text, text_files
from tests.memory.hostile_repository import RULES, armed, git, make, repository


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with everything in it that is left out."""
    root = repository(tmp_path / "repo")
    for path, text in {
        ".gitignore": "*.log\n/build/\n!keep.log\nsecret*\n",
        "a.py": "print()\n",
        "x.log": "no\n",
        "keep.log": "yes\n",
        "build/out.py": "no\n",
        "src/build/in.py": "yes\n",
        "src/.gitignore": "generated/\n!y.log\n",
        "src/y.log": "yes\n",
        "src/generated/z.py": "no\n",
        "src/deep/er/w.py": "yes\n",
        "src/secret.txt": "no\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (tmp_path / "outside.py").write_text("no\n")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    (root / "loop").symlink_to(root)
    return root


def names(path: Path, root: Path) -> list[str]:
    return [file.relative_to(root.resolve()).as_posix() for file in text_files(path)]


def test_what_git_ignores_is_left_out(tree: Path) -> None:
    assert names(tree, tree) == [
        ".gitignore",
        "a.py",
        "keep.log",
        "src/.gitignore",
        "src/build/in.py",
        "src/deep/er/w.py",
        "src/y.log",
    ]


def test_the_nearest_first_are_the_same_files(tree: Path) -> None:
    for start in (tree, tree / "src", tree / "src" / "deep", tree / "build"):
        found = [*near_files(start)]
        assert sorted(found) == text_files(start)
        assert all(len(one.parts) <= len(other.parts) for one, other in pairwise(found))


def test_a_file_that_is_named_is_taken(tree: Path) -> None:
    assert names(tree / "x.log", tree) == ["x.log"]
    assert list(text_files(tree / "nothing")) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"text\n", "text\n"),
        ("é".encode(), "é"),
        (b"", None),
        (b"\x7fELF\0\0", None),
        (b"\xff\xfe", None),
        (b"x" * MAX_BYTES, "x" * MAX_BYTES),
        (b"x" * (MAX_BYTES + 1), None),
    ],
    ids=["text", "utf-8", "empty", "binary", "no utf-8", "1 MiB", "more"],
)
def test_only_text_is_read(tmp_path: Path, content: bytes, text: str | None) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_text(tmp_path / "file") == text


SECRETS = """
.env .env.local .env-prod .env_prod .envs .ENV.py prod.env .env~ .npmrc~ server.pem.bak id_rsa.orig~
.server.key.swp .env.example x.tfvars.json shadow.old id_ed25519_work app.env.local prod.env.bak
secret.yaml secret.toml secrets.txt credentials.csv secrets.prod.yml client_secret_12.apps.json
service-account.json Service_Account-prod.json auth.json wp-config.php secret_token.rb arduino_secrets.h
secrets.sh
"""
OTHERS = """
id_rsa.pub id_rsa.pub~ credentials.py notes.txt~ ~ .bak secret_santa.py auth.py environment.yml
auth.json.ts secrets.go credentials.component.ts credentials.h secrets.md app.env.ts vite-env.d.ts
secret.txt my.secrets.txt a.env2.b environment.ts my.npmrc README env a.envy
"""


@pytest.mark.parametrize("name", (SECRETS + OTHERS).split())
def test_names_of_secrets_and_of_their_copies(name: str) -> None:
    assert is_secret(name) is (name in SECRETS.split())


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "id_ed25519", "server.pem", "shadow", "vault.kdbx", ".ENV", "prod.tfvars"]
)
def test_files_of_secrets_are_not_learnt_even_if_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "id_ed25519.pub").write_text("ssh-ed25519 AAAA\n")
    (tmp_path / "credentials.py").write_text("x = 1\n")
    repository(tmp_path)
    assert {path.name for path in text_files(tmp_path)} == {"id_ed25519.pub", "credentials.py"}
    with pytest.raises(InvalidOptions, match="secrets"):
        list(text_files(tmp_path / name))


def test_what_is_no_file_is_no_text(tmp_path: Path) -> None:
    assert read_text(tmp_path) is None and read_text(tmp_path / "nothing") is None
    os.mkfifo(tmp_path / "pipe")
    assert text_files(repository(tmp_path)) == [] and text_files(tmp_path / "nothing") == []


def test_a_directory_outside_of_git_is_refused_and_a_file_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert text_files(tmp_path / "a.py") == [tmp_path / "a.py"]
    with pytest.raises(InvalidOptions, match="in no git repository") as refused:
        text_files(tmp_path)
    assert "git init" in refused.value.remedy
    assert [*near_files(tmp_path)] == [tmp_path / "a.py"]
    (tmp_path / ".git").mkdir()  # not one that git accepts
    with pytest.raises(InvalidOptions, match="git does not list the files"):
        text_files(tmp_path)
    assert not may_learn(tmp_path / "a.py") and [*near_files(tmp_path)] == [tmp_path / "a.py"]


def test_a_workspace_is_the_git_root_by_its_real_path(tree: Path, tmp_path: Path) -> None:
    assert workspace_of(tree / "src" / "deep") == tree.resolve()
    (tmp_path / "other").symlink_to(tree / "src")
    assert workspace_of(tmp_path / "other") == tree.resolve()
    (tree / "src" / ".git").write_text("gitdir: elsewhere\n")  # a submodule
    assert workspace_of(tree / "src" / "deep") == (tree / "src").resolve()
    assert workspace_of(Path("/")) is None, "there is no git"


LEARNT = "a.py keep.log src/y.log src/not/there/yet.py"
LEFT_OUT = """
x.log new.log build/out.py build/deep/keep.log src/generated/z.py src/secret.txt .env src/id_ed25519
.git/COMMIT_EDITMSG
"""


@pytest.mark.parametrize("path", f"{LEARNT} {LEFT_OUT}".split())
def test_what_an_editor_has_open_is_learnt_unless_ignored(tree: Path, path: str) -> None:
    assert may_learn(tree / path) == (path in LEARNT.split())


def test_a_link_to_a_secret_is_one(tree: Path) -> None:
    (tree / ".env").write_text("TOKEN=x")
    (tree / "settings.py").symlink_to(tree / ".env")
    assert not may_learn(tree / "settings.py")


def test_what_is_tracked_is_learnt_even_if_a_rule_matches_it(tree: Path) -> None:
    git(tree, "add", "-f", "x.log")
    assert may_learn(tree / "x.log") and tree / "x.log" in text_files(tree)


def test_of_a_bare_repository_nothing_is_learnt(tree: Path) -> None:
    git(tree, "init", "-q", "--bare", "bare")
    assert not [path for path in text_files(tree) if "bare" in path.parts]
    for name in ("bare/config", "bare/info/exclude", ".git/config"):
        assert not may_learn(tree / name)
        with pytest.raises(InvalidOptions, match="git's own"):
            text_files(tree / name)


def test_outside_of_a_repository_a_name_is_all_there_is(tmp_path: Path) -> None:
    assert may_learn(tmp_path / "a.py") and not may_learn(tmp_path / "key.pem")


def test_what_git_ignores_in_this_clone_alone_is_not_learnt(tree: Path) -> None:
    """Of .gitignore the last word is."""
    (tree / ".git" / "info" / "exclude").write_text("mine.py\nkeep.log\n")
    (tree / "mine.py").write_text("a = 1\n")
    assert not may_learn(tree / "mine.py") and may_learn(tree / "keep.log")
    assert "mine.py" not in {path.name for path in text_files(tree)}


@pytest.mark.parametrize("kind", RULES)
def test_no_rules_stop_their_reader(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer in time nothing is learned."""
    monkeypatch.setattr(asked, "CHECK_S", 0.2)
    file = make(tmp_path / "clone", kind)
    ends = kind not in ("backtracking", "fifo")
    assert may_learn(file) is ends
    if ends:
        assert not {"pipe.py", "round"} & {path.name for path in text_files(tmp_path / "clone")}
        return
    with pytest.raises(InvalidOptions, match=r"git did not answer within 0.2 s"):
        asked.list_files(tmp_path / "clone", 0.2)


def test_why_git_lists_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "relative")
    with pytest.raises(InvalidOptions, match="git is not on the PATH"):
        text_files(tree)
    assert not may_learn(tree / "a.py")


def test_a_hostile_repository_runs_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    root = armed(tmp_path / "clone", mark)
    subprocess.run(("git", "-C", str(root), "status"), capture_output=True)
    assert mark.exists(), "git by itself runs them"
    mark.unlink()
    # A user in the clone, with what it may have put into the environment.
    monkeypatch.chdir(root)
    (root / "git").symlink_to(root / "program")
    monkeypatch.setenv("PATH", f":.{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(root / "program"))
    assert {"a.py", "b.py"} <= {path.name for path in text_files(root)}
    assert may_learn(root / "a.py") and may_learn(root / "inner" / "new.py")
    assert [*near_files(root / "inner")] == [root / "inner" / "b.py"]
    assert not mark.exists()


def test_a_repository_within_a_clone_is_not_taken_for_one(tmp_path: Path) -> None:
    """A clone can hold all files of a bare repository, with a configuration that names programs."""
    inner = repository(tmp_path) / "inner"
    git(tmp_path, "init", "-q", "--bare", str(inner))
    git(inner, "config", "core.bare", "false")
    git(inner, "config", "core.worktree", str(tmp_path))
    with pytest.raises(InvalidOptions, match="git does not list"):
        text_files(inner)


def test_what_is_listed_stays_in_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "repo")
    (tmp_path / "outside.py").write_text("x\n")
    (root / "link").symlink_to(tmp_path)
    (root / "own.py").write_text("x\n")
    names = ["../outside.py", "link/outside.py", f"{tmp_path}/outside.py", ".git/config", "gone", "own.py"]
    monkeypatch.setattr(asked, "list_files", lambda *_: names)
    assert text_files(root) == [root / "own.py"] == [*near_files(root)]


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_regular(tmp_path / "pipe", 10) is None and read_regular("/dev/zero", 10) is None
    (tmp_path / "file").write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 10) == b"x" * 11


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("given_away", ["repo/.git", "repo", "gitfile"])
def test_the_repository_of_another_user_is_no_workspace(tree: Path, given_away: str) -> None:
    """Nothing of it is learned: git does not answer there."""
    if given_away == "gitfile":
        (tree / "sub").mkdir()
        (tree / "sub" / ".git").write_text("gitdir: elsewhere\n")
        os.chown(tree / "sub" / ".git", 1234, 1234)
        assert workspace_of(tree / "sub") == tree.resolve() and repository_of(tree / "sub") == tree / "sub"
        return
    os.chown(tree.parent / given_away, 1234, 1234)
    assert workspace_of(tree / "src") is None and repository_of(tree / "src") == tree.resolve()
    assert not may_learn(tree / "src" / "secret.txt") and (given_away == "repo") <= (
        not may_learn(tree / "a.py")
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_repository_of_the_caller_of_sudo_is_one(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tree, tree / ".git"):
        os.chown(place, 1234, 1234)
    monkeypatch.setenv("SUDO_UID", "1234")
    assert workspace_of(tree / "src") == tree.resolve() and may_learn(tree / "a.py")
    monkeypatch.setenv("SUDO_UID", "4321")
    assert workspace_of(tree / "src") is None

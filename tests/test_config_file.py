"""``config.toml`` is changed a value at a time, whole or not at all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tomllib
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from localspec.config import change, load_config, write_file
from localspec.errors import DiskFull, InvalidOptions, StorageError
from localspec.renamed import Place

COMMENTED = """\
# mine
model_dirs = ["~/models"]  # here

[options]  # for all
temperature = 0.2   # cool
k = 4

# how
[engine]
threads = 4

[models."a.b:c"]
n_ctx = 64  # small
"""


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.delenv("LOCALSPEC_IDLE", raising=False)
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "config.toml"


def left_alone(path: Path) -> bool:
    """Return True if the file's directory holds nothing else."""
    return [each.name for each in path.parent.iterdir()] == ([path.name] if path.exists() else [])


def test_a_value_is_changed_and_the_rest_stays(path: Path) -> None:
    path.write_text(COMMENTED)
    change(("options", "temperature"), 0.5)
    assert path.read_text() == COMMENTED.replace("0.2   # cool", "0.5   # cool") and left_alone(path)
    change(("options", "seed"), 1)
    assert "k = 4\nseed = 1\n\n# how\n[engine]" in path.read_text()
    path.write_text("[engine]\nn_ctx = -1 # oops")
    change(("engine", "n_ctx"), 1)
    assert path.read_text() == "[engine]\nn_ctx = 1 # oops\n"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("model_dirs",), ["/a", '/with "quotes" and \\']),
        (("options", "stop"), ["\n", "é"]),
        (("options", "remember"), False),
        (("models", "a.b:c", "draft"), "none"),
        (("models", 'new "one"', "k"), 2),
    ],
)
@pytest.mark.parametrize("before", [COMMENTED, "", "# only a comment", COMMENTED.removesuffix("\n")])
def test_any_value_is_written_anywhere_and_removed(path: Path, before: str, place: Place, value: Any) -> None:
    path.write_text(before)
    change(place, value)
    assert table_of(path.read_text(), place)[place[-1]] == value
    assert all(line in path.read_text() for line in before.splitlines() if line.startswith("# "))
    for _ in range(2):
        change(place, None)
        assert place[-1] not in table_of(path.read_text(), place)


def table_of(text: str, place: Place) -> dict[str, Any]:
    return reduce(lambda table, name: table.get(name, {}), place[:-1], tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "engine = {n_ctx = 1}",
        "engine.n_ctx = 1\nengine.threads = 2",
        "[engine]\nn_ctx = 1\n[models.a]\nk = 1\n[daemon]\nport = 1\n[models.b]\nk = 2",
        "# mine\r\n[engine]\nn_ctx = 1\r\n",
        "[models]\n[models.a]\nk = 1",
        'models."a".k = 1',
    ],
)
def test_however_a_file_is_written_nothing_else_changes(path: Path, text: str) -> None:
    for place in (("engine", "n_ctx"), ("engine", "parallel"), ("models", "a", "k"), ("models", "c", "k")):
        path.write_text(text)
        wanted = tables = tomllib.loads(text)
        for name in place[:-1]:
            tables = tables.setdefault(name, {})
        tables[place[-1]] = 3
        try:
            change(place, 3)
            assert tomllib.loads(path.read_text()) == wanted
        except InvalidOptions as error:
            assert "config edit" in error.remedy and path.read_text() == text


@pytest.mark.parametrize(
    ("before", "place", "value", "message"),
    [
        ("[engine]\nngram_max = 3", ("engine", "ngram_min"), 4, "ngram_min is larger"),
        ("engine = 3", ("engine", "n_ctx"), None, "engine must be a table"),
        ("[engine", ("engine", "n_ctx"), 1, "is not valid TOML"),
        ("[engine]\nnctx = 1", ("engine", "n_ctx"), 1, "did you mean 'engine.n_ctx'"),
        ("x = " + "[" * 300 + "]" * 300, ("engine", "n_ctx"), 1, "no setting named 'x'|cannot change"),
        ("x = " + "[" * 50_000, ("engine", "n_ctx"), 1, "is not valid TOML"),
    ],
)
def test_what_would_be_refused_is_not_written(
    path: Path, before: str, place: Place, value: Any, message: str
) -> None:
    path.write_text(before)
    with pytest.raises(InvalidOptions, match=message):
        change(place, value)
    assert path.read_text() == before and left_alone(path)


@pytest.mark.slow
def test_a_full_disk_takes_nothing_away(path: Path) -> None:
    path.write_text(COMMENTED + "#" * 5000 + "\n")
    before = path.read_text()
    done = subprocess.run(
        (sys.executable, "-B", "-m", "localspec", "config", "set", "n_ctx", "4096"),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        check=False,
    )
    assert done.returncode == 1 and DiskFull.default_remedy in done.stderr, done.stderr
    assert path.read_text() == before and left_alone(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_named(path: Path) -> None:
    path.write_text(COMMENTED)
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="cannot be written: Permission denied"):
            change(("engine", "n_ctx"), 1)
    finally:
        path.parent.chmod(0o700)
    assert path.read_text() == COMMENTED


def test_what_a_link_leads_to_is_written(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "localspec.toml"
    path.symlink_to(real)
    for number in (1, 2):
        change(("engine", "n_ctx"), number)
        assert path.is_symlink() and load_config().engine.n_ctx == number
    assert left_alone(real) and left_alone(path)
    path.unlink()
    (tmp_path / "file").touch()
    path.symlink_to(tmp_path / "file" / "config.toml")
    with pytest.raises(StorageError, match="cannot be written"):
        write_file("")

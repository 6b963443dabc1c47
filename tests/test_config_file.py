"""``config.toml`` is changed a value at a time, whole or not at all, and stays its owner's."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from localspec import config_file as module
from localspec.config import Config, load_config
from localspec.config_file import ConfigFile
from localspec.errors import DiskFull, InvalidOptions, LocalspecError, StorageError
from localspec.renamed import Place
from localspec.settings import find, settings

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
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "config.toml"


def left_alone(path: Path) -> bool:
    """Return True if the file's directory holds nothing else."""
    return [each.name for each in path.parent.iterdir()] == ([path.name] if path.exists() else [])


def test_a_value_is_changed_and_the_rest_stays(path: Path) -> None:
    path.write_text(COMMENTED)
    config = ConfigFile().set(("options", "temperature"), 0.5)
    assert path.read_text() == COMMENTED.replace("0.2   # cool", "0.5   # cool")
    assert config == load_config() and config.options.temperature == 0.5
    assert left_alone(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("model_dirs",), ("/a", '/with "quotes" and \\')),
        (("engine", "threads"), 2),
        (("engine", "n_ctx"), 4096),
        (("daemon", "hang_s"), 5.0),
        (("options", "stop"), ("\n", "é")),
        (("options", "remember"), False),
        (("models", "a.b:c", "n_ctx"), 128),
        (("models", "a.b:c", "draft"), "none"),
        (("models", 'new "one"', "k"), 2),
    ],
)
def test_any_value_is_written_anywhere(path: Path, place: Place, value: Any) -> None:
    for before in (COMMENTED, "", "\n", "# only a comment", COMMENTED.removesuffix("\n")):
        path.write_text(before)
        ConfigFile().set(place, value)
        found: Any = tomllib.loads(path.read_text())
        for name in place:
            found = found[name]
        assert found == (list(value) if isinstance(value, tuple) else value)
        assert all(line in path.read_text() for line in before.splitlines() if line.startswith("# "))
        ConfigFile().unset(place)
        with pytest.raises(InvalidOptions, match="is not set in config.toml"):
            ConfigFile().unset(place)


def test_a_comment_stays_with_what_follows_it(path: Path) -> None:
    path.write_text(COMMENTED)
    ConfigFile().set(("options", "seed"), 1)
    assert "k = 4\nseed = 1\n\n# how\n[engine]" in path.read_text()


def test_sections_of_one_kind_have_no_heading_of_their_own(path: Path) -> None:
    ConfigFile().set(("models", "a", "k"), 1)
    ConfigFile().set(("models", "b", "k"), 2)
    ConfigFile().set(("engine", "n_ctx"), 2)
    assert "[models]" not in path.read_text()
    assert "[models.b]\nk = 2\n" in path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "engine = {n_ctx = 1}",
        "engine.n_ctx = 1\nengine.threads = 2",
        "[engine]\nn_ctx = 1\n[models.a]\nk = 1\n[daemon]\nport = 1\n[models.b]\nk = 2",
        "options.k = 1\n[engine]",
        "[models]\n[models.a]\nk = 1",
        'models."a".k = 1',
    ],
)
def test_however_a_file_is_written_nothing_else_changes(path: Path, text: str) -> None:
    places = (
        ("engine", "n_ctx"),
        ("engine", "parallel"),
        ("models", "a", "k"),
        ("models", "c", "k"),
        ("model_dirs",),
    )
    for place in places:
        path.write_text(text)
        value = ["/a"] if place == ("model_dirs",) else 3
        wanted = tomllib.loads(text)
        tables = wanted
        for name in place[:-1]:
            tables = tables.setdefault(name, {})
        tables[place[-1]] = value
        try:
            ConfigFile().set(place, value)
            assert tomllib.loads(path.read_text()) == wanted
        except InvalidOptions as error:
            assert "config edit" in error.remedy and path.read_text() == text


def test_line_ends_stay_as_they_are(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf# mine\r\n[engine]\r\nn_ctx = 1\r\n")
    ConfigFile().set(("engine", "threads"), 2)
    ConfigFile().set(("daemon", "port"), 0)
    data = path.read_bytes()
    assert b"# mine\r\n" in data and data.count(b"\n") == data.count(b"\r\n") >= 5
    assert load_config().engine.threads == 2


def test_a_file_of_both_line_ends_keeps_both(path: Path) -> None:
    path.write_bytes(b"# mine\r\n[engine]\nn_ctx = 1\n\n# more\n")
    ConfigFile().set(("engine", "n_ctx"), 2)
    assert path.read_bytes() == b"# mine\r\n[engine]\nn_ctx = 2\n\n# more\n"


# --- refused, and then nothing has changed -------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "place", "value", "message"),
    [
        ("[engine]\nngram_max = 3", ("engine", "ngram_min"), 4, "ngram_min is larger"),
        ("", ("options", "threshold"), 0.3, "drafts are verified exactly"),
        ("", ("engine", "n_ctx"), -1, "n_ctx takes a whole number from 0"),
        ("", ("engine", "nctx"), 1, "did you mean 'engine.n_ctx'"),
        ("engine = 3", ("engine", "n_ctx"), 1, "engine in config.toml is not a table|engine must be a table"),
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
        ConfigFile().set(place, value)
    assert path.read_text() == before and left_alone(path)


def test_a_wrong_file_can_be_mended_value_by_value(path: Path) -> None:
    path.write_text("[engine]\nn_ctx = -1 # oops\nthreads = 2\n")
    ConfigFile().set(("engine", "n_ctx"), 1)
    assert load_config().engine.n_ctx == 1
    path.write_text("[engine]\nnctx = 1\nthreads = 2\n")
    ConfigFile().unset(("engine", "nctx"))
    assert load_config().engine.threads == 2


def test_a_directory_in_the_place_of_the_file_is_left_alone(path: Path) -> None:
    path.mkdir()
    with pytest.raises(InvalidOptions, match="cannot be read: Is a directory"):
        ConfigFile().set(("engine", "n_ctx"), 1)
    assert list(path.iterdir()) == []


def limited(path: Path, largest: int) -> subprocess.CompletedProcess[str]:
    """Set a value where no file may grow beyond ``largest`` bytes: what a full disk is to a program."""
    return subprocess.run(
        (sys.executable, "-B", "-m", "localspec", "config", "set", "n_ctx", "4096", "--json"),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest)),
        check=False,
    )


@pytest.mark.slow
def test_a_full_disk_takes_nothing_away(path: Path) -> None:
    path.write_text(COMMENTED + "#" * 5000 + "\n")
    before = path.read_text()
    done = limited(path, 4096)
    assert done.returncode == 1 and '"disk_full"' in done.stdout, done.stdout + done.stderr
    assert path.read_text() == before and left_alone(path)
    assert DiskFull.default_remedy in done.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_told(path: Path) -> None:
    path.write_text(COMMENTED)
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="cannot be written: Permission denied"):
            ConfigFile().set(("engine", "n_ctx"), 1)
    finally:
        path.parent.chmod(0o700)
    assert path.read_text() == COMMENTED


def test_a_place_that_cannot_be_made_is_told(path: Path) -> None:
    target = path.with_name("missing") / "deep"
    target.parent.touch()
    path.symlink_to(target / "config.toml")
    with pytest.raises(LocalspecError, match=r"cannot be (read|written): Not a directory"):
        ConfigFile().set(("engine", "n_ctx"), 1)


# --- links and modes -----------------------------------------------------------------------------


def test_what_a_link_leads_to_is_written_and_keeps_its_mode(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "localspec.toml"
    real.parent.mkdir()
    real.write_text(COMMENTED)
    real.chmod(0o644)
    path.symlink_to(real)
    ConfigFile().set(("engine", "n_ctx"), 4096)
    assert path.is_symlink() and load_config().engine.n_ctx == 4096
    assert stat.S_IMODE(real.stat().st_mode) == 0o644
    assert left_alone(real) and left_alone(path)


def test_a_link_to_nowhere_gets_its_file(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "dotfiles" / "localspec.toml")
    ConfigFile().set(("engine", "n_ctx"), 4096)
    assert path.is_symlink() and (tmp_path / "dotfiles" / "localspec.toml").is_file()


def test_another_file_can_be_named(tmp_path: Path, path: Path) -> None:
    other = tmp_path / "other.toml"
    ConfigFile(other).set(("engine", "n_ctx"), 5)
    assert load_config(other).engine.n_ctx == 5 and not path.exists()


# --- several writers -----------------------------------------------------------------------------


@pytest.mark.slow
def test_writers_at_the_same_time_lose_nothing(path: Path) -> None:
    path.write_text(COMMENTED)
    program = """import sys; from localspec.config_file import ConfigFile
for n in range(5): ConfigFile().set(('models', sys.argv[1] + str(n), 'k'), n + 1)"""
    writers = [subprocess.Popen((sys.executable, "-c", program, name)) for name in "xyz"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    models = load_config().models
    assert {name: models[name].options.k for name in models if name != "a.b:c"} == {
        f"{name}{n}": n + 1 for name in "xyz" for n in range(5)
    }


def test_a_writer_that_holds_on_for_too_long_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_S", 0.01)
    with ConfigFile()._locked(), pytest.raises(StorageError, match="another command has been writing"):
        ConfigFile().set(("engine", "n_ctx"), 1)


def test_a_text_goes_in_only_where_nothing_has_changed(path: Path) -> None:
    path.write_text(COMMENTED)
    file = ConfigFile()
    with pytest.raises(StorageError, match="another program has changed"):
        file.replace("[engine]\nn_ctx = 1\n", was="something else")
    with pytest.raises(InvalidOptions, match="your edit is not valid TOML"):
        file.replace("[engine", was=COMMENTED)
    assert path.read_text() == COMMENTED
    assert file.replace("[engine]\nn_ctx = 1\n", was=COMMENTED).engine.n_ctx == 1
    assert path.read_text() == "[engine]\nn_ctx = 1\n"


# --- every setting -------------------------------------------------------------------------------

TYPED = {
    "model_dirs": '["/a"]',
    "http.origins": '["http://a"]',
    "http.without_token": '["ollama"]',
    "options.stop": '["END"]',
    "options.logit_bias": "[[5, -2.5]]",
    "options.overflow": "refuse",
}
SAMPLES = ("3", "4096", "0.5", "true", "auto", "cost", "exact", "strict", "4")


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.key)
def test_every_setting_can_be_typed_written_and_taken_back(path: Path, setting: Any) -> None:
    path.write_text('[options]\nverify = "threshold"\n')
    for text in (TYPED.get(setting.key), *SAMPLES):
        try:
            value = setting.parse(text) if text is not None else None
        except InvalidOptions as error:
            assert error.message.startswith(f"{setting.key} takes {setting.takes}") and error.remedy
            continue
        if value is not None:
            break
    assert value is not None
    place = (setting.table, setting.name) if setting.table else (setting.name,)
    config = ConfigFile().set(place, value)
    assert getattr(getattr(config, setting.table, config), setting.name) == value
    if setting.key != "options.verify":
        assert ConfigFile().unset(place) == load_config()
    assert setting.meaning and find(setting.key) == setting and find(setting.name).name == setting.name


def test_a_setting_without_a_file_is_the_schemas() -> None:
    of_schema = {s.key: s.default for s in settings()}
    assert of_schema["engine.n_ctx"] == Config().engine.n_ctx and of_schema["options.k"] is None
    with pytest.raises(InvalidOptions, match="did you mean 'n_ctx'"):
        find("nctx")
    for text in ("~/models", "[1]", '["a"', "3"):
        with pytest.raises(InvalidOptions) as caught:
            find("model_dirs").parse(text)
        assert "as in TOML" in caught.value.remedy

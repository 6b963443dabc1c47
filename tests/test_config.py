"""One schema: defaults, the file and its changes, the environment, the command line."""

from __future__ import annotations

import os
import re
import tomllib
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.config import (
    LARGEST_FILE,
    TABLES,
    Config,
    DaemonConfig,
    HttpConfig,
    ModelConfig,
    Place,
    change,
    config_path,
    environment_options,
    find,
    load_config,
    override,
    settings,
)
from localspec.errors import ExitCode, InvalidOptions, StorageError
from localspec.protocol.options import SETTABLE, Options
from localspec.protocol.requests import EngineConfig

VARIABLES = ("LOCALSPEC_MODEL", "LOCALSPEC_DRAFT", "LOCALSPEC_PROPOSER", "LOCALSPEC_BACKEND")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the configuration file, with nothing in the environment."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    for variable in (*VARIABLES, "LOCALSPEC_IDLE", "LOCALSPEC_AUTO_PULL"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "config.toml"


def refusal(file: Path, text: str) -> str:
    file.write_text(text, "utf-8")
    with pytest.raises(InvalidOptions) as caught:
        load_config()
    assert str(file) in caught.value.remedy
    assert caught.value.exit_code == ExitCode.USAGE
    return caught.value.message


def test_no_file_gives_the_defaults(file: Path) -> None:
    assert load_config() == Config() and config_path() == file.resolve()
    file.symlink_to(file.with_name("nothing"))
    assert load_config() == Config()


def test_every_table_is_read(file: Path) -> None:
    file.write_text(
        """
        model_dirs = ["/models", "~/more"]
        [engine]
        n_ctx = 4096
        gpu_layers = -1
        [daemon]
        slow_client_s = 5
        [http]
        origins = ["http://localhost:3000", "app://*"]
        [options]
        temperature = 0.2
        stop = ["END"]
        """
    )
    options = Options(temperature=0.2, stop=("END",))
    assert load_config() == Config(
        model_dirs=("/models", "~/more"),
        engine=EngineConfig(n_ctx=4096),
        daemon=DaemonConfig(slow_client_s=5.0),
        http=HttpConfig(origins=("http://localhost:3000", "app://*")),
        options=options.over(Config().options),
    )


ORIGINS = "http.origins takes a list of origins such as https://example.org, or app://* (any scheme but"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engine.n_ctx = -1", "engine.n_ctx takes a whole number from 0 to 100000000, not -1"),
        ("options.backend = 'cuda'", "options.backend takes auto, llama_cpp or mlx, not 'cuda'"),
        ("model_dirs = ['/a', 'b']", 'model_dirs takes a list of absolute paths, not ["/a","b"]'),
        *(
            (f"http.origins = ['{each}']", ORIGINS)
            for each in ("*", "https://*", "https://*.a.com", "app://*/x")
        ),
        ("http.hosts = ['*.internal']", "http.hosts takes a list of names such as host.docker.internal"),
        ("daemon.max_frame = " + "9" * 400, "daemon.max_frame takes "),
        ("engine.nodes = ['10.0.0.2:7005#ab']", "engine.nodes takes a list of names for ssh, such as mac-b"),
        ("[engine]\nngram_min = 4\nngram_max = 3", "engine.ngram_min is larger than engine.ngram_max"),
        (
            '[engine]\nngram_min = 3\n[models."a"]\nngram_max = 2',
            'engine.ngram_min is larger than engine.ngram_max in [models."a"]',
        ),
        ("engine.threads = 12:00:00", "engine.threads takes a whole number from 0 to 1024, not 12:00:00"),
        ("[models]\na = 3", 'in [models."a"]: a must be a table of settings, [a], not 3'),
        ('[models."a"]\nmodel = "b"\nk = 0', 'in [models."a"]: k takes a whole number from 1 to 20'),
    ],
)
def test_a_wrong_value_is_refused_naming_its_key(file: Path, text: str, message: str) -> None:
    assert refusal(file, text).startswith(message)


@pytest.mark.parametrize("text", ["[engine", "a = 1\na = 2", "a = " + "9" * 10_000, "x = " + "[" * 50_000])
def test_what_is_no_toml_is_refused_and_not_changed(file: Path, text: str) -> None:
    assert f"{file} is not valid TOML" in refusal(file, text)
    with pytest.raises(InvalidOptions, match="is not valid TOML"):
        change(("engine", "n_ctx"), 1)
    assert file.read_text() == text


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf[engine]\r\nn_ctx = 4096\r\n")
    assert load_config().engine.n_ctx == 4096
    for data, message in ((b'x = "\xff"', "cannot be read"), (b"#" * (LARGEST_FILE + 1), "at most 262.1 kB")):
        file.write_bytes(data)
        with pytest.raises(InvalidOptions, match=message):
            load_config()
        file.unlink()
    os.mkfifo(file)
    with pytest.raises(InvalidOptions, match="is not a regular file"):
        load_config()
    file.unlink()
    file.symlink_to(file)
    with pytest.raises(InvalidOptions, match="cannot be read"):
        load_config()


def test_the_environment_is_the_callers_and_not_the_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in zip(VARIABLES, ("m", "none", "prompt-lookup", "mlx"), strict=True):
        monkeypatch.setenv(variable, value)
    assert load_config().options.model == "auto"
    assert environment_options() == Options(model="m", draft="none", proposer="prompt-lookup", backend="mlx")
    monkeypatch.setenv("LOCALSPEC_MODEL", "")
    assert environment_options().model is None
    monkeypatch.setenv("LOCALSPEC_BACKEND", "cuda")
    takes = "LOCALSPEC_BACKEND takes auto, llama_cpp or mlx, not 'cuda'"
    with pytest.raises(InvalidOptions, match=takes) as caught:
        environment_options()
    assert caught.value.remedy == "Correct it, or run `unset LOCALSPEC_BACKEND`."


def test_measuring_while_idle_can_be_switched_off_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, measures in (("on", True), ("off", False)):
        monkeypatch.setenv("LOCALSPEC_IDLE", value)
        assert load_config().engine.idle_measuring is measures
    monkeypatch.setenv("LOCALSPEC_IDLE", "no")
    with pytest.raises(InvalidOptions, match="LOCALSPEC_IDLE must be on or off, not 'no'"):
        load_config()


def test_any_option_and_any_knob_can_be_overridden() -> None:
    pairs = {"temperature": "0.5", "n-ctx": "4096", "max-frame": "4096", "stop": "END", "remember": "true"}
    assert override(Config(), pairs) == Config(
        engine=EngineConfig(n_ctx=4096),
        daemon=DaemonConfig(max_frame=4096),
        options=msgspec.structs.replace(Config().options, temperature=0.5, stop=("END",), remember=True),
    )
    before = Config(model_dirs=("/m",), engine=EngineConfig(threads=3), options=Options(model="m", k=4))
    after = override(before, {"options.k": "5"})
    assert after == msgspec.structs.replace(before, options=Options(model="m", k=5))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"k": "21"}, "--opt k takes a whole number from 1 to 20, not '21'"),
        ({"ngram_min": "5", "ngram_max": "2"}, "ngram_min is larger than"),
        ({"model_dirs": "[]"}, "model_dirs cannot be set for one command"),
        ({"nctx": "1"}, "there is no setting named 'nctx'; did you mean 'n_ctx'"),
        *(({key: "1"}, "there is no setting named") for key in ("engine.k", "options.port", "k.", "engine")),
    ],
)
def test_a_wrong_override_is_refused(pairs: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptions, match=message):
        override(Config(), pairs)


def test_a_typed_value_is_read() -> None:
    assert [find("stop").parse(text) for text in ("[a", '["a", "b"]')] == [("[a",), ("a", "b")]
    assert find("logit_bias").parse("[[300, 2.5]]") == ((300, 2.5),)
    assert find("memory").parse("false") is False and find("remember").parse("true") is True
    typed = {"k": 4, "temperature": 0.5, "seed": 2**63 - 1, "model": "7", "draft": "none", "proposer": "none"}
    assert {name: find(name).parse(str(value)) for name, value in typed.items()} == typed


def test_every_setting_has_a_meaning_and_a_name_of_its_own() -> None:
    fields = [name for struct in TABLES.values() for name in struct.__struct_fields__]
    names = [name for name in fields if name not in {*Options.__struct_fields__} - {*SETTABLE}]
    assert [setting.name for setting in settings()] == ["model_dirs", "auto_pull", *names]
    assert all(re.fullmatch(r"\S.{9,110}\S", setting.meaning) for setting in settings())
    own = [setting.name for setting in settings() if setting.table != "http"]
    assert len(set(own)) == len(own)  # else --opt NAME would be ambiguous


SECTIONS = """
[models."qwen2.5-coder:7b"]
n_ctx = 4096
kv_bits = 8
temperature = 0.2
draft = "none"
[models.bundled]
"""


def test_sections_are_read(file: Path) -> None:
    file.write_text(SECTIONS)
    config = load_config()
    knobs: dict[str, Any] = {"n_ctx": 4096, "kv_bits": 8}
    model = ModelConfig(engine=knobs, options=Options(temperature=0.2, draft="none"))
    assert config.models == {"qwen2.5-coder:7b": model, "bundled": ModelConfig()}
    assert model.over(EngineConfig(threads=3, n_ctx=7)) == EngineConfig(threads=3, **knobs)
    config = override(config, {"n_ctx": "64"})  # no section takes it back
    section = config.models["qwen2.5-coder:7b"]
    assert section.over(config.engine) == EngineConfig(n_ctx=64, kv_bits=8)


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


def left_alone(file: Path) -> bool:
    return [each.name for each in file.parent.iterdir()] == ([file.name] if file.exists() else [])


def test_a_value_is_changed_and_the_rest_stays(file: Path) -> None:
    file.write_text(COMMENTED)
    change(("options", "temperature"), 0.5)
    assert file.read_text() == COMMENTED.replace("0.2   # cool", "0.5   # cool") and left_alone(file)
    change(("options", "seed"), 1)
    assert "k = 4\nseed = 1\n\n# how\n[engine]" in file.read_text()
    file.write_text("[engine]\nn_ctx = -1 # oops")
    change(("engine", "n_ctx"), 1)
    assert file.read_text() == "[engine]\nn_ctx = 1 # oops\n"


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
def test_any_value_is_written_anywhere_and_removed(file: Path, before: str, place: Place, value: Any) -> None:
    file.write_text(before)
    change(place, value)
    assert table_of(file.read_text(), place)[place[-1]] == value
    assert all(line in file.read_text() for line in before.splitlines() if line.startswith("# "))
    for _ in range(2):
        change(place, None)
        assert place[-1] not in table_of(file.read_text(), place)


def table_of(text: str, place: Place) -> dict[str, Any]:
    return reduce(lambda table, name: table.get(name, {}), place[:-1], tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "engine = {n_ctx = 1}",
        "engine.n_ctx = 1\nengine.threads = 2",
        "[engine]\nn_ctx = 1\n[models.a]\nk = 1\n[daemon]\nhang_s = 1\n[models.b]\nk = 2",
        "# mine\r\n[engine]\nn_ctx = 1\r\n",
        "[models]\n[models.a]\nk = 1",
        'models."a".k = 1',
        "[engine]\nnctx = 1\n",
    ],
)
def test_however_a_file_is_written_nothing_else_changes(file: Path, text: str) -> None:
    for place in (("engine", "n_ctx"), ("engine", "parallel"), ("models", "a", "k"), ("models", "c", "k")):
        file.write_text(text)
        wanted = tables = tomllib.loads(text)
        for name in place[:-1]:
            tables = tables.setdefault(name, {})
        tables[place[-1]] = 3
        try:
            change(place, 3)
            assert tomllib.loads(file.read_text()) == wanted
        except InvalidOptions as error:
            assert "by hand" in error.remedy and file.read_text() == text


@pytest.mark.parametrize(
    ("before", "place", "value", "message"),
    [
        ("[engine]\nngram_max = 3", ("engine", "ngram_min"), 4, "ngram_min is larger"),
        ("engine = 3", ("engine", "n_ctx"), None, "engine must be a table"),
        ("[engine]\nnctx = 1", ("engine", "n_ctx"), -1, "engine.n_ctx takes a whole number"),
        ("x = " + "[" * 300 + "]" * 300, ("engine", "n_ctx"), 1, "cannot change"),
    ],
)
def test_a_refused_change_writes_none(
    file: Path, before: str, place: Place, value: Any, message: str
) -> None:
    file.write_text(before)
    with pytest.raises(InvalidOptions, match=message):
        change(place, value)
    assert file.read_text() == before and left_alone(file)


def test_what_a_link_leads_to_is_written(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "localspec.toml"
    file.symlink_to(real)
    for number in (1, 2):
        change(("engine", "n_ctx"), number)
        assert file.is_symlink() and load_config().engine.n_ctx == number
    assert left_alone(real) and left_alone(file)
    file.unlink()
    file.symlink_to("n" * 250)  # so long that a temporary file's name is too long
    with pytest.raises(StorageError, match="cannot be written"):
        change(("engine", "n_ctx"), 3)


def test_unknown_keys_are_left_out_with_one_notice(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(
        """
        engin = 1
        n_ctx = 1
        [engine]
        nctx = 1
        parallel = 2
        [models.qwen2.5-coder]
        k = 1
        [models."a"]
        model = "b"
        k = 3
        """
    )
    for _ in range(2):
        config = load_config()
        models = {"qwen2": ModelConfig(), "a": ModelConfig(options=Options(k=3))}
        assert config == msgspec.structs.replace(Config(), engine=EngineConfig(parallel=2), models=models)
    assert [record.message for record in caplog.records] == [
        f"{file}: left out, as there is no setting named 'engin'; did you mean 'engine'?, and "
        "there is no setting named 'n_ctx'; did you mean 'engine.n_ctx'?, and "
        "there is no setting named 'engine.nctx'; did you mean 'engine.n_ctx'?, and "
        """in [models."qwen2"] there is no setting named '5-coder'; did you mean 'nodes'?, and """
        """in [models."a"] there is no setting named 'model'; did you mean 'nodes'? """
        f"Correct {file}."
    ]

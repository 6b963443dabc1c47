"""One schema: defaults, the file, the environment, the command line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest

from localspec.config import (
    LARGEST_FILE,
    TABLES,
    Config,
    DaemonConfig,
    HttpConfig,
    ModelConfig,
    config_path,
    environment_options,
    find,
    load_config,
    override,
    settings,
)
from localspec.errors import ExitCode, InvalidOptions
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options

VARIABLES = ("LOCALSPEC_MODEL", "LOCALSPEC_DRAFT", "LOCALSPEC_PROPOSER", "LOCALSPEC_BACKEND")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the configuration file, with nothing in the environment."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    for variable in (*VARIABLES, "LOCALSPEC_IDLE"):
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


# --- the file ----------------------------------------------------------------------------------


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
        port = 0
        slow_client_s = 5
        [http]
        origins = ["http://localhost:3000", "app://*"]
        [options]
        temperature = 0.2
        stop = ["END"]
        verify = "threshold"
        threshold = 0.3
        """
    )
    options = Options(temperature=0.2, stop=("END",), verify="threshold", threshold=0.3)
    assert load_config() == Config(
        model_dirs=("/models", "~/more"),
        engine=EngineConfig(n_ctx=4096),
        daemon=DaemonConfig(port=0, slow_client_s=5.0),
        http=HttpConfig(origins=("http://localhost:3000", "app://*")),
        options=options.over(Config().options),
    )


ORIGINS = "http.origins takes a list of origins such as https://example.org, or app://* (any scheme but"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engin = 1", "there is no setting named 'engin'; did you mean 'engine'?"),
        ("engine.nctx = 1", "there is no setting named 'engine.nctx'; did you mean 'engine.n_ctx'?"),
        ("engine.n_ctx = -1", "engine.n_ctx takes a whole number from 0 to 100000000, not -1"),
        ("engine.memory = 1", "engine.memory takes true or false, not 1"),
        ("daemon.hang_s = nan", "daemon.hang_s takes a number above 0 and at most 31536000, not nan"),
        ("options.backend = 'cuda'", "options.backend takes auto, llama_cpp or mlx, not 'cuda'"),
        ("options.stop = [1]", "options.stop takes a list of at most 64 strings of 1 to 256 characters, not"),
        ("model_dirs = ['/a', 'b']", 'model_dirs takes a list of absolute paths, not ["/a","b"]'),
        *(
            (f"http.origins = ['app://obsidian.md', '{entry}']", ORIGINS)
            for entry in (
                "*",
                "https://*",
                "http://*",
                "wss://*",
                "https://*.a.com",
                "app://*/x",
                "HTTPS://*",
            )
        ),
        ("engine = 3", "engine must be a table of settings, [engine], not 3"),
        ("daemon.max_frame = " + "9" * 400, "daemon.max_frame takes "),
        ("[engine]\nngram_min = 4\nngram_max = 3", "engine.ngram_min is larger than engine.ngram_max"),
        ("options.threshold = 0.3", "a threshold was given, but drafts are verified exactly"),
        (
            '[models."a"]\nnctx = 1',
            """in [models."a"]: there is no setting named 'nctx'; did you mean 'n_ctx'""",
        ),
        ('[models."a"]\nmodel = "b"', """in [models."a"]: there is no setting named 'model'"""),
        ("models = 3", "models must be a table of settings, [models], not 3"),
        ("[models]\na = 3", 'in [models."a"]: a must be a table of settings, [a], not 3'),
        ("[models.qwen2.5-coder]\nk = 1", """in [models."qwen2"]: there is no setting named '5-coder'"""),
    ],
)
def test_a_wrong_value_is_refused_naming_its_key(file: Path, text: str, message: str) -> None:
    assert refusal(file, text).startswith(message)


@pytest.mark.parametrize("text", ["[engine", "a = 1\na = 2", "a = " + "9" * 10_000, "x = " + "[" * 50_000])
def test_what_is_no_toml_is_refused(file: Path, text: str) -> None:
    assert f"{file} is not valid TOML" in refusal(file, text)


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf[engine]\r\nn_ctx = 4096\r\n")
    assert load_config().engine.n_ctx == 4096
    for data, message in ((b'x = "\xff"', "cannot be read"), (b"#" * (LARGEST_FILE + 1), "at most 262.1 kB")):
        file.write_bytes(data)
        with pytest.raises(InvalidOptions, match=message):
            load_config()
    for make in (file.mkdir, lambda: os.mkfifo(file)):
        file.unlink() if file.is_file() else None
        file.rmdir() if file.is_dir() else None
        make()
        with pytest.raises(InvalidOptions, match="is not a regular file"):
            load_config()
    file.unlink()
    file.symlink_to(file)
    with pytest.raises(InvalidOptions, match="cannot be read"):
        load_config()


# --- the environment ---------------------------------------------------------------------------


def test_the_environment_is_the_callers_and_not_the_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in zip(VARIABLES, ("m", "none", "prompt-lookup", "mlx"), strict=True):
        monkeypatch.setenv(variable, value)
    assert load_config().options.model == "bundled"
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


# --- the command line --------------------------------------------------------------------------


def test_any_option_and_any_knob_can_be_overridden() -> None:
    pairs = {"temperature": "0.5", "n-ctx": "4096", "port": "0", "stop": "END", "remember": "true"}
    assert override(Config(), pairs) == Config(
        engine=EngineConfig(n_ctx=4096),
        daemon=DaemonConfig(port=0),
        options=msgspec.structs.replace(Config().options, temperature=0.5, stop=("END",), remember=True),
    )
    before = Config(model_dirs=("/m",), engine=EngineConfig(threads=3), options=Options(model="m", k=4))
    after = override(before, {"options.k": "5"})
    assert after == msgspec.structs.replace(before, options=Options(model="m", k=5))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"k": "21"}, "--opt k takes a whole number from 1 to 20, not '21'"),
        ({"temperature": "warm"}, "--opt temperature takes a number from"),
        ({"n-ctx": "-1"}, "--opt n-ctx takes a whole number from 0"),
        ({"ngram_min": "5", "ngram_max": "2"}, "ngram_min is larger than"),
        ({"threshold": "0.3"}, "drafts are verified exactly"),
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
    assert find("memory").parse("false") is False


# --- the schema --------------------------------------------------------------------------------


def test_every_setting_has_a_meaning_and_a_name_of_its_own() -> None:
    names = [name for struct in TABLES.values() for name in struct.__struct_fields__]
    assert [setting.name for setting in settings()] == ["model_dirs", *names]
    assert all(re.fullmatch(r"\S.{9,110}\S", setting.meaning) for setting in settings())
    own = [setting.name for setting in settings() if setting.table != "http"]
    assert len(set(own)) == len(own)  # else --opt NAME would be ambiguous


# --- sections ----------------------------------------------------------------------------------

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
    knobs = {"n_ctx": 4096, "kv_bits": 8}
    model = ModelConfig(engine=knobs, options=Options(temperature=0.2, draft="none"))
    assert config.models == {"qwen2.5-coder:7b": model, "bundled": ModelConfig()}
    assert model.over(EngineConfig(threads=3, n_ctx=7)) == EngineConfig(threads=3, **knobs)
    config = override(config, {"n_ctx": "64"})  # no section takes it back
    section = config.models["qwen2.5-coder:7b"]
    assert section.over(config.engine) == EngineConfig(n_ctx=64, kv_bits=8)


def test_a_section_is_checked_with_what_it_goes_over(file: Path) -> None:
    larger = refusal(file, '[engine]\nngram_min = 3\n[models."a"]\nngram_max = 2')
    assert larger == 'engine.ngram_min is larger than engine.ngram_max in [models."a"]'
    assert refusal(file, '[models."a"]\nthreshold = 0.3').endswith(
        'drafts are verified exactly in [models."a"]'
    )
    file.write_text('[models."a"]\nthreshold = 0.3\n[options]\nverify = "threshold"')
    assert load_config().models["a"].options.threshold == 0.3

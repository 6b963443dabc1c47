"""One schema: defaults, the file, the environment, the command line."""

from __future__ import annotations

import ast
import inspect
import os
import re
from pathlib import Path

import msgspec
import pytest

from localspec.config import (
    LARGEST_FILE,
    Config,
    DaemonConfig,
    HttpConfig,
    ModelConfig,
    config_path,
    environment_options,
    load_config,
    parse_config,
)
from localspec.errors import ExitCode, InvalidOptions
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.settings import override

TABLES = (EngineConfig, DaemonConfig, HttpConfig, Config)
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


def test_no_file_gives_the_defaults() -> None:
    assert load_config() == Config()


def test_the_file_is_in_the_configuration_directory(file: Path) -> None:
    assert config_path() == file.resolve()


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
        origins = ["http://localhost:3000"]
        [options]
        temperature = 0.2
        stop = ["END"]
        verify = "threshold"
        threshold = 0.3
        """
    )
    assert load_config() == Config(
        model_dirs=("/models", "~/more"),
        engine=EngineConfig(n_ctx=4096),
        daemon=DaemonConfig(port=0, slow_client_s=5.0),
        http=HttpConfig(origins=("http://localhost:3000",)),
        options=Options(
            model="bundled",
            draft="auto",
            proposer="auto",
            backend="auto",
            temperature=0.2,
            stop=("END",),
            verify="threshold",
            threshold=0.3,
        ),
    )


@pytest.mark.parametrize(
    ("text", "name", "near"),
    [
        ("engin = 1", "engin", "engine"),
        ("[engine]\nnctx = 1", "engine.nctx", "engine.n_ctx"),
        ("[daemon]\nprot = 1", "daemon.prot", "daemon.port"),
        ("[options]\ntemprature = 1", "options.temprature", "options.temperature"),
    ],
)
def test_an_unknown_key_is_refused_naming_the_nearest(file: Path, text: str, name: str, near: str) -> None:
    assert refusal(file, text) == f"there is no setting named {name!r}; did you mean {near!r}?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engine.n_ctx = -1", "engine.n_ctx takes a whole number from 0 to 100000000, not -1"),
        ("engine.n_ctx = true", "engine.n_ctx takes a whole number from 0 to 100000000, not true"),
        ("engine.ngram_max = 6", "engine.ngram_max takes a whole number from 1 to 5, not 6"),
        ("engine.memory = 1", "engine.memory takes true or false, not 1"),
        ("engine.kv_bits = 16", "engine.kv_bits takes 0, 4 or 8, not 16"),
        (
            "daemon.slow_client_s = nan",
            "daemon.slow_client_s takes a number above 0 and at most 31536000, not nan",
        ),
        ("daemon.port = '1'", "daemon.port takes a whole number from 0 to 65535, not '1'"),
        ("options.k = {a = 1}", 'options.k takes a whole number from 1 to 20, not {"a":1}'),
        ("options.k = 2020-01-01", "options.k takes a whole number from 1 to 20, not 2020-01-01"),
        ("options.backend = 'cuda'", "options.backend takes auto, llama_cpp or mlx, not 'cuda'"),
        (
            "options.stop = [1]",
            "options.stop takes a list of at most 64 strings of 1 to 256 characters, not [1]",
        ),
        ("model_dirs = '/models'", "model_dirs takes a list of strings, not '/models'"),
        ("model_dirs = ['/a', 'b']", "model_dirs takes a list of strings, each an absolute path, not 'b'"),
        *(
            (
                f"http.origins = ['app://obsidian.md', '{entry}']",
                f"http.origins has the entry '{entry}': a * may only follow a scheme in lower case other "
                "than http, https, ws and wss",
            )
            for entry in (
                "*",
                "https://*",
                "http://*",
                "wss://*",
                "https://*.example.com",
                "app://*/x",
                "HTTPS://*",
            )
        ),
        ("engine = 3", "engine must be a table of settings, [engine], not 3"),
        ("options = []", "options must be a table of settings, [options], not []"),
    ],
)
def test_a_value_out_of_range_is_refused_naming_its_key(file: Path, text: str, message: str) -> None:
    assert refusal(file, text) == message


def test_the_shortest_match_is_not_longer_than_the_longest(file: Path) -> None:
    message = refusal(file, "[engine]\nngram_min = 4\nngram_max = 3")
    assert message == "engine.ngram_min is larger than engine.ngram_max"


def test_a_threshold_needs_lossy_verification(file: Path) -> None:
    file.write_text("options.threshold = 0.3")
    with pytest.raises(InvalidOptions, match="drafts are verified exactly"):
        load_config()


@pytest.mark.parametrize("text", ["a = ", "[engine", "a = 1\na = 2", "\0", "x = " + "[" * 50_000])
def test_what_is_no_toml_is_refused(file: Path, text: str) -> None:
    assert f"{file} is not valid TOML" in refusal(file, text)


def test_what_is_no_utf8_is_refused(file: Path) -> None:
    file.write_bytes(b'options.model = "\xff"')
    with pytest.raises(InvalidOptions, match="is not valid TOML"):
        load_config()


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    file.mkdir()
    with pytest.raises(InvalidOptions, match="cannot be read: Is a directory"):
        load_config()


def test_a_refusal_names_where_the_values_come_from() -> None:
    with pytest.raises(InvalidOptions) as caught:
        parse_config({"engine": {"n_ctx": -1}}, where="the moon")
    assert caught.value.remedy == "Correct the moon: `localspec config edit`."


# --- the environment ---------------------------------------------------------------------------


def test_the_environment_is_the_callers_and_not_the_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_MODEL", "c")
    assert load_config().options.model == "bundled"
    assert environment_options() == Options(model="c")


def test_every_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in zip(VARIABLES, ("m", "none", "prompt-lookup", "mlx"), strict=True):
        monkeypatch.setenv(variable, value)
    options = environment_options()
    assert (options.model, options.draft, options.proposer, options.backend) == (
        *("m", "none", "prompt-lookup", "mlx"),
    )


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_MODEL", "")
    assert environment_options() == Options()


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_BACKEND", "cuda")
    monkeypatch.setenv("LOCALSPEC_MODEL", "m")
    takes = "LOCALSPEC_BACKEND takes auto, llama_cpp or mlx, not 'cuda'"
    with pytest.raises(InvalidOptions, match=takes) as caught:
        environment_options()
    assert caught.value.remedy == "Correct it, or run `unset LOCALSPEC_BACKEND`."


# --- the command line --------------------------------------------------------------------------


def test_any_option_and_any_knob_can_be_overridden() -> None:
    pairs = {"temperature": "0.5", "n_ctx": "4096", "port": "0", "stop": "END", "remember": "true"}
    assert override(Config(), pairs) == Config(
        engine=EngineConfig(n_ctx=4096),
        daemon=DaemonConfig(port=0),
        options=msgspec.structs.replace(Config().options, temperature=0.5, stop=("END",), remember=True),
    )


def test_an_override_leaves_the_rest_as_it_was() -> None:
    before = Config(model_dirs=("/m",), engine=EngineConfig(threads=3), options=Options(model="m", k=4))
    after = override(before, {"k": "5"})
    assert after == msgspec.structs.replace(before, options=Options(model="m", k=5))


def test_a_knob_may_be_named_with_its_table() -> None:
    assert override(Config(), {"engine.n_ctx": "7", "options.k": "3"}).engine.n_ctx == 7
    said = override(Config(), {"logit_bias": "[[300, 2.5]]", "stop": '["a", "b"]'}).options
    assert (said.logit_bias, said.stop) == (((300, 2.5),), ("a", "b"))
    assert override(Config(), {"stop": "[a"}).options.stop == ("[a",)


@pytest.mark.parametrize("key", ["engine.k", "options.port", "moon.k", "k.", "engine", "model_dirs"])
def test_a_knob_of_another_table_is_unknown(key: str) -> None:
    with pytest.raises(InvalidOptions, match="there is no option named"):
        override(Config(), {key: "1"})


@pytest.mark.parametrize(("key", "near"), [("temprature", "temperature"), ("nctx", "n_ctx")])
def test_an_unknown_override_is_refused_naming_the_nearest(key: str, near: str) -> None:
    with pytest.raises(InvalidOptions, match=f"no option named '{key}'; did you mean '{near}'"):
        override(Config(), {key: "1"})


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"k": "21"}, "--opt k takes a whole number from 1 to 20, not '21'"),
        ({"temperature": "warm"}, "--opt temperature takes a number from"),
        ({"n-ctx": "-1"}, "--opt n-ctx takes a whole number from 0"),
        ({"ngram_min": "5", "ngram_max": "2"}, "ngram_min is larger than"),
        ({"threshold": "0.3"}, "drafts are verified exactly"),
    ],
)
def test_an_override_out_of_range_is_refused(pairs: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptions, match=message):
        override(Config(), pairs)


# --- the schema --------------------------------------------------------------------------------


def knobs() -> list[tuple[str, str | None]]:
    """Every knob with the sentence under it."""
    found = []
    for struct in TABLES:
        (declared,) = ast.parse(inspect.getsource(struct)).body
        assert isinstance(declared, ast.ClassDef)
        for node, after in zip(declared.body, [*declared.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.append((node.target.id, sentence_of(after)))
    return found


def sentence_of(node: ast.stmt | None) -> str | None:
    match node:
        case ast.Expr(value=ast.Constant(value=str(sentence))):
            return sentence
    return None


def test_there_are_at_most_thirty_knobs() -> None:
    names = [name for struct in TABLES for name in struct.__struct_fields__]
    assert [name for name, _ in knobs()] == names
    assert sum(len(struct.__struct_fields__) for struct in TABLES if struct is not Config) <= 30


@pytest.mark.parametrize(("name", "sentence"), knobs())
def test_every_knob_is_described(name: str, sentence: str | None) -> None:
    assert sentence is not None and re.fullmatch(r"\S.{9,90}\S", sentence), name


def test_no_knob_has_the_name_of_another() -> None:
    names = [name for struct in (EngineConfig, DaemonConfig, Options) for name in struct.__struct_fields__]
    assert len(names) == len(set(names))  # or `--opt name=value` would be ambiguous


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
    assert config.models == {
        "qwen2.5-coder:7b": ModelConfig(
            engine={"n_ctx": 4096, "kv_bits": 8}, options=Options(temperature=0.2, draft="none")
        ),
        "bundled": ModelConfig(),
    }
    engine = config.models["qwen2.5-coder:7b"].over(EngineConfig(threads=3, n_ctx=7))
    assert engine == EngineConfig(threads=3, n_ctx=4096, kv_bits=8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[models."a"]\nnctx = 1',
            """in [models."a"]: there is no setting named 'nctx'; did you mean 'n_ctx'?""",
        ),
        ('[models."a"]\nport = 1', """in [models."a"]: there is no setting named 'port'"""),
        ('[models."a"]\nmodel = "b"', """in [models."a"]: there is no setting named 'model'"""),
        ('[models."a"]\nn_ctx = "1"', 'in [models."a"]: n_ctx takes a whole number from 0 to'),
        ('[models."a"]\nk = 21', 'in [models."a"]: k takes a whole number from 1 to 20, not 21'),
        ("models = 3", "models must be a table of settings, [models], not 3"),
        ("[models]\na = 3", "[models.a] is not a table of settings"),
        ("[models.qwen2.5-coder]\nk = 1", "[models.qwen2] is not a table of settings"),
        ('[models."a"]\nworkspace = "/b"', """in [models."a"]: there is no setting named 'workspace'"""),
    ],
)
def test_a_wrong_section_is_refused_by_its_name(file: Path, text: str, message: str) -> None:
    assert refusal(file, text).startswith(message)


def test_names_with_dots_want_quotes(file: Path) -> None:
    file.write_text("[models.qwen2.5-coder]\nk = 1")
    with pytest.raises(InvalidOptions) as caught:
        load_config()
    assert '[models."qwen2.5-coder:7b"]' in caught.value.remedy


def test_a_section_is_checked_with_what_it_goes_over(file: Path) -> None:
    file.write_text('[engine]\nngram_min = 3\n[models."a"]\nngram_max = 2')
    with pytest.raises(InvalidOptions, match=r'ngram_min is larger .* in \[models\."a"\]'):
        load_config()
    file.write_text('[models."a"]\nthreshold = 0.3')
    with pytest.raises(InvalidOptions, match=r'drafts are verified exactly in \[models\."a"\]'):
        load_config()
    file.write_text('[models."a"]\nthreshold = 0.3\n[options]\nverify = "threshold"')
    assert load_config().models["a"].options.threshold == 0.3


def test_what_a_command_overrides_no_section_takes_back(file: Path) -> None:
    file.write_text(SECTIONS)
    config = override(load_config(), {"n_ctx": "64"})
    section = config.models["qwen2.5-coder:7b"]
    assert section.over(config.engine) == EngineConfig(n_ctx=64, kv_bits=8)


# --- hostile files -----------------------------------------------------------------------------


def test_a_byte_order_mark_and_other_line_ends_do_no_harm(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf[engine]\r\nn_ctx = 4096\r\n")
    assert load_config().engine.n_ctx == 4096


def test_numbers_without_end_are_refused(file: Path) -> None:
    assert "is not valid TOML" in refusal(file, "engine.n_ctx = " + "9" * 10_000)
    assert refusal(file, "daemon.max_frame = " + "9" * 400).startswith("daemon.max_frame takes ")
    assert refusal(file, "daemon.hang_s = inf").startswith("daemon.hang_s takes ")


def test_a_file_that_has_no_end_is_refused(file: Path) -> None:
    file.write_bytes(b"#" * (LARGEST_FILE + 1))
    with pytest.raises(InvalidOptions, match="is larger than 262.1 kB"):
        load_config()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InvalidOptions, match="is not a regular file"):
        load_config()


def test_a_link_in_a_circle_is_refused_and_one_to_nowhere_is_no_file(file: Path) -> None:
    file.symlink_to(file)
    with pytest.raises(InvalidOptions, match="cannot be read"):
        load_config()
    file.unlink()
    file.symlink_to(file.with_name("nothing"))
    assert load_config() == Config()


@pytest.mark.parametrize(("value", "measures"), [("on", True), ("off", False)])
def test_measuring_while_idle_can_be_switched_off_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, measures: bool
) -> None:
    monkeypatch.setenv("LOCALSPEC_IDLE", value)
    assert load_config().engine.idle_measuring is measures


def test_another_value_of_localspec_idle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_IDLE", "no")
    with pytest.raises(InvalidOptions, match="LOCALSPEC_IDLE must be on or off, not 'no'"):
        load_config()

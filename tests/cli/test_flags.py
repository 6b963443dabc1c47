"""Flags as options: refusals and their messages, and the draft that goes with a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localspec.cli.flags import ModelFlags
from localspec.config import parse_config
from localspec.errors import ExitCode, InvalidOptions
from localspec.models.paths import absolute
from localspec.protocol.options import Options
from tests.cli.harness import Cli

SHORT = ("run", "--temperature", "0", "--max-tokens", "4")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"k": 50}, "-k takes a whole number from 1 to 20, not 50"),
        ({"top_p": 0.0}, "--top-p takes a number above 0 and at most 1, not 0.0"),
        ({"stop": ("",)}, '--stop takes a list of at most 64 strings of 1 to 256 characters, not [""]'),
        ({"opt": ("options.min_p=2",)}, "--opt options.min_p takes a number from 0 to 1, not '2'"),
        ({"opt": ("workspace=" + "x" * 5000,)}, "--opt workspace takes text of 0 to 4096 characters"),
    ],
)
def test_a_refusal_names_the_option_as_typed_and_what_it_takes(flags: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        ModelFlags(**flags).options()
    assert caught.value.message == sentence and caught.value.exit_code == ExitCode.USAGE


CONFIGURED = Options(model="~/models/big.gguf", draft="small")
HOME = Path.home()


@pytest.mark.parametrize(
    ("said", "base", "draft"),
    [
        (Options(model="other"), CONFIGURED, None),
        (Options(model="other", draft="mine"), CONFIGURED, "mine"),
        (Options(model=f"{HOME}/models/big.gguf"), CONFIGURED, "small"),
        (Options(model="/elsewhere/models/big.gguf"), CONFIGURED, None),
        (Options(model="/a/m\0.gguf"), Options(model="~\0/m.gguf", draft="small"), None),
        (Options(model="big"), CONFIGURED, "small"),
        (Options(temperature=0.0), CONFIGURED, "small"),
        (Options(model="other"), Options(model="big", draft="none"), "none"),
        # A draft alone is for whatever model there will be: LOCALSPEC_DRAFT=small localspec run -m other.
        (Options(model="other"), Options(draft="small"), "small"),
        (Options(model="other").over(Options(temperature=0.0)), CONFIGURED, None),
    ],
)
def test_a_draft_goes_with_the_model_named_beside_it(said: Options, base: Options, draft: str | None) -> None:
    merged = said.over(base)
    assert (merged.model, merged.draft) == (said.model or base.model, draft)


def test_a_draft_configured_without_a_model_goes_with_the_default_one() -> None:
    base = parse_config('options.draft = "small"', where="here").options
    assert Options(model="other").over(base).draft is None
    assert Options(model="auto").over(base).draft == Options().over(base).draft == "small"


def test_a_link_is_the_file_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link.gguf").symlink_to(tmp_path / "big.gguf")
    base = Options(model=f"{tmp_path}/link.gguf", draft="small")
    assert Options(model=f"{tmp_path}/big.gguf").over(base).draft == "small"


def test_a_folder_that_is_here_takes_no_models_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("stdlib-6m", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    root = tmp_path.resolve()
    assert [
        absolute(name) for name in ("stdlib-6m", "./stdlib-6m", "mine", "file", "other", "other.gguf")
    ] == [*("stdlib-6m", f"{root}/stdlib-6m", "mine", f"{root}/file", "other", f"{root}/other.gguf")]


@pytest.mark.parametrize("where", [(), ("--no-daemon",)], ids=["daemon", "alone"])
def test_an_unknown_backend_in_the_environment_is_named(cli: Cli, where: tuple[str, ...]) -> None:
    there = Cli(cli.home)
    there.environment["LOCALSPEC_BACKEND"] = "nonsense"
    for command in ((*SHORT, *where, "x"), ("memory", "prime", "/dev/null")):
        refused = there(*command)
        assert refused.returncode == 2
        assert "'nonsense'. Correct it, or run `unset LOCALSPEC_BACKEND`." in refused.stderr

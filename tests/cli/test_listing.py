"""``localspec models list`` and ``show``, on a home with a model of each kind."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.cli import completers
from localspec.errors import INSTALL_MLX
from localspec.models.catalogue import bundled_model
from tests.cli.harness import Cli, ended
from tests.models import directories, ggufs
from tests.models.disk import FLAT, LM_STUDIO, OLLAMA, Home, Toy


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Some models of other programs, one of them broken, and a store that cannot be read."""
    home = Home(tmp_path_factory.mktemp("person"))
    home.file(FLAT / "Toy-7B-Instruct-Q8_0.gguf", home.writer.content(Toy("Toy 7B", type="Q8_0")))
    home.file(FLAT / "Toy-7B-Instruct-Q4_0.gguf", home.writer.content(Toy("Toy 7B")))
    directories.write(home.root / LM_STUDIO / "me", name="Toy-1B-4bit")
    home.ollama("missing", "7b", None)
    (home.root / ".cache" / "huggingface").mkdir(parents=True)
    (home.root / ".cache" / "huggingface" / "hub").symlink_to("hub")
    return home


@pytest.fixture
def person(cli: Cli, home: Home) -> Iterator[Cli]:
    """The command, run by a user who has these models, without a daemon."""
    cli("daemon", "stop")
    before = dict(cli.environment)
    cli.environment.update(HOME=str(home.root), OLLAMA_MODELS=str(home.root / OLLAMA))
    yield cli
    cli.environment.clear()
    cli.environment.update(before)


def test_a_list_that_is_piped_has_a_line_for_each_model(person: Cli) -> None:
    done = person("models", "list")
    header, *lines = done.stdout.splitlines()
    columns = ["name", "size", "type", "params", "context", "fill-in", "state"]
    assert header.split() == columns
    names = [line.split()[0] for line in lines]
    assert names == ["toy:7b-q4_0", "toy:7b-q8_0", "toy:1b", "missing:7b", "stdlib-6m", "stdlib-1m"]
    assert "its download is incomplete" in lines[3] and "\x1b" not in done.stdout
    assert "Hugging Face: " in done.stderr and "Too many levels" in done.stderr


def test_the_list_as_json_has_models_and_stores(person: Cli) -> None:
    done = json.loads(person("models", "list", "--json").stdout)
    assert [store["name"] for store in done["stores"]] == ["huggingface", "llama.cpp", "lmstudio", "ollama"]
    assert "cannot be read" in done["stores"][0]["problem"] and done["stores"][0]["remedy"]
    toy = done["models"][2]
    assert (toy["id"], toy["store"]) == ("Toy-7B-Instruct-Q4_0", "llama.cpp")
    assert toy["names"] == ["toy:7b-q4_0", "Toy-7B-Instruct-Q4_0"]


def test_on_a_terminal_a_long_reason_goes_on_below(person: Cli) -> None:
    lines = on_terminal(person, 120, TERM="xterm")
    assert "llama.cpp" in lines and "its download is incomplete" in " ".join(lines.split())
    assert "Hugging Face: " in lines
    assert "toy:7b-q4_0" in on_terminal(person, 64, TERM="xterm")


def facts(text: str) -> dict[str, str]:
    return {line[:13].strip(): line[13:].strip() for line in text.splitlines()}


def test_all_of_a_model_is_shown(person: Cli, home: Home) -> None:
    path = home.root / FLAT / "Toy-7B-Instruct-Q8_0.gguf"
    for name in ("toy:7b-q8_0", "toy:7b-q8", str(path)):
        seen = facts(person("models", "show", name).stdout)
        assert seen["names"] == "toy:7b-q8_0, Toy-7B-Instruct-Q8_0" and seen["path"] == str(path)
    assert (seen["store"], seen["title"], seen["architecture"]) == ("llama.cpp", "Toy 7B", "llama")
    assert (seen["context"], seen["chat template"]) == ("2048 tokens", "yes")
    assert len(seen["vocabulary"]) == 16
    assert "of 2048 tokens (weights 554." in seen["memory"]
    assert ", KV cache " in seen["memory"] and seen["fill-in"] in ("yes", "no")


def test_the_default_model_is_shown_as_such(person: Cli) -> None:
    default = {
        name: facts(person("models", "show", name).stdout).get("default") for name in ("bundled", "toy:7b")
    }
    assert default == {"bundled": "yes: it answers where no model is named", "toy:7b": None}


def test_a_model_is_shown_as_json(person: Cli) -> None:
    done = json.loads(person("models", "show", "bundled", "--json").stdout)
    assert done["model"]["names"] == ["stdlib-6m", "bundled"]
    memory = done["memory"]
    assert memory["total"] == memory["weights"] + memory["cells"] + memory["overhead"] < memory["free"]
    assert memory["n_ctx"] == 2048 and memory["weights"] == bundled_model("stdlib-6m").stat().st_size


def test_of_a_name_of_several_quantisations_the_others_are_said(person: Cli) -> None:
    seen = facts(person("models", "show", "toy:7b").stdout)
    assert seen["names"].startswith("toy:7b-q4_0, ")
    assert seen["others"] == "toy:7b-q8_0 (gguf): give the full name to choose one"
    done = json.loads(person("models", "show", "TOY:7B", "--json").stdout)
    assert [other["names"][0] for other in done["others"]] == ["toy:7b-q8_0"]
    for name in ("toy:7b-q4_0", "toy-7b-instruct-q4_0"):
        assert "others" not in facts(person("models", "show", name).stdout)


def test_of_a_broken_model_the_remedy_is_shown(person: Cli, tmp_path: Path) -> None:
    seen = facts(person("models", "show", "missing:7b").stdout)
    assert "its download is incomplete" in seen["problem"]
    assert seen["remedy"] == "Pull it again: `ollama pull missing:7b`."
    path = ggufs.write(tmp_path, ggufs.small()[:-1])
    done = json.loads(person("models", "show", str(path), "--json").stdout)
    assert "truncated" in done["model"]["problem"] and done["memory"] is None and "store" not in done


@pytest.mark.parametrize(
    ("name", "code"), [("toy", "model_ambiguous"), ("t", "model_ambiguous"), ("unknown", "model_not_found")]
)
def test_a_name_of_several_or_of_none_is_an_error(person: Cli, name: str, code: str) -> None:
    done = person("models", "show", name, "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["error"]["code"] == code


@pytest.mark.slow
def test_a_loaded_model_is_called_as_the_list_calls_it(person: Cli, tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = home.file(FLAT / "jan-2b.gguf", home.writer.content(Toy("Jan")))
    person.environment["HOME"] = str(tmp_path)
    run = ("run", "--max-tokens", "2", "--stats", "-m", str(path), "hello")
    assert "jan:2b answers" in person(*run).stderr
    assert "model: jan:2b on llama_cpp" in person("daemon", "status").stdout
    assert "jan:2b is loaded on llama_cpp" in person("models", "load", "-m", "jan:2b").stdout
    assert json.loads(person("models", "show", "jan:2b", "--json").stdout)["model"]["loaded"]
    assert person("models", "pair", str(path)).stdout.splitlines()[-1].startswith("jan:2b: ")
    assert person("models", "unload", str(path)).stderr == "Unloaded jan:2b.\n"
    person("daemon", "stop")


def test_where_mlx_is_missing_its_models_wait_for_it(person: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx_lm", None)  # as if it were not installed
    listed = person("models", "list")
    states = [line.split()[8:] for line in listed.stdout.splitlines() if line.startswith("toy")]
    assert states == [["llama.cpp"], ["llama.cpp"], ["lmstudio,", "needs", "MLX"]]
    assert listed.stderr.endswith(f"\nneeds MLX: {INSTALL_MLX}\n")
    assert facts(person("models", "show", "toy:1b").stdout)["state"] == f"needs MLX. {INSTALL_MLX}"


@pytest.mark.slow
def test_a_narrow_terminal_shortens_nothing(person: Cli, tmp_path: Path) -> None:
    """A long name goes on below; what there is to compare stands in one line."""
    home = Home(tmp_path)
    name = "-".join(["a-model-with-a-long-name"] * 4)
    content = home.writer.content(Toy("x"))
    home.file(FLAT / f"{name}.gguf", content)
    home.file(LM_STUDIO / "copy.gguf", content)
    (tmp_path / LM_STUDIO / "link.gguf").symlink_to(tmp_path / FLAT / f"{name}.gguf")
    for columns in (40, 80):
        lines = on_terminal(person, columns, HOME=str(tmp_path), TERM="xterm").splitlines()
        place = next(place for place, line in enumerate(lines) if line.startswith("a-m"))
        assert "  418.2 kB  Q4_0   0.3 M     2048  yes      " in lines[place]
        below = (line for line in lines[place:] if line[:1].strip())
        assert "".join(line.split()[0] for line in below).startswith(name)


def on_terminal(person: Cli, columns: int, **environment: str) -> str:
    """Return the list of models as a terminal of this width shows it, without colours."""
    variables = {**person.environment, **environment, "COLUMNS": str(columns)}
    terminal = person.terminal("models", "list", env=variables, dimensions=(50, columns))
    ended(terminal)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.before or "")


def test_a_broken_model_is_offered_to_be_shown_alone(person: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "LOCALSPEC_HOME", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, person.environment[name])
    unused: Any = None
    usable, all_names = completers.models(unused), completers.complete_models(unused)
    assert {"toy:7b-q4_0", "bundled"} <= set(usable) and set(all_names) - set(usable) == {"missing:7b"}

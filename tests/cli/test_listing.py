"""``localspec models list`` and ``show``, on a home with a model of each kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from localspec.cli.listing import count, size
from localspec.models.catalogue import bundled_model
from tests.cli.harness import Cli
from tests.models import directories, ggufs
from tests.models.disk import FLAT, LM_STUDIO, OLLAMA, Home, Toy
from tests.waiting import DEADLINE_S


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
    """The command, run by somebody who has these models, without a daemon."""
    cli("daemon", "stop")
    before = dict(cli.environment)
    cli.environment.update(HOME=str(home.root), OLLAMA_MODELS=str(home.root / OLLAMA))
    yield cli
    cli.environment.clear()
    cli.environment.update(before)


def test_a_list_that_is_piped_has_a_line_for_each_model(person: Cli) -> None:
    done = person("models", "list")
    header, *lines = done.stdout.splitlines()
    assert header.split() == [
        "name",
        "format",
        "size",
        "type",
        "weights",
        "context",
        "gaps",
        "store",
        "state",
    ]
    names = [line.split()[0] for line in lines]
    bundled = ["stdlib-6m", "stdlib-1m"] * 2
    assert names == [*bundled, "toy:7b-q4_0", "toy:7b-q8_0", "toy:1b", "missing:7b"]
    assert "its download is incomplete" in lines[-1] and "\x1b" not in done.stdout
    assert "Hugging Face: " in done.stderr and "Too many levels" in done.stderr


def test_the_list_as_json_has_models_and_stores(person: Cli) -> None:
    done = json.loads(person("models", "list", "--json").stdout)
    assert [store["name"] for store in done["stores"]] == ["huggingface", "llama.cpp", "lmstudio", "ollama"]
    assert "cannot be read" in done["stores"][0]["problem"] and done["stores"][0]["remedy"]
    toy = done["models"][4]
    assert (toy["id"], toy["store"]) == ("Toy-7B-Instruct-Q4_0", "llama.cpp")
    assert toy["names"] == ["toy:7b-q4_0", "Toy-7B-Instruct-Q4_0"]


def test_the_daemon_lists_what_the_command_does(person: Cli) -> None:
    alone = json.loads(person("models", "list", "--json").stdout)
    assert person("daemon", "start").returncode == 0
    assert json.loads(person("models", "list", "--json").stdout) == alone
    person("daemon", "stop")


def test_on_a_terminal_there_is_a_table_for_each_store(person: Cli) -> None:
    command, *arguments = (*person.command, "models", "list")
    terminal = pexpect.spawn(
        command,
        arguments,
        env={**person.environment, "TERM": "dumb", "COLUMNS": "120"},
        timeout=DEADLINE_S,
        encoding="utf-8",
        dimensions=(50, 120),
    )
    for expected in (
        "Bundled with localspec",
        "llama.cpp  ~/.cache/llama.cpp",
        "toy:7b-q4_0 ",
        "LM Studio  ~",
    ):
        terminal.expect_exact(expected)
    terminal.expect("(?s)missing:7b.*its download is incomplete:.*~/.ollama")
    terminal.expect("Hugging Face: .*cannot be read")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def facts(text: str) -> dict[str, str]:
    return {line[:13].strip(): line[13:].strip() for line in text.splitlines()}


def test_all_of_a_model_is_shown(person: Cli, home: Home) -> None:
    path = home.root / FLAT / "Toy-7B-Instruct-Q8_0.gguf"
    for name in ("toy:7b-q8_0", "toy:7b-q8", str(path)):
        told = facts(person("models", "show", name).stdout)
        assert told["names"] == "toy:7b-q8_0, Toy-7B-Instruct-Q8_0" and told["path"] == str(path)
    assert (told["store"], told["title"], told["architecture"]) == ("llama.cpp", "Toy 7B", "llama")
    assert (told["context"], told["chat template"]) == ("2048 tokens", "yes")
    assert len(told["vocab_fp"]) == len(told["tokenizer_fp"]) == 16
    assert "at least with 2048 tokens of context (weights 0." in told["memory"]


def test_a_model_is_shown_as_json(person: Cli) -> None:
    done = json.loads(person("models", "show", "bundled", "--json").stdout)
    assert done["model"]["names"] == ["stdlib-6m", "bundled"]
    memory = done["memory"]
    assert memory["total"] == memory["weights"] + memory["cells"] + memory["overhead"] < memory["free"]
    assert memory["n_ctx"] == 2048 and memory["weights"] == bundled_model("stdlib-6m").stat().st_size


def test_of_a_broken_model_the_remedy_is_shown(person: Cli, tmp_path: Path) -> None:
    told = facts(person("models", "show", "missing:7b").stdout)
    assert "its download is incomplete" in told["problem"] and told["remedy"] == "Pull it again with Ollama."
    path = ggufs.write(tmp_path, ggufs.small()[:-1])
    done = json.loads(person("models", "show", str(path), "--json").stdout)
    assert "truncated" in done["model"]["problem"] and done["memory"] is None and "store" not in done


@pytest.mark.parametrize(
    ("name", "code"),
    [("toy", "model_ambiguous"), ("toy:7b", "model_ambiguous"), ("nobody", "model_not_found")],
)
def test_a_name_of_several_or_of_none_is_an_error(person: Cli, name: str, code: str) -> None:
    done = person("models", "show", name, "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["error"]["code"] == code


def test_an_answer_comes_from_another_programs_model(person: Cli) -> None:
    run = ("run", "--no-daemon", "--raw", "--max-tokens", "2", "--temperature", "0", "--json", "-m")
    done = json.loads(person(*run, "toy:7b-q8", "hello").stdout)
    assert done["model"] == "Toy-7B-Instruct-Q8_0" and done["completion_tokens"] == 2


def test_a_folder_of_a_models_name_takes_no_models_place(person: Cli, tmp_path: Path) -> None:
    (tmp_path / "Toy-7B-Instruct-Q8_0").mkdir()
    done = person("models", "show", "Toy-7B-Instruct-Q8_0", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["model"]["names"][0] == "toy:7b-q8_0"


def test_sizes_and_counts_are_said_as_people_say_them() -> None:
    assert (size(13_300_000), size(4_700_000_000)) == ("13.3 MB", "4.7 GB")
    assert (count(6_500_000), count(7_615_616_512), count(None)) == ("6.5 M", "7.6 B", "-")

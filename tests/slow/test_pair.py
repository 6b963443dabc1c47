"""The real command on models with a real vocabulary, paired by themselves, or refused."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.harness import CONFIG, Cli
from tests.real_vocabularies import random_model

pytestmark = pytest.mark.slow

RUN = ("run", "--temperature", "0", "--max-tokens", "8", "--raw")


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    """A home whose models are a target, two drafts of its vocabulary, and what is no draft for it."""
    home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    command = Cli(home)
    models = home / "models"
    models.mkdir()
    (home / "config" / "config.toml").write_text(f'model_dirs = ["{models}"]\n{CONFIG}')
    target = random_model(models / "target.gguf", "qwen2", width=192)
    random_model(models / "draft.gguf", "qwen2", width=32)
    random_model(models / "llama.gguf", "llama-bpe", width=32)
    random_model(models / "renamed.gguf", "qwen2", width=32, renamed={1000: "renamed"})
    (models / "cut.gguf").write_bytes(target.read_bytes()[: 20 << 20])
    yield command
    command("daemon", "stop")
    shutil.rmtree(home, ignore_errors=True)  # a daemon that ends takes its socket away itself


def test_the_table_tells_every_reason(cli: Cli) -> None:
    found = cli.json("models", "pair", "target")
    assert found["draft"] == "draft:5m"
    assert found["reason"].startswith("draft:5m drafts: same vocabulary, same family, 6 times smaller")
    reasons = {each["id"]: each["reason"] for each in found["candidates"] if each["format"] == "gguf"}
    assert "vocabulary has 128256 tokens, the target's 151936" in reasons["llama"]
    assert "token 1000 is b'renamed', the target's is b'" in reasons["renamed"]
    assert "truncated" in reasons["cut"]
    assert [each["id"] for each in found["candidates"] if each["chosen"]] == ["draft"]
    small = cli.json("models", "pair", "target", "--n-ctx", "256")["candidates"][0]["needs_bytes"]
    assert small < found["candidates"][0]["needs_bytes"]


def test_a_target_is_paired_by_itself(cli: Cli) -> None:
    texts = set()
    for flags in (["auto"], ["none"], ["draft"], ["auto", "--no-daemon"]):
        done = cli.process(*RUN, "-m", "target", "--json", "def f(", "--draft", *flags)
        result = json.loads(done.stdout)
        assert result["draft"] == (None if flags == ["none"] else "draft:5m")
        texts.add(result["text"])
    assert len(texts) == 1
    # One worker with the draft, whether it was named or chosen, and one without.
    assert len(cli.status()["models"]) == 2


def test_it_really_drafts(cli: Cli) -> None:
    done = cli.process(*RUN, "-m", "target", "--proposer", "draft", "-k", "4", "--json", "def f(")
    stats = json.loads(done.stdout)["stats"]
    assert stats["proposers"]["draft"]["drafted"] > 0


@pytest.mark.parametrize(
    ("draft", "told"),
    [
        ("renamed", "token 1000 is b'renamed', the target's is b'"),
        ("llama", "vocabulary has 128256 tokens, the target's 151936; its token "),
    ],
)
@pytest.mark.parametrize("how", [(), ("--no-daemon",)])
def test_a_pair_that_cannot_be_is_refused_with_the_first_token_that_differs(
    cli: Cli, draft: str, told: str, how: tuple[str, ...]
) -> None:
    done = cli.process(*RUN, *how, "-m", "target", "--draft", draft, "def f(")
    assert done.returncode == 1 and told in done.stderr and not done.stdout
    assert "--draft none" in done.stderr


def test_a_target_without_a_draft_is_answered_with_the_reason(cli: Cli) -> None:
    done = cli.process("run", "--stats", "--max-tokens", "4", "-m", "llama", "hello")
    assert done.returncode == 0
    assert (
        "no draft model: no model on this disk is smaller and has the same vocabulary; prompt lookup"
        in done.stderr
    )

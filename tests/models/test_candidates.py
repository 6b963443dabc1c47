"""The choice of a draft model out of all models on a disk, and the reasons against the others."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.errors import ModelError
from localspec.models.fit import needs_of
from localspec.models.model import model_at
from localspec.models.pair import Candidate, Room, auto_draft, choose_draft, judge_candidates, without
from localspec.models.records import PairResults
from localspec.protocol.requests import EngineConfig
from localspec.wording import size
from tests.mlx_pair import mlx_model
from tests.models.ggufs import DRAFT, TARGET, gguf, string, tensor, uint32, vocabulary, write
from tests.models.test_tried import note

WORDS = [f"w{n}" for n in range(400)]
NONE = "no model on this disk is smaller and has the same vocabulary"
CONFIG = EngineConfig(n_ctx=256, parallel=1)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setattr("localspec.models.index.FRESH_S", 0.0)


def model(
    folder: Path, name: str, parameters: int, *, words: Sequence[str] = WORDS, family: str = "toy"
) -> Path:
    """A GGUF file of so many weights."""
    values = [string("general.architecture", family), uint32(f"{family}.context_length", 64)]
    return write(
        folder,
        gguf([*values, *vocabulary(words)], [tensor("weight", (parameters,))], b"\0" * (4 * parameters)),
        f"{name}.gguf",
    )


def judge(target: Path, room: Room | None = None) -> list[Candidate]:
    """The models beside the target, in its directory."""
    found = judge_candidates(model_at(target), (str(target.parent),), room or Room(CONFIG))
    return [each for each in found if each.model.path.is_relative_to(target.parent)]


def draft(target: Path, room: Room | None = None) -> tuple[str | None, str]:
    model, why = auto_draft(model_at(target), (str(target.parent),), room or Room(CONFIG))
    return model.path.stem if model else None, why


def free(n: int) -> Room:
    return Room(CONFIG, lambda target: n)


def test_the_bundled_pair_stays_as_it_is(tmp_path: Path) -> None:
    shutil.copy(DRAFT, tmp_path / "better.gguf")
    found = auto_draft(model_at(TARGET), (str(tmp_path),), Room(CONFIG))
    assert found == (model_at(DRAFT), "the bundled pair")


def test_a_smaller_model_of_the_same_vocabulary_drafts(tmp_path: Path) -> None:
    target = model(tmp_path, "target", 10_000)
    model(tmp_path, "small", 1_000)
    assert draft(target) == ("small", "small drafts: same vocabulary, same family, 10 times smaller")
    (candidate,) = judge(target)
    assert candidate.verdict == "exact" and candidate.helps and candidate.same_family
    assert candidate.needs == needs_of(model_at(target), model_at(tmp_path / "small.gguf"), CONFIG).total


def test_a_model_beside_the_target_drafts_though_it_is_in_no_store(tmp_path: Path) -> None:
    target = model(tmp_path, "target", 10_000)
    small = model(tmp_path, "small", 1_000)
    (tmp_path / "other.gguf").write_bytes(b"broken")
    found, why = auto_draft(model_at(target), (), Room(CONFIG))
    assert (found, why) == (model_at(small), "small drafts: same vocabulary, same family, 10 times smaller")


def test_a_few_more_tokens_are_compatible_and_cost_the_precedence(tmp_path: Path) -> None:
    target = model(tmp_path, "target", 10_000)
    model(tmp_path, "a-more", 1_000, words=[*WORDS, "more"])
    model(tmp_path, "b-same", 1_000)
    assert [(each.model.description.id, each.verdict) for each in judge(target)] == [
        ("b-same", "exact"),
        ("a-more", "compatible"),
    ]
    (tmp_path / "b-same.gguf").unlink()
    assert draft(target) == (
        "a-more",
        "a-more drafts: compatible vocabularies, same family, 10 times smaller",
    )


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"parameters": 1_000}, {"parameters": 1_000, "family": "other"}),
        ({"parameters": 200}, {"parameters": 1_000, "family": "other"}),
        ({"parameters": 1_000}, {"parameters": 200}),
        ({"parameters": 1_000}, {"parameters": 3_000}),
        ({"parameters": 3_000}, {"parameters": 20}),
        ({"parameters": 800}, {"parameters": 1_900}),
    ],
)
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_the_family_comes_first_then_five_to_thirty_times_smaller(
    tmp_path: Path, better: dict[str, int], worse: dict[str, int], names: tuple[str, str]
) -> None:
    target = model(tmp_path, "target", 10_000)
    for name, what in zip(names, (better, worse), strict=True):
        model(tmp_path, name, **what)  # type: ignore[arg-type]
    assert [each.model.description.id for each in judge(target)] == list(names)
    assert draft(target)[0] == names[0]


@pytest.mark.parametrize(
    ("parameters", "words", "verdict", "sentence"),
    [
        (10_000, WORDS, "refused", "it is not smaller: 0.0 M parameters, the target 0.0 M parameters"),
        (20_000, WORDS[:200], "refused", "it is not smaller"),
        (8_000, WORDS, "exact", "it is only 1.25 times smaller"),
        (1_000, WORDS[:200], "refused", "the draft model's vocabulary has 200 tokens, the target's 400"),
        (
            1_000,
            [*WORDS[:9], "x", *WORDS[10:]],
            "refused",
            "the draft model's token 9 is b'x', the target's is",
        ),
        (1_000, [], "refused", "the model cannot generate text: it has no vocabulary"),
    ],
)
def test_why_a_model_does_not_draft(
    tmp_path: Path, parameters: int, words: list[str], verdict: str, sentence: str
) -> None:
    target = model(tmp_path, "target", 10_000)
    model(tmp_path, "other", parameters, words=words)
    (candidate,) = judge(target)
    assert candidate.verdict == verdict and not candidate.helps
    assert candidate.reason.startswith(sentence)
    nearly = "the best one, other, is only 1.25 times smaller" if parameters == 8_000 else NONE
    assert draft(target) == (None, without(nearly))
    everyone = judge_candidates(model_at(target), (str(tmp_path),), Room(CONFIG))
    assert choose_draft(model_at(target), everyone) == (None, without(nearly))


def test_a_file_that_vanishes_meanwhile_is_named_and_passed_over(tmp_path: Path) -> None:
    target = model(tmp_path, "target", 10_000)
    for name in ("a", "b"):
        model(tmp_path, name, 1_000)
    found = judge_candidates(model_at(target), (str(tmp_path),), Room(CONFIG))
    assert next(found).model.description.id == "a"
    (tmp_path / "b.gguf").unlink()
    gone = next(found)
    assert (gone.verdict, gone.helps) == ("refused", False) and "no file" in gone.reason


def test_what_does_not_fit_in_memory_is_left_out_for_what_does(tmp_path: Path) -> None:
    target = model(tmp_path, "target", 8 << 20)
    large, small = model(tmp_path, "large", 1 << 20), model(tmp_path, "small", 1 << 14)
    needs = {path: needs_of(model_at(target), model_at(path), CONFIG).total for path in (large, small)}
    assert draft(target, free(needs[large]))[0] == "large"
    assert draft(target, free(needs[large] - 1))[0] == "small"
    name, why = draft(target, free(needs[small] - 1))
    sentence = f"both need {size(needs[large])} of memory, {size(needs[small] - 1)} are free"
    assert name is None and why == without(f"the best one, large:1m, does not fit: {sentence}")
    assert draft(target, Room(CONFIG))[0] == "large"


def test_a_draft_that_was_of_no_use_is_not_chosen_again(tmp_path: Path) -> None:
    target = model(tmp_path, "target", 10_000)
    first, second = model(tmp_path, "first", 900), model(tmp_path, "second", 200)
    assert draft(target)[0] == "first"
    note(target, first, PairResults(200, 20, 1.0))
    assert draft(target)[0] == "second"
    assert (
        judge(target)[0].reason
        == "it does not make this target faster: 10% of 200 drafted tokens were accepted"
    )
    note(target, second, PairResults(200, 20, 1.0))
    why = "the best one, first, does not make this target faster: 10% of 200 drafted tokens were accepted"
    assert draft(target) == (None, without(why))


def test_a_draft_that_was_of_use_comes_first_whatever_its_size(tmp_path: Path) -> None:
    target = model(tmp_path, "target", 10_000)
    model(tmp_path, "likely", 900)
    half, most = model(tmp_path, "half", 4_900), model(tmp_path, "most", 8_000)
    note(target, half, PairResults(200, 150, 1.3))
    measured = "75% of 200 drafted tokens were accepted, 1.30 times as fast"
    why = f"half drafts: same vocabulary, same family, 2.04 times smaller; {measured}"
    assert draft(target) == ("half", why)
    note(target, most, PairResults(200, 190, 1.4))
    assert [each.model.description.id for each in judge(target)] == ["most", "half", "likely"]


def test_a_target_that_cannot_be_read_is_paired_with_none(tmp_path: Path) -> None:
    target = write(tmp_path, b"no model at all", "target.gguf")
    with pytest.raises(ModelError):
        judge(target)
    name, why = draft(target)
    assert name is None and why.startswith("no draft model: ") and "GGUF" in why


def test_the_same_file_under_another_name_is_no_candidate(tmp_path: Path) -> None:
    target = model(tmp_path, "target", 10_000)
    (tmp_path / "link.gguf").symlink_to(target)
    assert judge(target) == []


def test_directories_are_paired_with_directories(tmp_path: Path) -> None:
    target = shutil.copytree(mlx_model("stdlib-6m"), tmp_path / "target")
    draft = shutil.copytree(mlx_model("stdlib-1m"), tmp_path / "draft")
    assert auto_draft(model_at(target), (str(tmp_path),), Room(CONFIG)) == (
        model_at(draft),
        "draft:1m drafts: same vocabulary, same family, 4.52 times smaller",
    )
    found = {each.model.path: each for each in judge_candidates(model_at(target), (), Room(CONFIG))}
    assert found[DRAFT].reason == "it is a GGUF file, the target an MLX directory"

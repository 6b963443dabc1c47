"""Lines on the models on a disk, on the model that answers, and on names in the configuration."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from localspec.config import parse_config
from localspec.doctor import models
from localspec.errors import TokenizerMismatch
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.disk import Disk
from localspec.models.library import list_models
from localspec.models.model import model_at
from localspec.models.pair import choose
from localspec.protocol.messages import ModelDescription, StoreDescription
from tests.models import ggufs
from tests.models.finding import named, pair_of


def model(name: str, store: str = "ollama", problem: str | None = None, **facts: object) -> ModelDescription:
    plain = {"id": name, "path": f"/{name}.gguf", "format": "gguf", "backend": "llama_cpp", "size": 100}
    return msgspec.convert({**plain, "store": store, "problem": problem, **facts}, ModelDescription)


def disk_of(*found: ModelDescription) -> Disk:
    return Disk([named(each, Path(each.path), None) for each in found], [])


def test_without_any_models_it_is_told_how_to_get_some() -> None:
    (found,) = models.found(disk_of(*list_models()[:2]))
    assert found == models.NO_MODELS and found.level == "ok"


def test_models_are_counted_by_their_stores() -> None:
    disk = disk_of(model("a"), model("b", "jan"), model("c"))
    (found,) = models.found(disk)
    assert found.level == "ok"
    assert found.sentence == "3 models beside the bundled pair: 2 in ollama, 1 in jan."


def test_what_cannot_be_used_is_a_warning() -> None:
    disk = disk_of(model("a"), *(model(f"b{n}", problem="it is empty") for n in range(5)))
    (found,) = models.found(disk)
    assert found.level == "warning" and found.sentence.count("it is empty") == 3
    assert "6 models" in found.sentence and "5 cannot be used: b0 (it is empty); b1" in found.sentence
    assert found.sentence.endswith("; and 2 more.") and "`localspec models list`" in str(found.remedy)


def test_a_store_that_cannot_be_read_is_a_warning_with_its_remedy() -> None:
    good = StoreDescription(name="jan", path="/j")
    bad = StoreDescription(name="ollama", path="/o", problem="/o cannot be read: No", remedy="Ask for it.")
    first, second = models.found(Disk([], [good, bad]))
    assert first.level == "ok" and second.level == "warning"
    assert (second.sentence, second.remedy) == ("Models of ollama: /o cannot be read: No.", "Ask for it.")


def test_a_directory_of_models(tmp_path: Path) -> None:
    inside = {"store": "model_dirs", "path": str(tmp_path / "a.gguf")}
    disk = disk_of(model("a", **inside), model("b", also=[str(tmp_path / "b.gguf")]), model("c"))
    assert models.model_dir(tmp_path, disk).sentence == f"{tmp_path} has 2 models."
    assert models.model_dir(tmp_path, disk_of(model("c"))).level == "warning"
    gone = models.model_dir(tmp_path / "go ne", disk)
    assert "does not exist" in gone.sentence and f"mkdir -p '{tmp_path}/go ne'" in str(gone.remedy)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name, what in (
        ("file", "is not a directory"),
        ("file/inside", "cannot be read: Not a directory"),
        ("link", "does not exist"),
        ("x" * 300, "cannot be read: File name too long"),
        ("nul\0", "cannot be read: its name is not valid"),
    ):
        wrong = models.model_dir(tmp_path / name, disk)
        # mkdir makes none of these.
        assert what in wrong.sentence and str(wrong.remedy).startswith("Correct model_dirs with")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is closed to this user")
def test_a_directory_that_cannot_be_read(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    found = models.model_dir(tmp_path, Disk([], []))
    tmp_path.chmod(0o700)
    assert found.level == "warning" and "chmod u+rx" in str(found.remedy)


# Names.


def told_of(text: dict[str, object]) -> list[str]:
    found = list(models.unknown_sections(parse_config(text, where="the test")))
    assert all(each.level == "warning" and each.remedy == models.EDIT for each in found)
    return [each.sentence for each in found]


def test_names_that_lead_somewhere_are_nothing_to_tell() -> None:
    assert (
        told_of(
            {
                "models": {"bundled": {"k": 1, "draft": "none"}, "stdlib-1m": {"n_ctx": 64}},
            }
        )
        == []
    )


def test_names_that_lead_nowhere_are_told() -> None:
    unknown, in_a_model = told_of(
        {
            "models": {"budnled": {"k": 1}, "bundled": {"draft": "stdlib-1n"}},
        }
    )
    assert (
        '"budnled"' in unknown
        and "matches no model" in unknown
        and unknown.endswith("did you mean 'bundled'?")
    )
    assert "draft in" in in_a_model and '"bundled"' in in_a_model


def test_a_name_of_several_models_is_told(tmp_path: Path) -> None:
    for name in ("abc-1b-q4_0", "abc-2b-q4_0"):
        ggufs.write(tmp_path, ggufs.small(), f"{name}.gguf")
    (told,) = told_of({"model_dirs": [str(tmp_path)], "models": {"abc": {"k": 1}}})
    assert "'abc' is ambiguous: it may be abc:1b, abc:2b" in told


# What answers.


def test_what_answers_may_be_broken_or_without_a_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCALSPEC_MODEL", raising=False)
    choice = choose("bundled", "none", backend="llama_cpp")
    assert models.default(choice, True).level == "ok"
    without = models.default(choice, False)
    assert without.level == "problem" and "Repair llama_cpp" in str(without.remedy)
    broken = models.default(replace(choice, target=model_at(ggufs.write(tmp_path, b"GGUF"))), True)
    assert broken.level == "problem" and "`localspec config set model NAME`" in str(broken.remedy)


def test_what_mends_a_name_depends_on_who_said_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCALSPEC_DRAFT", raising=False)
    assert "`localspec config set draft auto`" in models.mend("draft")
    monkeypatch.setenv("LOCALSPEC_DRAFT", "x")
    assert models.mend("draft").startswith("Correct LOCALSPEC_DRAFT;")


def test_the_draft_is_told_with_its_reason() -> None:
    chosen = choose("bundled", "auto", backend="llama_cpp")
    told = models.pairing(chosen, list_models()[:2]).sentence
    assert told == "stdlib-1m drafts for stdlib-6m, chosen by auto: the bundled pair."
    asked = models.pairing(choose("bundled", "stdlib-1m", backend="llama_cpp"), [])
    assert asked.sentence == "stdlib-1m drafts for stdlib-6m, as configured."
    none = models.pairing(choose("bundled", "none", backend="llama_cpp"), [])
    assert none.sentence.startswith("stdlib-6m: no draft model was requested")


def test_a_draft_that_was_asked_for_and_is_none_is_refused(tmp_path: Path) -> None:
    other = ggufs.write(tmp_path, ggufs.small())
    target = bundled_model(BUNDLED_TARGET)
    with pytest.raises(TokenizerMismatch):
        models.pairing(pair_of(target, other, "", "", asked=True), [])


def test_how_many_of_the_others_have_a_draft() -> None:
    large = model("large", vocab_fp="1", parameters=1000)
    others = [
        model("half", vocab_fp="1", parameters=500),
        model("nearly", vocab_fp="1", parameters=600),
        model("another", vocab_fp="2", parameters=10),
        model("format", vocab_fp="2", format="mlx", size=50),
        model("sized", vocab_fp="2", format="mlx", size=500),
        model("none"),
    ]
    assert models.with_drafts([large, *others]) == 2
    choice = choose("bundled", "auto", backend="llama_cpp")
    broken = model("broken", vocab_fp="1", parameters=1, problem="it is empty")
    told = models.pairing(choice, [large, *others, broken]).sentence
    assert "2 of 7 other usable models have a smaller one" in told


def test_the_bundled_pair_is_a_pair_by_this_count_as_well() -> None:
    pair = [each for each in list_models() if each.id in (BUNDLED_TARGET, BUNDLED_DRAFT)]
    assert models.with_drafts(pair) == 1

"""The registry of proposers, and what follows from one registration."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.engine.learning import Learning
from localspec.engine.round import REMEDIES, EngineParts, fallback_of, make, make_all
from localspec.protocol.options import AUTO, GRAMMAR, KINDS, LOOKUP, NONE, Options, choices, meanings
from localspec.protocol.requests import EngineConfig
from tests.toy import ToyBackend
from tests.toys import scripted

ROOT = Path(__file__).parents[1]


def parts(*, draft: bool = False) -> EngineParts:
    target, small = ToyBackend(scripted(b"abc")), ToyBackend(scripted(b"abc")) if draft else None
    return EngineParts(target, small, EngineConfig(), Learning(target))


def test_the_options_take_what_is_registered() -> None:
    assert choices(Options, "proposer") == tuple(sorted(meanings()))
    assert tuple(meanings()) == (AUTO, NONE, *(kind.name for kind in KINDS))
    assert {"auto", "none", "prompt-lookup", "memory", "draft"} <= {*meanings()}


def test_proposers_differ() -> None:
    kinds = (*KINDS, GRAMMAR)
    for values in zip(*kinds, strict=True):
        if not {str(value) for value in values} <= {"True", "False", *REMEDIES}:
            assert len(set(values)) == len(kinds), values
    assert not {kind.name for kind in KINDS} & {"auto", "none", "target"}


@pytest.mark.parametrize("draft", [False, True])
def test_an_engine_has_the_proposers_whose_parts_it_has(draft: bool) -> None:
    made = [proposer.name for proposer in make_all(parts(draft=draft))]
    needs = "draft model" if draft else "nothing"
    assert made == [kind.name for kind in KINDS if kind.needs == needs]


def test_every_proposer_is_described() -> None:
    page = (ROOT / "docs" / "speculation.md").read_text("utf-8")
    assert [name for name in meanings() if f"`{name}`" not in page] == []


def test_a_factory_makes_the_proposer_of_its_name() -> None:
    assert make(LOOKUP, parts()) is not None
    with pytest.raises(ValueError, match="makes the proposer 'prompt-lookup', not 'other'"):
        make(LOOKUP._replace(name="other"), parts())


def test_a_proposer_that_failed_gives_way() -> None:
    expected = dict.fromkeys(meanings(), "prompt-lookup") | {"prompt-lookup": "none", "none": "none"}
    assert {name: fallback_of(name) for name in meanings()} == expected
    assert fallback_of("a person's own") == "none"

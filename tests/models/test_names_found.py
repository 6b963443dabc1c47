"""The model that a name means: the order of the rules, and the choice among several."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import ModelAmbiguous, ModelInvalid
from localspec.models.library import SHOWN, choose_model, match_models
from localspec.models.model import Format, Model
from localspec.models.names import parse
from localspec.protocol.messages import ModelDescription


def model(
    id: str,
    *names: str,
    format: Format = "gguf",
    store: str = "lmstudio",
    size: int = 1,
    problem: str | None = None,
) -> Model:
    names = names or (id,)
    found = ModelDescription(
        id=id, path=f"/{id}", format=format, backend="", size=size, store=store, names=names, problem=problem
    )
    parts = None if problem or store == "bundled" else parse(found)
    return Model(Path(found.path), format, known=found, parts=parts)


def ids(found: list[Model]) -> list[str]:
    return [each.description.id for each in found]


SHELF = (
    model("stdlib-6m", store="bundled"),
    model("Toy-7B-Q8_0", "toy:7b-q8_0", "Toy-7B-Q8_0"),
    model("Toy-7B-Q4_0", "toy:7b-q4_0", "Toy-7B-Q4_0"),
    model("Toy-7B-4bit", "toy:7b-4bit", "Toy-7B-4bit", format="mlx"),
    model("toyota-7b", "toyota:7b", "toyota-7b"),
    model("llama3.1:8b"),
    model("llama3.1:8b-instruct", "llama3.1:8b-instruct"),
    model("tonic", problem="it is empty"),
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("toy:7b-q4_0", ["Toy-7B-Q4_0"]),
        ("TOY:7B-Q4_0", ["Toy-7B-Q4_0"]),
        ("toy-7b-q8_0", ["Toy-7B-Q8_0"]),
        ("toy:7b", ["Toy-7B-Q4_0", "Toy-7B-4bit", "Toy-7B-Q8_0"]),  # not what begins so
        ("toy:7b-q", ["Toy-7B-Q4_0", "Toy-7B-Q8_0"]),
        ("toyo", ["toyota-7b"]),
        ("to", ["Toy-7B-Q4_0", "Toy-7B-4bit", "Toy-7B-Q8_0", "toyota-7b"]),
        ("llama3.1:8b", ["llama3.1:8b"]),
        ("tonic", ["tonic"]),
        ("ton", ["tonic"]),
        ("t", ["Toy-7B-Q4_0", "Toy-7B-4bit", "Toy-7B-Q8_0", "toyota-7b"]),  # what can be used goes first
        ("7b", []),
    ],
)
def test_a_name_means_what_it_names_in_full_or_begins(name: str, found: list[str]) -> None:
    assert ids(match_models(name, SHELF)) == found


def test_what_can_be_used_comes_before_what_cannot() -> None:
    assert ids(match_models("x", (model("x", problem="it is empty"), model("a-7b", "X")))) == ["a-7b"]


@pytest.mark.parametrize(
    ("format", "id"), [(None, "Toy-7B-Q4_0"), ("gguf", "Toy-7B-Q4_0"), ("mlx", "Toy-7B-4bit")]
)
def test_of_one_model_the_format_and_the_preferred_quantisation_are_chosen(
    format: Format | None, id: str
) -> None:
    for name in ("toy:7b", "toy:7"):
        assert choose_model(name, match_models(name, SHELF), format).description.id == id


def test_of_one_quantisation_the_largest_is_chosen_then_the_first() -> None:
    three = [model(f"toy-7b-{n}", "toy:7b", size=size) for n, size in ((1, 5), (2, 6), (3, 6))]
    assert ids(match_models("toy:7b", three)) == ["toy-7b-2", "toy-7b-3", "toy-7b-1"]


def test_among_different_models_nothing_is_chosen() -> None:
    sentence = "'to' is ambiguous: it may be toy:7b-4bit, toy:7b-q4_0, toy:7b-q8_0, toyota:7b"
    with pytest.raises(ModelAmbiguous, match=sentence) as caught:
        choose_model("to", match_models("to", SHELF))
    assert caught.value.code == "model_ambiguous" and caught.value.remedy
    with pytest.raises(ModelAmbiguous, match="llama3.1:8b, llama3.1:8b-instruct"):
        choose_model("llama", match_models("llama", SHELF))
    many = [model(f"x{n}-7b") for n in range(SHOWN + 2)]
    with pytest.raises(ModelAmbiguous, match="and 2 more"):
        choose_model("x", match_models("x", many))


def test_what_has_one_name_in_both_formats_is_one_model_in_each() -> None:
    """Though their sizes differ in the headers: packed weights count less."""
    both = [model("my-7b", "my:7b", "coder"), model("my-1b", "my:1b", "coder", format="mlx")]
    formats: tuple[Format, ...] = ("gguf", "mlx")
    assert [choose_model("coder", match_models("coder", both), format).format for format in formats] == [
        "gguf",
        "mlx",
    ]
    with pytest.raises(ModelAmbiguous):
        choose_model("code", match_models("code", both))


def test_what_is_broken_is_refused_with_its_reason() -> None:
    for name in ("tonic", "ton"):
        with pytest.raises(ModelInvalid, match="^tonic cannot be used: it is empty$"):
            choose_model(name, match_models(name, SHELF))
    with pytest.raises(ModelAmbiguous, match="'ton' is ambiguous: it may be tonic, tonight"):
        choose_model("ton", match_models("ton", (*SHELF, model("tonight", problem="it is empty"))))

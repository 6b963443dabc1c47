"""Names that can be typed: short, of one model each, and what is meant by the beginning of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.models.names import meant, parse, typed_names
from localspec.protocol.messages import ModelDescription


def model(
    id: str,
    *names: str,
    quantisation: str | None = "Q4_K",
    parameters: int | None = None,
    format: str = "gguf",
    title: str | None = None,
    problem: str | None = None,
) -> ModelDescription:
    return ModelDescription(
        id=id,
        path=f"/{id}",
        format=format,
        backend="llama_cpp",
        size=1,
        quantisation=quantisation,
        parameters=parameters,
        title=title,
        names=names,
        problem=problem,
    )


def named(*models: ModelDescription, hints: tuple[str, ...] = ()) -> list[str]:
    return typed_names(models, hints or ("",) * len(models))


@pytest.mark.parametrize(
    ("id", "name", "quantisation"),
    [
        ("qwen2.5-coder-7b-instruct-q4_k_m", "qwen2.5-coder:7b", "q4_k_m"),
        ("Qwen2.5-Coder-7B-Instruct-Q8_0", "qwen2.5-coder:7b", "q8_0"),
        ("Qwen2.5-0.5B-Instruct-4bit", "qwen2.5:0.5b", "4bit"),
        ("Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL", "qwen3-coder:30b-a3b", "ud-q4_k_xl"),
        ("Mixtral-8x7B-v0.1.IQ3_XXS", "mixtral:8x7b", "iq3_xxs"),
        ("gemma-3n-E4B-it-bf16", "gemma-3n:e4b", "bf16"),
        ("gpt-oss-20b-MXFP4", "gpt-oss:20b", "mxfp4"),
        ("deepseek-coder-6.7b-base.Q4_0", "deepseek-coder:6.7b", "q4_0"),
        ("SmolLM2-135M-Instruct-f16", "smollm2:135m", "f16"),
        ("bartowski_gemma-2-2b-it-GGUF_gemma-2-2b-it-Q8_0", "gemma-2:2b", "q8_0"),
        ("llama3.1:8b", "llama3.1:8b", "q4_k"),
        ("somebody/llama3.1:8b-instruct-q5_K_M", "llama3.1:8b", "q5_k_m"),
        ("nomic-embed-text:latest", "nomic-embed-text", "q4_k"),
        ("Llama-3.2-1B.i1-IQ4_NL", "llama-3.2:1b", "iq4_nl"),
    ],
)
def test_a_files_name_is_taken_apart(id: str, name: str, quantisation: str) -> None:
    parts = parse(model(id))
    assert (parts.short, parts.quantisation) == (name, quantisation)


def test_what_the_name_does_not_say_is_said_by_the_repository_or_the_file() -> None:
    assert named(model("model"), hints=("org/Toy-7B-GGUF",)) == ["toy:7b"]
    assert named(model("ggml-model", title="Toy-7B")) == ["toy:7b"]
    assert named(model("my-coder", parameters=7_615_616_512)) == ["my-coder:7.6b"]
    assert named(model("my-coder", parameters=494_032_768)) == ["my-coder:494m"]
    assert named(model("phi-3.5-mini-instruct", parameters=3_821_000_000)) == ["phi-3.5-mini:3.8b"]
    assert named(model("toy", parameters=8)) == ["toy"]
    assert named(model("7b", parameters=7_000_000_000)) == ["7b:7b"]
    assert named(model("Q4_0")) == ["model"]


def test_the_quantisation_is_added_where_models_differ_in_it_alone() -> None:
    two = model("Toy-7B-Q4_0"), model("Toy-7B-Q8_0"), model("Toy-14B-Q8_0")
    assert named(*two) == ["toy:7b-q4_0", "toy:7b-q8_0", "toy:14b"]


def test_what_comes_first_of_the_differences_is_enough() -> None:
    assert named(model("Toy-7B-Instruct-Q4_0"), model("Toy-7B-Base-Q8_0")) == [
        "toy:7b-instruct",
        "toy:7b-base",
    ]
    assert named(model("Toy-7B-Q4_0"), model("Toy-7B-4bit", format="mlx")) == ["toy:7b-q4_0", "toy:7b-4bit"]
    both = model("Toy-7B", quantisation="F16"), model("Toy-7B", quantisation="F16", format="mlx")
    assert named(*both) == ["toy:7b-gguf", "toy:7b-mlx"]


def test_of_models_that_differ_in_no_word_the_later_are_numbered() -> None:
    assert named(*(model("Toy-7B-Q4_0"),) * 3) == ["toy:7b", "toy:7b-2", "toy:7b-3"]


@given(st.lists(st.tuples(st.text(max_size=30), st.sampled_from(["Q4_0", "Q8_0", None])), max_size=12))
def test_every_model_has_a_name_of_its_own(kinds: list[tuple[str, str | None]]) -> None:
    names = named(*(model(id, quantisation=quantisation) for id, quantisation in kinds))
    assert len(names) == len(kinds) and all(names) and len(set(names)) == len(names)


@given(st.permutations(["Toy-7B-Q4_0", "Toy-7B-Q8_0", "Toy-7B-Instruct-Q4_0", "Toy-1B", "Other-7B"]))
def test_a_name_does_not_depend_on_the_order(ids: list[str]) -> None:
    order = sorted(ids)
    straight = dict(zip(order, named(*map(model, order)), strict=True))
    assert dict(zip(ids, named(*map(model, ids)), strict=True)) == straight


SHELF = (
    model("stdlib-6m", "stdlib-6m"),
    model("Toy-7B-Q4_0", "toy:7b-q4_0", "Toy-7B-Q4_0"),
    model("Toy-7B-Q8_0", "toy:7b-q8_0", "Toy-7B-Q8_0"),
    model("llama3.1:8b", "llama3.1:8b", "llama3.1:8b"),
    model("llama3.1:8b-q8", "llama3.1:8b-q8", "llama3.1:8b-q8"),
    model("tonic", "tonic", problem="it is empty"),
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("toy:7b-q4_0", ["Toy-7B-Q4_0"]),
        ("TOY:7B-Q4_0", ["Toy-7B-Q4_0"]),
        ("toy-7b-q8_0", ["Toy-7B-Q8_0"]),
        ("toy:7b", ["Toy-7B-Q4_0", "Toy-7B-Q8_0"]),
        ("toy:7b-q8", ["Toy-7B-Q8_0"]),
        ("llama3.1:8b", ["llama3.1:8b"]),  # not the one that begins so
        ("to", ["Toy-7B-Q4_0", "Toy-7B-Q8_0"]),  # a broken one is not meant by its beginning
        ("tonic", ["tonic"]),
        ("ton", []),
        ("7b", []),
    ],
)
def test_a_name_means_what_it_names_in_full_or_begins(name: str, found: list[str]) -> None:
    assert [model.id for model in meant(name, SHELF)] == found


def test_of_a_name_that_several_have_the_usable_are_meant() -> None:
    shelf = model("a", "x", problem="it is empty"), model("b", "y", "X")
    assert [model.id for model in meant("x", shelf)] == ["a"]  # its first name
    assert [model.id for model in meant("x", (shelf[1], model("c", "z", "x", problem="it is empty")))] == [
        "b"
    ]

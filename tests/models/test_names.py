"""Names that can be typed: short, and of one model each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.models.model import Format
from localspec.models.names import PREFERRED, RESERVED, parse, typed_names
from localspec.protocol.messages import ModelDescription


def model(
    id: str,
    *names: str,
    quantisation: str | None = "Q4_K",
    parameters: int | None = None,
    format: Format = "gguf",
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


def named(
    *models: ModelDescription, hints: tuple[str, ...] = (), called: tuple[tuple[str, ...], ...] = ()
) -> list[str | None]:
    parts = [parse(*each) for each in zip(models, hints or ("",) * len(models), strict=True)]
    return typed_names(parts, called or ((),) * len(models))


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
        ("maker/llama3.1:8b-instruct-q5_K_M", "llama3.1:8b", "q5_k_m"),
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


def test_of_models_that_differ_in_no_word_the_later_are_numbered() -> None:
    assert named(*(model("Toy-7B-Q4_0"),) * 3) == ["toy:7b", "toy:7b-2", "toy:7b-3"]
    assert named(model("toy"), model("toy"), model("toy-2")) == ["toy", "toy-3", "toy-2"]


@given(st.lists(st.tuples(st.text(max_size=30), st.sampled_from(["Q4_0", "Q8_0", None])), max_size=12))
def test_every_model_has_a_name_of_its_own(kinds: list[tuple[str, str | None]]) -> None:
    names = named(*(model(id, quantisation=quantisation) for id, quantisation in kinds))
    assert len(names) == len(kinds) and all(names) and len(set(names)) == len(names)


@given(st.permutations(["Toy-7B-Q4_0", "Toy-7B-Q8_0", "Toy-7B-Instruct-Q4_0", "Toy-1B", "Other-7B"]))
def test_a_name_does_not_depend_on_the_order(ids: list[str]) -> None:
    order = sorted(ids)
    straight = dict(zip(order, named(*map(model, order)), strict=True))
    assert dict(zip(ids, named(*map(model, ids)), strict=True)) == straight


def test_what_a_store_calls_a_model_is_no_others_name() -> None:
    two = (model("toy-7b"), model("toy:7b"))
    assert named(*two, called=(("toy-7b",), ("toy:7b",))) == ["toy:7b-2", "toy:7b"]
    assert named(*two, called=(("toy-7b",), ("TOY:7B", "toy:7b-2"))) == ["toy:7b-3", "toy:7b"]
    assert named(model("toy"), model("toy"), called=(("toy",), ("toy",))) == ["toy-2", "toy-3"]


def test_names_that_mean_something_else_are_no_models() -> None:
    assert named(*map(model, RESERVED)) == ["auto-2", "none-2"]


@pytest.mark.parametrize(
    ("id", "quantisation", "like"),
    [
        ("Toy-7B-Q4_K_M", None, "Q4_K_M"),
        ("toy:7b", "Q4_K", "Q4_K_M"),
        ("Toy-7B-4-bit", None, "4BIT"),
        ("Toy-7B-4bit-DWQ", None, "4BIT"),
        ("Toy-7B-UD-Q4_K_XL", None, "UD-Q4_K_XL"),
        ("Toy-7B-mxfp4_moe", None, "MXFP4"),
        ("Toy-7B-Q4_0_4_4", None, "Q4_0"),
        ("Toy-7B-f16", None, "F16"),
    ],
)
def test_quantisations_are_known_by_their_labels(id: str, quantisation: str | None, like: str) -> None:
    assert parse(model(id, quantisation=quantisation)).preference == PREFERRED.index(like)

"""Kinds of files and directories that have a model's form and cannot generate text."""

from __future__ import annotations

from typing import NamedTuple

from localspec.models.directory import ModelDirectory
from localspec.models.gguf import GgufHeader

MODULES = "modules.json"
"""a file that sentence-transformers puts beside a model that it made of another"""
EMBED = "it is an embedding model"
PROJECTOR = "it is a multimodal projector: the part of another model that reads images or audio"
OTHER_TYPES = {
    "adapter": "it is an adapter (LoRA), which goes on top of a model",
    "mmproj": PROJECTOR,
    "imatrix": "it is an importance matrix, made for quantising a model",
    "vocab": "it has a vocabulary, but no weights",
}
"""``general.type`` of files that are not a model"""
EMBEDDERS = {
    *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3"),
    *("eurobert", "gemma-embedding", "t5encoder", "llama-embed"),
}
"""``general.architecture`` of encoders (llama.cpp's src/llama-arch.cpp)"""
READ_BY_MLX = {"bitnet", "mxfp4", "mxfp8", "fp8", "awq", "gptq", "compressed-tensors", "modelopt"}
"""``quantization_config.quant_method`` that mlx-lm converts while it loads (its utils.py)"""
GENERATES = ("CausalLM", "ConditionalGeneration", "LMHead", "VL")
"""parts of the names of transformers' classes that generate text"""
HEADS = ("eagle3", "dflash", "gemma4-assistant")
"""``general.architecture`` of drafters that read their target's hidden states (llama.cpp's src/models)"""
HEAD = "it is a head for another model, and drafts for that model alone"
NAME_A_MODEL = "Choose another model."
NAME_THE_TARGET = (
    "Choose the model that it drafts for, in a GGUF file of its own. Heads are not used yet; a smaller model "
    "of the same vocabulary, prompt lookup and the n-gram memory draft instead."
)


class Other(NamedTuple):
    """A kind of file that cannot generate text, as a clause with the subject "it", and what to do instead."""

    what: str
    remedy: str = NAME_A_MODEL


def kind_of_file(header: GgufHeader, *, has_vocabulary: bool) -> Other | None:
    """The kind of a GGUF file that cannot generate text; None for one that can."""
    architecture = header.architecture
    kind = header.metadata.get("general.type")
    if isinstance(kind, str) and kind in OTHER_TYPES:
        return Other(OTHER_TYPES[kind])
    if architecture == "clip":
        return Other(PROJECTOR)
    if not header.tensors:
        return Other(OTHER_TYPES["vocab"])
    if _is_head(header):
        return Other(HEAD, NAME_THE_TARGET)
    if architecture in EMBEDDERS or header.of_architecture("pooling_type"):
        return Other(EMBED)
    return None if has_vocabulary else Other("it has no vocabulary")


def _is_head(header: GgufHeader) -> bool:
    """True for a drafter without its target; a complete model may carry its MTP layers behind its own."""
    names = [tensor.name for tensor in header.tensors]
    is_mtp = any(".nextn." in name for name in names) and not any(name.startswith("blk.0.") for name in names)
    return is_mtp or header.architecture in HEADS


def kind_of_directory(model: ModelDirectory) -> Other | None:
    """The kind of a model directory that MLX cannot generate text with; None for one that it can."""
    what = _other_directory(model)
    return None if what is None else Other(what)


def _other_directory(model: ModelDirectory) -> str | None:
    config = model.config
    if (model.path / MODULES).exists():
        return EMBED
    if config.get("is_encoder_decoder") is True:
        return "it is an encoder-decoder model, which MLX does not run"
    named = config.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if names and not any(mark in name for name in names for mark in GENERATES):
        return f"its architecture is {names[0][:64]}"
    return _unreadable(model)


def _unreadable(model: ModelDirectory) -> str | None:
    """The reason why mlx-lm reads none of the weights that are there; None if it reads them."""
    if not any(file.name.startswith("model") for file in model.weights):
        return f"MLX reads only model*.safetensors, and its weights are in {model.weights[0].name[:64]}"
    settings = model.config.get("quantization_config")
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    if isinstance(method, str) and method not in READ_BY_MLX and "quantization" not in model.config:
        return f"its weights are quantised by {method[:64]} for transformers, which MLX does not read"
    return None

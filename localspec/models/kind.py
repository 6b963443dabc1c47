"""What a file or directory is that has a model's form and is none that answers."""

from __future__ import annotations

from localspec.models.directory import ModelDirectory
from localspec.models.gguf import GgufHeader

MODULES = "modules.json"
"""what sentence-transformers puts beside a model that it made of another"""
EMBED = "it makes embeddings of texts"
PROJECTOR = "it is the projector that lets another model see or hear"
OTHER_TYPES = {
    "adapter": "it is an adapter (LoRA), which goes on top of a model",
    "mmproj": PROJECTOR,
    "imatrix": "it is an importance matrix, which quantising reads",
    "vocab": "it holds a vocabulary and no weights",
}
"""``general.type`` of what is no model"""
EMBEDDERS = {
    *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3"),
    *("eurobert", "gemma-embedding", "t5encoder", "llama-embed"),
}
"""``general.architecture`` of encoders (llama.cpp's src/llama-arch.cpp)"""
READ_BY_MLX = {"bitnet", "mxfp4", "mxfp8", "fp8", "awq", "gptq", "compressed-tensors", "modelopt"}
"""``quantization_config.quant_method`` that mlx-lm converts while it loads (its utils.py)"""
GENERATES = ("CausalLM", "ConditionalGeneration", "LMHead", "VL")
"""what the names of transformers' classes that generate text hold"""


def kind_of_file(header: GgufHeader, *, has_vocabulary: bool) -> str | None:
    """What a GGUF file is instead of a model that answers; None for one that does."""
    architecture = header.architecture
    kind = header.metadata.get("general.type")
    if isinstance(kind, str) and kind in OTHER_TYPES:
        return OTHER_TYPES[kind]
    if architecture == "clip":
        return PROJECTOR
    if not header.tensors:
        return OTHER_TYPES["vocab"]
    if architecture in EMBEDDERS or header.of_architecture("pooling_type"):
        return EMBED
    return None if has_vocabulary else "it has no vocabulary"


def kind_of_directory(model: ModelDirectory) -> str | None:
    """What a model directory is instead of one that MLX can answer with; None for one that it can."""
    config = model.config
    if (model.path / MODULES).exists():
        return EMBED
    if config.get("is_encoder_decoder") is True:
        return "it is an encoder with a decoder, which MLX does not run"
    named = config.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if names and not any(mark in name for name in names for mark in GENERATES):
        return f"it is a {names[0][:64]}, which generates no text"
    return _unreadable(model)


def _unreadable(model: ModelDirectory) -> str | None:
    """Why mlx-lm reads none of the weights that are there."""
    if not any(file.name.startswith("model") for file in model.weights):
        return f"MLX reads model*.safetensors alone, and its weights are in {model.weights[0].name[:64]}"
    settings = model.config.get("quantization_config")
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    if isinstance(method, str) and method not in READ_BY_MLX and "quantization" not in model.config:
        return f"its weights are quantised by {method[:64]} for transformers, which MLX does not read"
    return None

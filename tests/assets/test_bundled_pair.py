"""The bundled pair is one pair in two formats."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "assets" / "models"
NAMES = ("stdlib-6m", "stdlib-1m")
MEGABYTE = 1_000_000

sys.path.insert(0, str(ROOT))

from assets.training import chat, presets  # noqa: E402

LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SPECIAL_IDS = {
    "<|endoftext|>": 0,
    "<|im_start|>": 1,
    "<|im_end|>": 2,
    "<|fim_prefix|>": 3,
    "<|fim_middle|>": 4,
    "<|fim_suffix|>": 5,
    "<|fim_pad|>": 6,
    "<|repo_name|>": 7,
    "<|file_sep|>": 8,
}
GGUF_ROLES = {
    "bos": "<|endoftext|>",
    "eos": "<|im_end|>",
    "eot": "<|im_end|>",
    "padding": "<|endoftext|>",
    "fim_pre": "<|fim_prefix|>",
    "fim_mid": "<|fim_middle|>",
    "fim_suf": "<|fim_suffix|>",
    "fim_pad": "<|fim_pad|>",
    "fim_rep": "<|repo_name|>",
    "fim_sep": "<|file_sep|>",
}


class Bundled:
    """One model of the pair in both of its formats."""

    def __init__(self, name: str) -> None:
        self.folder = MODELS / name
        self.gguf = GGUFReader(self.folder / f"{name}.gguf")
        self.weights = load_file(self.folder / "model.safetensors")

    def field(self, key: str) -> Any:
        found = self.gguf.get_field(key)
        assert found is not None, key
        return found.contents()

    def read_json(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / name).read_text("utf-8"))
        return content


@pytest.fixture(scope="module", params=NAMES)
def bundled(request: pytest.FixtureRequest) -> Bundled:
    return Bundled(request.param)


def safetensors_name(gguf_name: str) -> str:
    if gguf_name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if gguf_name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, tensor, _ = gguf_name.split(".")
    return f"model.layers.{layer}.{LAYER_TENSORS[tensor]}.weight"


# --- the two formats of a model ----------------------------------------------------------------


@pytest.mark.slow
def test_both_formats_name_the_same_tensors(bundled: Bundled) -> None:
    names = [safetensors_name(tensor.name) for tensor in bundled.gguf.tensors]
    assert sorted(names) == sorted(bundled.weights)


@pytest.mark.slow
def test_both_formats_hold_the_same_weights(bundled: Bundled) -> None:
    for tensor in bundled.gguf.tensors:
        other = bundled.weights[safetensors_name(tensor.name)]
        is_norm = other.ndim == 1
        assert tensor.tensor_type.name == ("F32" if is_norm else "F16"), tensor.name
        assert other.dtype == np.float16, tensor.name
        # GGUF norms are F32: they may be finer than the F16 ones, never another number.
        np.testing.assert_array_equal(tensor.data.astype(np.float16), other, tensor.name)
        assert np.isfinite(other.astype(np.float32)).all(), tensor.name


def test_both_formats_state_the_same_shape(bundled: Bundled) -> None:
    config = bundled.read_json("config.json")
    stated = {
        "qwen3.context_length": config["max_position_embeddings"],
        "qwen3.embedding_length": config["hidden_size"],
        "qwen3.block_count": config["num_hidden_layers"],
        "qwen3.feed_forward_length": config["intermediate_size"],
        "qwen3.attention.head_count": config["num_attention_heads"],
        "qwen3.attention.head_count_kv": config["num_key_value_heads"],
        "qwen3.attention.key_length": config["head_dim"],
        "qwen3.attention.value_length": config["head_dim"],
        "qwen3.rope.freq_base": config["rope_theta"],
        "qwen3.vocab_size": config["vocab_size"],
    }
    assert {key: bundled.field(key) for key in stated} == stated
    assert bundled.field("qwen3.attention.layer_norm_rms_epsilon") == pytest.approx(config["rms_norm_eps"])
    assert config["tie_word_embeddings"] is True
    embedding = bundled.weights["model.embed_tokens.weight"]
    assert embedding.shape == (config["vocab_size"], config["hidden_size"])


def test_both_formats_state_the_same_context_and_template(bundled: Bundled) -> None:
    tokenizer_config = bundled.read_json("tokenizer_config.json")
    assert tokenizer_config["model_max_length"] == bundled.field("qwen3.context_length")
    assert tokenizer_config["chat_template"] == bundled.field("tokenizer.chat_template")


def test_gguf_vocabulary_is_that_of_tokenizer_json(bundled: Bundled) -> None:
    model = bundled.read_json("tokenizer.json")["model"]
    by_id = sorted(model["vocab"], key=model["vocab"].__getitem__)
    assert sorted(model["vocab"].values()) == list(range(len(by_id)))
    assert bundled.field("tokenizer.ggml.tokens") == by_id
    merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
    assert bundled.field("tokenizer.ggml.merges") == merges


def test_special_tokens_have_the_same_ids_everywhere(bundled: Bundled) -> None:
    tokenizer = bundled.read_json("tokenizer.json")
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert added == SPECIAL_IDS
    for role, token in GGUF_ROLES.items():
        assert bundled.field(f"tokenizer.ggml.{role}_token_id") == SPECIAL_IDS[token], role
    control = 3
    types = bundled.field("tokenizer.ggml.token_type")
    assert [index for index, kind in enumerate(types) if kind == control] == list(range(9))
    config, tokenizer_config = (bundled.read_json(name) for name in ("config.json", "tokenizer_config.json"))
    assert config["bos_token_id"] == bundled.field("tokenizer.ggml.bos_token_id")
    assert config["eos_token_id"] == [SPECIAL_IDS["<|endoftext|>"], SPECIAL_IDS["<|im_end|>"]]
    assert tokenizer_config["eos_token"] == "<|im_end|>"
    assert tokenizer_config["pad_token"] == "<|endoftext|>"


def test_the_pair_shares_one_tokenizer() -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        target, draft = ((MODELS / model / name).read_bytes() for model in NAMES)
        assert target == draft, name


def test_the_recipe_states_the_shapes_of_the_bundled_models(bundled: Bundled) -> None:
    config = bundled.read_json("config.json")
    shapes = {shape.name: shape for shape in (presets.STDLIB_6M, presets.STDLIB_1M)}
    shape = shapes[bundled.folder.name]
    assert (shape.width, shape.layers, shape.heads, shape.kv_heads, shape.feed_forward) == (
        config["hidden_size"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
        config["intermediate_size"],
    )
    assert shape.head_size == config["head_dim"]
    assert presets.CPU.vocabulary == config["vocab_size"]
    assert config["max_position_embeddings"] <= presets.CPU.context
    assert list(SPECIAL_IDS) == chat.SPECIAL_TOKENS


# --- sizes -------------------------------------------------------------------------------------


def test_the_draft_is_below_its_size_limit() -> None:
    assert (MODELS / "stdlib-1m" / "stdlib-1m.gguf").stat().st_size < 4 * MEGABYTE


def test_all_models_are_below_the_wheel_limit() -> None:
    files = [path for path in MODELS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 60 * MEGABYTE

"""The bundled pair is one pair in two formats, and its recipe makes well-formed examples."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
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

from assets.training import chat, conversations, corpus, edits, infill, presets  # noqa: E402

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

SOURCE = '''\
def fetch(path, timeout, retries):
    """Fetch path; give up after timeout seconds."""
    for attempt in range(retries):
        path_text = str(path)  # path_text and pathway are not path
        answer = open_path(path_text, timeout=timeout)
        if answer:
            return answer, attempt
    raise TimeoutError(path)
'''


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


def test_both_formats_name_the_same_tensors(bundled: Bundled) -> None:
    names = [safetensors_name(tensor.name) for tensor in bundled.gguf.tensors]
    assert sorted(names) == sorted(bundled.weights)


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
    assert tokenizer_config["chat_template"] == chat.CHAT_TEMPLATE


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
    plans = (presets.CPU.target, presets.CPU.draft)
    shape = {plan.shape.name: plan.shape for plan in plans}[bundled.folder.name]
    assert (shape.width, shape.layers, shape.heads, shape.kv_heads, shape.feed_forward) == (
        config["hidden_size"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
        config["intermediate_size"],
    )
    assert shape.head_size == config["head_dim"]
    assert presets.CPU.vocabulary == config["vocab_size"]
    assert config["max_position_embeddings"] in (presets.CPU.context, presets.GPU.context)
    assert list(SPECIAL_IDS) == chat.SPECIAL_TOKENS


# --- sizes -------------------------------------------------------------------------------------


def test_the_draft_is_below_its_size_limit() -> None:
    assert (MODELS / "stdlib-1m" / "stdlib-1m.gguf").stat().st_size < 4 * MEGABYTE


def test_all_models_are_below_the_wheel_limit() -> None:
    files = [path for path in MODELS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 60 * MEGABYTE


# --- the recipe's text forms -------------------------------------------------------------------


def count_words(text: str) -> int:
    return len(text.split())


def exchanges(text: str) -> list[tuple[str, str]]:
    """Take a formatted chat apart again; fails where it is not well-formed."""
    assert text.endswith("<|im_end|>\n<|endoftext|>")
    turns = re.findall(r"<\|im_start\|>(user|assistant)\n(.*?)<\|im_end\|>\n", text, re.DOTALL)
    rebuilt = "".join(chat.format_turn(role, content) for role, content in turns)
    assert rebuilt + "<|endoftext|>" == text
    assert [role for role, _ in turns] == ["user", "assistant"] * (len(turns) // 2)
    contents = [content for _, content in turns]
    return list(zip(contents[::2], contents[1::2], strict=True))


@pytest.fixture(scope="module")
def small_corpus() -> corpus.Corpus:
    return corpus.build_corpus(presets.SMOKE)


@pytest.fixture(scope="module")
def small_conversations() -> list[str]:
    files = corpus.library_files(presets.SMOKE.files)
    built: Iterator[str] = conversations.build_conversations(files, presets.SMOKE, count_words)
    return list(built)


def test_a_chat_is_what_the_template_renders() -> None:
    text = chat.format_chat([("a", "b"), ("c", "d")])
    assert text == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n<|endoftext|>"
    )
    assert exchanges(text) == [("a", "b"), ("c", "d")]
    assert text.startswith(chat.format_prompt("a") + "b")


@pytest.mark.parametrize("source", ["x = 1", "x = 1\n"])
def test_a_fence_closes_on_its_own_line(source: str) -> None:
    assert chat.fenced(source) == "```python\nx = 1\n```"


@pytest.mark.parametrize("name", ["path", "timeout", "retries", "answer"])
def test_a_rename_touches_no_other_name(name: str) -> None:
    edit = edits.rename_one_of(SOURCE, [name], random.Random(0))
    before, after = (re.findall(r"\w+|\W", text) for text in (edit.before, edit.after))
    assert [edit.new if word == name else word for word in before] == after
    assert edits.mentions(edit.after, name) == 0
    assert edits.rename(edit.after, edit.new, edit.old) == SOURCE


def test_a_new_name_is_new_even_when_all_names_are_taken() -> None:
    everything = " ".join(edits.NEW_NAMES)
    assert edits.fresh_name(everything, random.Random(0)) == edits.LAST_RESORT
    all_but_one = " ".join(edits.NEW_NAMES[1:])
    assert edits.fresh_name(all_but_one, random.Random(0)) == edits.NEW_NAMES[0]


def test_names_to_rename_repeat_and_are_no_keywords() -> None:
    names = edits.repeated_names(SOURCE, most=12)
    assert names == ["path", "timeout", "retries", "attempt", "path_text", "answer"]
    assert "self" not in edits.repeated_names("self.a = self.b = self.total + total", most=12)


def test_fim_pieces_rejoin_to_the_span() -> None:
    rng = random.Random(0)
    for length in range(infill.SHORTEST_SPAN + 1, 900, 7):
        span = (SOURCE * 3)[:length]
        pieces = infill.split_span(span, rng)
        assert pieces.prefix + pieces.middle + pieces.suffix == span
        assert pieces.prefix and pieces.middle


@pytest.mark.parametrize("suffix_first", [False, True])
def test_a_fim_text_ends_with_its_middle(suffix_first: bool) -> None:
    pieces = infill.FimPieces("before", "between", "after")
    text = infill.format_fim(pieces, suffix_first=suffix_first)
    prefix, suffix = "<|fim_prefix|>before", "<|fim_suffix|>after"
    context = suffix + prefix if suffix_first else prefix + suffix
    assert text == f"{context}<|fim_middle|>between<|endoftext|>"


def test_spans_rejoin_to_the_file() -> None:
    text = SOURCE * 20
    spans = list(infill.cut_spans(text, (100, 300), random.Random(0)))
    assert "".join(spans) == text
    assert all(100 <= len(span) <= 300 for span in spans[:-1])


def test_code_examples_are_plain_spans_or_fim(small_corpus: corpus.Corpus) -> None:
    recipe = presets.SMOKE
    orders: dict[str, list[str]] = {
        "plain": [],
        "prefix first": ["prefix", "suffix", "middle"],
        "suffix first": ["suffix", "prefix", "middle"],
    }
    counts = dict.fromkeys(orders, 0)
    for text in small_corpus.code:
        body = text.removesuffix("<|endoftext|>")
        markers = re.findall(r"<\|fim_(\w+)\|>", body)
        [order] = [name for name, expected in orders.items() if markers == expected]
        counts[order] += 1
        assert len(body) < len(text)
        assert body.startswith("<|fim_") == (order != "plain")
        assert not chat.has_special_token(re.sub(r"<\|fim_\w+\|>", "", body))
    in_the_middle = counts["prefix first"] + counts["suffix first"]
    assert in_the_middle / len(small_corpus.code) == pytest.approx(recipe.fim_share, abs=0.1)
    suffix_first_share = counts["suffix first"] / in_the_middle
    assert suffix_first_share == pytest.approx(recipe.suffix_first_share, abs=0.1)


def test_chats_and_edits_are_single_exchanges(small_corpus: corpus.Corpus) -> None:
    assert small_corpus.chats and small_corpus.edits
    for text in small_corpus.chats + small_corpus.edits:
        assert len(exchanges(text)) == 1
    for text in small_corpus.edits:
        [(question, answer)] = exchanges(text)
        assert question.endswith("\n```") and question.count("```") >= 2
        assert answer.startswith("```python\n") and answer.endswith("\n```")


@pytest.mark.slow
def test_conversations_continue_where_the_last_answer_ended(
    small_conversations: list[str],
) -> None:
    request = re.compile(r"(?:[Rr]ename|replace|name) `?(\w+)`? (?:to|with) `?(\w+)`?")
    lengths = set()
    for text in small_conversations:
        parts = exchanges(text)
        lengths.add(len(parts))
        opener = parts[0][0]
        code = opener[opener.index("```python\n") : opener.rindex("```") + 3]
        for question, answer in parts:
            prose = question.replace(code, "") if question == opener else question
            old, new = request.findall(prose or question)[0]
            assert edits.rename(code, old, new) == answer
            code = answer
    assert lengths == set(range(1, presets.SMOKE.conversation_turns + 1))


@pytest.mark.slow
def test_conversations_stay_within_their_budget(small_conversations: list[str]) -> None:
    longest = max(count_words(text) for text in small_conversations)
    assert longest <= presets.SMOKE.conversation_tokens


def test_held_back_files_are_not_trained_on() -> None:
    files = corpus.library_files(presets.SMOKE.files)
    trained, held_back = corpus.split_files(files, presets.SMOKE.hold_back_every)
    assert len(files) == presets.SMOKE.files
    assert held_back and not set(trained) & set(held_back)
    assert sorted(trained + held_back, key=lambda file: file.name) == sorted(
        files, key=lambda file: file.name
    )


@pytest.mark.slow
def test_the_corpus_is_the_same_every_time(small_corpus: corpus.Corpus) -> None:
    assert corpus.build_corpus(presets.SMOKE) == small_corpus


def test_importing_the_corpus_needs_neither_torch_nor_tokenizers() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import assets.training.conversations; "
        "print(*sorted({'torch', 'tokenizers', 'numpy', 'gguf'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout.strip(), run.returncode) == ("", 0), run.stderr

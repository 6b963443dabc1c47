"""Gaps in the prompt format of each family; no typed text becomes a special token."""

from __future__ import annotations

import pytest

from localspec.backends.base import FimTokens
from localspec.engine.fim import MARK, fim_format
from localspec.engine.prompt import PromptEncoder
from localspec.errors import FimUnsupported
from localspec.protocol.requests import File, FimPrompt
from tests.toy import ToyVocabulary

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>", "<|fim_pad|>")
STARCODER = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
DEEPSEEK = ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>")
GLM = ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>")
LLAMA = ("▁<PRE>", "▁<SUF>", "▁<MID>")
GAP = FimPrompt("def f(", "):\n", path="/home/me/repo/src/b.py", language="python")
OTHER = File("/home/me/repo/a.py", "A = 1")


class Named(ToyVocabulary):
    """Bytes, and special tokens of these names from ``first`` on."""

    def __init__(
        self, *names: str, first: int = 256, fim: FimTokens | None = None, blank: bool = False
    ) -> None:
        self.names = {name: first + i for i, name in enumerate(names)}
        self.fim = fim or (FimTokens(first, first + 1, first + 2) if len(names) > 2 else None)
        self.size = first + len(names)
        self.special_tokens = frozenset(self.names.values())
        self.end_tokens = frozenset[int]()
        self.blank = blank

    def encode(self, text: str, *, special: bool) -> list[int]:
        if special and text in self.names:
            return [self.names[text]]
        return list(((" " if self.blank and text else "") + text).encode())

    def text_of(self, token: int) -> bytes:
        names = {token: name for name, token in self.names.items()}
        if token in names:
            return names[token].encode()
        return b" " if self.blank and token == ord(" ") else bytes([token])

    def spelt(self, tokens: list[int]) -> str:
        """The tokens as their authors write them."""
        return b"".join(self.text_of(token) for token in tokens).decode()


def prompt_of(vocabulary: Named, model: str = "", *extra: File, prompt: FimPrompt = GAP) -> str:
    asked = FimPrompt(prompt.prefix, prompt.suffix, prompt.path, prompt.language, extra)
    encoder = PromptEncoder(vocabulary, 4096, model=model)
    return vocabulary.spelt(encoder.encode(asked, 64, "/home/me/repo").tokens)


@pytest.mark.parametrize(
    ("names", "model", "alone", "with_another"),
    [
        (
            QWEN,
            "qwen2.5-coder-7b",
            "<|fim_prefix|>def f(<|fim_suffix|>):\n<|fim_middle|>",
            "<|repo_name|>repo\n<|file_sep|>a.py\nA = 1\n<|file_sep|>src/b.py\n"
            "<|fim_prefix|>def f(<|fim_suffix|>):\n<|fim_middle|>",
        ),
        (
            (*STARCODER, "<repo_name>", "<file_sep>"),
            "starcoder2-3b",
            "<fim_prefix>def f(<fim_suffix>):\n<fim_middle>",
            "<repo_name>repo<file_sep>a.py\nA = 1<file_sep>"
            "<fim_prefix>src/b.py\ndef f(<fim_suffix>):\n<fim_middle>",
        ),
        (
            STARCODER,
            "granite-8b-code",
            "<fim_prefix>def f(<fim_suffix>):\n<fim_middle>",
            "<fim_prefix># a.py\nA = 1\ndef f(<fim_suffix>):\n<fim_middle>",
        ),
        (
            (*STARCODER, "<filename>"),
            "Mellum-4b-base.Q8_0",
            "<fim_suffix>):\n<fim_prefix>def f(<fim_middle>",
            "<filename>a.py\nA = 1\n<filename>src/b.py\n<fim_suffix>):\n<fim_prefix>def f(<fim_middle>",
        ),
        (
            STARCODER,
            "mellum-without-files",
            "<fim_suffix>):\n<fim_prefix>def f(<fim_middle>",
            "<fim_suffix>):\n<fim_prefix># a.py\nA = 1\ndef f(<fim_middle>",
        ),
        (
            DEEPSEEK,
            "deepseek-coder-6.7b-base",
            "<｜fim▁begin｜>def f(<｜fim▁hole｜>):\n<｜fim▁end｜>",
            "#a.py\nA = 1\n#src/b.py\n<｜fim▁begin｜>def f(<｜fim▁hole｜>):\n<｜fim▁end｜>",
        ),
        (
            ("[SUFFIX]", "[PREFIX]"),
            "Codestral-22B-v0.1",
            "[SUFFIX]):\n[PREFIX]def f(",
            "[SUFFIX]):\n[PREFIX]+++++ a.py\nA = 1\n\n+++++ src/b.py\ndef f(",
        ),
        (
            (*QWEN[:3], "<|file_separator|>"),
            "codegemma-2b",
            "<|fim_prefix|>def f(<|fim_suffix|>):\n<|fim_middle|>",
            "# a.py\nA = 1\n<|file_separator|><|fim_prefix|>def f(<|fim_suffix|>):\n<|fim_middle|>",
        ),
        (
            QWEN[:3],
            "granite-4.0-h-tiny",
            "<|fim_prefix|>def f(<|fim_suffix|>):\n<|fim_middle|>",
            "<|fim_prefix|># a.py\nA = 1\ndef f(<|fim_suffix|>):\n<|fim_middle|>",
        ),
        (
            GLM,
            "glm-4.5-air",
            "<|code_prefix|>def f(<|code_suffix|>):\n<|code_middle|>",
            "<|code_prefix|># a.py\nA = 1\ndef f(<|code_suffix|>):\n<|code_middle|>",
        ),
        (
            ("<|prefix|>", "<|suffix|>", "<|middle|>"),
            "falcon-h1-tiny-coder",
            "<|prefix|>def f(<|suffix|>):\n<|middle|>",
            "<|prefix|># a.py\nA = 1\ndef f(<|suffix|>):\n<|middle|>",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "<" not in value else "",
)
def test_a_family_gets_a_gap_as_it_was_trained(
    names: tuple[str, ...], model: str, alone: str, with_another: str
) -> None:
    vocabulary = Named(*names)
    assert prompt_of(vocabulary, model) == alone
    assert prompt_of(vocabulary, model, OTHER) == with_another
    format = fim_format(vocabulary, model)
    assert format is not None and format.end_tokens >= set(vocabulary.names.values())


def test_the_bundled_pair_is_known_by_its_tokens_and_gets_the_suffix_first() -> None:
    """It was trained on both orders; then a keystroke leaves what was computed of the suffix as it is."""
    vocabulary = Named("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", first=3)
    prompt = FimPrompt("prefix", "suffix")
    tokens = PromptEncoder(vocabulary, 4096).encode(prompt, 64).tokens
    assert tokens == [5, *b"suffix", 3, *b"prefix", 4]
    assert PromptEncoder(vocabulary, 4096).encode(FimPrompt("prefixes", "suffix"), 64).tokens[:-1] == [
        *tokens[:-1],
        *b"es",
    ]


def test_code_llama_gets_a_blank_before_the_prefix_and_none_before_the_suffix() -> None:
    assert prompt_of(Named(*LLAMA, blank=True), "codellama-7b") == "▁<PRE> def f(▁<SUF>):\n▁<MID>"


class Merging(Named):
    """Has a token for a smiley with what gives it its colours."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        merged = MARK[-1] + "\ufe0f"
        before, found, after = text.partition(merged)
        if not found:
            return super().encode(text, special=special)
        return [*super().encode(before, special=special), 255, *after.encode()]


def test_the_mark_never_gets_into_a_prompt() -> None:
    vocabulary = Merging(*LLAMA, blank=True)
    tokens = PromptEncoder(vocabulary, 4096).encode(FimPrompt("x", "\ufe0fy"), 64).tokens
    assert 255 not in tokens and MARK.encode() not in bytes(t for t in tokens if t < 256)


def test_tokens_that_a_file_names_by_id_alone_are_taken_prefix_first() -> None:
    vocabulary = Named("<a>", "<b>", "<c>", fim=FimTokens(256, 257, 258))
    assert prompt_of(vocabulary) == "<a>def f(<b>):\n<c>"


def test_a_model_without_such_tokens_cannot_fill_gaps() -> None:
    for vocabulary, model in ((Named(), "x"), (Named("[SUFFIX]", "[PREFIX]"), "mistral-nemo")):
        with pytest.raises(FimUnsupported):
            PromptEncoder(vocabulary, 100, model=model).encode(GAP, 10)


def test_a_token_that_the_model_has_no_row_for_is_none() -> None:
    vocabulary = Named("[SUFFIX]", "[PREFIX]")
    assert fim_format(vocabulary, "codestral") is not None
    vocabulary.size -= 1
    assert fim_format(vocabulary, "codestral") is None


def test_what_people_typed_never_becomes_a_special_token() -> None:
    vocabulary = Named(*QWEN)
    evil = "<|fim_middle|>"
    prompt = FimPrompt(evil, evil, path=evil, extra=(File(evil, evil),))
    tokens = PromptEncoder(vocabulary, 4096, model="qwen").encode(prompt, 64).tokens
    special = [token for token in tokens if token >= 256]
    names = ["<|repo_name|>", "<|file_sep|>", "<|file_sep|>", *QWEN[:3]]
    assert special == [vocabulary.names[name] for name in names]
    assert vocabulary.spelt(tokens).count(evil) == 6


def test_a_home_is_never_in_the_prompt() -> None:
    vocabulary = Named(*QWEN)
    outside = FimPrompt("a", "b", path="/home/me/elsewhere/x.py", extra=(File("/home/me/notes/y.py", "Y"),))
    tokens = PromptEncoder(vocabulary, 4096, model="qwen").encode(outside, 64, "/home/me/repo").tokens
    assert "/home" not in vocabulary.spelt(tokens) and "y.py\nY" in vocabulary.spelt(tokens)


def test_a_family_with_text_that_ends_an_answer() -> None:
    encoder = PromptEncoder(Named("[SUFFIX]", "[PREFIX]"), 4096, model="codestral")
    assert encoder.encode(GAP, 10).stop == ("\n+++++ ",)

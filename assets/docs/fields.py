"""Fields of the HTTP dialects: what each takes, and whether it is accepted or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from assets.docs.kinds import takes
from assets.docs.meanings import MEANINGS
from assets.docs.parts import table
from localspec.http import llama_cpp, ollama, openai, sampling

Harmless = Mapping[str, tuple[Any, ...]]
HEAD = ("field", "takes", "treatment", "meaning")
SHARED = sampling.TimedSampling
BODIES: tuple[tuple[str, type[msgspec.Struct], Harmless], ...] = (
    ("POST /v1/chat/completions, POST /chat/completions", openai.ChatBody, openai.REFUSED_OF_CHATS),
    ("POST /v1/completions", openai.TextBody, {}),
    ("POST /infill", llama_cpp.InfillBody, llama_cpp.REFUSED_OF_GAPS),
    ("POST /completion, POST /completions", llama_cpp.CompletionBody, {}),
    ("POST /tokenize", llama_cpp.TokenizeBody, {}),
    ("POST /api/generate", ollama.GenerateBody, ollama.REFUSED_OF_TEXTS),
    ("POST /api/chat", ollama.ChatBody, ollama.REFUSED_OF_CHATS),
    ("POST /api/show", ollama.ShowBody, {}),
)
"""addresses, their body, and its refused fields with the values that change nothing"""


def body() -> str:
    """Return the fields that choose tokens, then those of each address beside them."""
    common = table(HEAD, _rows(SHARED, sampling.REFUSED, frozenset()))
    return "\n".join([f"### Sampling and deadlines\n\n{common}", *(_section(*each) for each in BODIES)])


def _section(title: str, struct: type[msgspec.Struct], refused: Harmless) -> str:
    is_shared = issubclass(struct, SHARED)
    left_out = frozenset(SHARED.__struct_fields__) if is_shared else frozenset[str]()
    also = "All fields of [sampling and deadlines](#sampling-and-deadlines), and:\n\n" if is_shared else ""
    return f"### {title}\n\n{also}{table(HEAD, _rows(struct, refused, left_out))}"


def _rows(
    struct: type[msgspec.Struct], refused: Harmless, left_out: frozenset[str]
) -> Iterator[tuple[str, ...]]:
    for field in msgspec.structs.fields(struct):
        if field.name not in left_out:
            told, meaning = "required" if field.required else "accepted", MEANINGS.get(field.name, "")
            if field.name in refused:
                told, meaning = _refused(refused[field.name]), ""
            yield f"`{field.encode_name}`", takes(field), told, meaning


def _refused(harmless: tuple[Any, ...]) -> str:
    if not harmless:
        return "refused"
    return f"refused, unless {' or '.join(f'`{json.dumps(each)}`' for each in harmless)}"

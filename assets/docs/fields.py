"""Fields of the HTTP dialects: their values, and if they are accepted or refused."""

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
    ("POST /v1/completions", openai.TextBody, openai.REFUSED_OF_TEXTS),
    ("POST /infill", llama_cpp.InfillBody, llama_cpp.REFUSED_OF_GAPS),
    ("POST /completion, POST /completions", llama_cpp.CompletionBody, llama_cpp.REFUSED_OF_TEXTS),
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
            if field.name in refused:
                status, meaning = _refused(field.name, refused[field.name]), ""
            else:
                status, meaning = "required" if field.required else "accepted", MEANINGS[field.name]
            yield f"`{field.encode_name}`", takes(field), status, meaning


def _refused(name: str, harmless: tuple[Any, ...]) -> str:
    accepted = [f"`{json.dumps(each)}`" for each in harmless]
    if name in sampling.OFF_BELOW_0:
        accepted = [each for each in accepted if each != "`-1`"] + ["a negative number"]
    return f"refused, unless {' or '.join(accepted)}" if accepted else "refused"

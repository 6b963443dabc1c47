"""Chat templates: a model's own Jinja source, rendered by a process of its own.

A template is a program of the model's author: :mod:`localspec.models.rendering` runs it in Jinja's sandbox,
in a child with limits of time and memory, which ends in place of the worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from localspec.child import Child
from localspec.errors import ModelInvalid
from localspec.models.directory import (
    chat_template,
    is_directory_model,
    read_directory,
    read_settings,
    read_tokenizer,
    text_of_token,
)
from localspec.models.gguf import read_header
from localspec.protocol.requests import Message, Role, Tool

RENDERER = Child("localspec.models.rendering")
MAX_SECONDS = 2.0
"""processor time of one rendering, the compilation of its template included"""
NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})

# The fallback of llama.cpp as well, there for all models: ChatML, https://github.com/openai/openai-python/blob/v0.28.1/chatml.md
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATMLS = "<|im_start|>"
"""the token that a model knows if ChatML means anything to it"""
PLAIN = "{{ messages | map(attribute='content') | join('\n\n') }}"
"""for a base model without a template, to which ChatML's markers would be text: the contents alone"""
_REMEDY = (
    "Send the text without a template: `run --raw`, over HTTP `/v1/completions`, or `raw` of `/api/generate`."
)
_SYSTEMS: tuple[Role, ...] = ("system", "user")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""names that templates have for the thoughts of a turn"""


class ChatTemplate:
    """A chat template, which :data:`RENDERER` runs. Threads may share it: they take turns."""

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self._source = source or CHATML
        self._own = {"bos_token": bos, "eos_token": eos, "add_generation_prompt": True}

    def render(
        self,
        messages: Sequence[Message],
        variables: Mapping[str, Any] = NO_VARIABLES,
        tools: Sequence[Tool] = (),
    ) -> str:
        """The prompt text that asks for the next assistant message; ``variables`` stand beside its own. A
        template that refuses the messages gets neighbours of one role as one message, and after that system
        messages as the user's. The arguments of calls are objects, or texts where it fails with those.
        Raises :class:`ModelInvalid` where the source is not valid Jinja, or a rendering fails or exceeds a
        limit of its process."""
        # Without one the templates of Llama 3 name a day of 2024.
        variables = {"date_string": datetime.now().strftime("%d %b %Y"), **variables}
        own = {**self._own, "tools": [_function(tool) for tool in tools]} if tools else self._own
        refused = ""
        for as_text in (False, True) if any(message.tool_calls for message in messages) else (False,):
            for system in (None, *_SYSTEMS):
                attempt = messages if system is None else _join_messages(messages, system)
                turns = _turns(attempt, as_text=as_text, nested="tool_responses" in self._source)
                kind, text = self._run({**variables, **own, "messages": turns})
                if kind == "text":
                    return text
                refused = refused or text
                if kind == "failed":
                    break
        raise ModelInvalid(f"the model's chat template failed: {refused}", _REMEDY)

    def _run(self, variables: dict[str, Any]) -> tuple[str, str]:
        """The kind of a rendering's result, "text", "refused" or "failed", and its text. Raises
        :class:`ModelInvalid` for a broken source, and where the process was ended."""
        result = RENDERER.do((self._source, variables, MAX_SECONDS))
        if result is None:
            raise ModelInvalid(
                f"the model's chat template took more than {MAX_SECONDS:g} s, or too much memory", _REMEDY
            )
        kind, _, text = result.decode().partition("\n")
        if kind == "broken":
            raise ModelInvalid(f"the model's chat template is broken: {text}", _REMEDY)
        return kind, text


def _join_messages(messages: Iterable[Message], system: Role) -> list[Message]:
    """``messages`` with neighbours of one role as one message, but for calls and their results; ``system``:
    the role of system messages."""

    def kind(message: Message) -> tuple[Role, int]:
        role = system if message.role == "system" else message.role
        return role, id(message) if message.tool_calls or role == "tool" else 0

    joined = []
    for (role, whole), run in groupby(messages, kind):
        first, *others = run
        texts = (message.content for message in (first, *others))
        joined.append(first if whole else Message(role, "\n\n".join(texts)))
    return joined


def _turns(messages: Iterable[Message], *, as_text: bool, nested: bool) -> list[dict[str, Any]]:
    """The messages as templates read them; ``as_text``: the arguments of calls are texts; ``nested``: the
    results of calls are part of the turn with the calls."""
    names: dict[str, str] = {}
    turns: list[dict[str, Any]] = []
    for message in messages:
        turn: dict[str, Any] = {"role": message.role, "content": message.content}
        for call in message.tool_calls:
            names[call.id] = call.name
            arguments = call.arguments if as_text else json.loads(call.arguments)
            made = {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments},
            }
            turn.setdefault("tool_calls", []).append(made)
        if message.thinking:
            turn |= dict.fromkeys(_THOUGHTS, message.thinking)
        name = names.get(message.tool_call_id, "")
        if message.role == "tool" and nested and turns:
            result = {"name": name, "response": message.content}
            turns[-1].setdefault("tool_responses", []).append(result)
            continue
        if message.role == "tool":
            turn |= {"tool_call_id": message.tool_call_id, "name": name}
        turns.append(turn)
    return turns


def _function(tool: Tool) -> dict[str, Any]:
    """A tool as templates read it; some fail without properties."""
    parameters = {"type": "object", "properties": {}, **tool.parameters}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def texts_of(path: Path) -> dict[str, str]:
    """Return, by the server's names, the quantisation, the texts of the tokens that begin and end texts,
    empty without one, and the chat template in use; raises :class:`ModelError`."""
    tokens: Iterable[str]
    if is_directory_model(path):
        settings = read_settings(path)
        bos, eos = (text_of_token(settings.get(f"{name}_token")) or "" for name in ("bos", "eos"))
        template, quantisation = chat_template(path, settings), read_directory(path).quantisation
        tokens = () if template else read_tokenizer(path).added.values()
    else:
        header = read_header(path)
        quantisation, found = header.quantisation, header.metadata.get("tokenizer.chat_template")
        template = found if isinstance(found, str) else None
        tokens = texts = header.metadata.get("tokenizer.ggml.tokens") or ()
        ids = (header.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
        bos, eos = (texts[id] if type(id) is int and 0 <= id < len(texts) else "" for id in ids)
    template = template or (CHATML if CHATMLS in tokens else PLAIN)
    return {"model_ftype": quantisation, "bos_token": bos, "eos_token": eos, "chat_template": template}

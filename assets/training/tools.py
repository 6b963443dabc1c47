"""Tool calls in the Hermes form: a call of one of the tools listed, and an answer from its result."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .chat import (
    TOOLS_END,
    TOOLS_INTRODUCTION,
    TURN_END,
    TURN_START,
    Example,
    Piece,
    format_prompt,
    format_turn,
)
from .words import Identifiers

VERBS = (
    *("get", "find", "list", "read", "show", "open", "count", "check", "send", "create", "delete", "update"),
    *("search", "convert", "measure", "load", "save", "start", "stop", "move"),
)
TYPES = ("string", "string", "string", "integer", "number", "boolean")
OPENINGS = ("", "", "Please ", "Can you ", "I want you to ", "Could you please ")
JOINS = (
    " with {key} {value}",
    " where the {key} is {value}",
    " for the {key} {value}",
    ", {key} {value}",
    " ({key}: {value})",
)
SORTED_SHARE = 0.5  # some renderers of templates sort the keys of a tool, some do not
ANSWERED_SHARE = 0.6  # of calls whose result is answered too
PLAIN_SHARE = 0.15  # questions that no tool is for
MOST_TOOLS = 3

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that can be called: an action, its object and its parameters' types by name."""

    name: str
    action: str  # "get the weather report"
    parameters: dict[str, str]

    def schema(self) -> Json:
        """The tool as OpenAI's API states it."""
        properties = {
            name: {"type": kind, "description": f"The {name.replace('_', ' ')}."}
            for name, kind in self.parameters.items()
        }
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        description = f"{self.action[0].upper()}{self.action[1:]}."
        function = {"name": self.name, "description": description, "parameters": parameters}
        return {"type": "function", "function": function}


def system_turn(tools: list[Tool], *, system: str = "", sort_keys: bool = False) -> str:
    """The system message that the chat template renders where tools are given."""
    listed = "".join(
        "\n" + json.dumps(tool.schema(), ensure_ascii=False, sort_keys=sort_keys) for tool in tools
    )
    text = (f"{system}\n\n" if system else "") + TOOLS_INTRODUCTION + listed + TOOLS_END
    return format_turn("system", text)


def call_text(name: str, arguments: Json) -> str:
    """A call as the assistant writes it."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def result_prompt(result: str) -> str:
    """A tool's result as the chat template renders it, and the beginning of the answer."""
    return format_turn("user", f"<tool_response>\n{result}\n</tool_response>") + f"{TURN_START}assistant\n"


class ToolMaker:
    """A source of tools, requests and results."""

    def __init__(self, words: list[str], rng: random.Random) -> None:
        self._rng = rng
        self._identifiers = Identifiers(words, rng)

    def tool(self) -> Tool:
        """A tool of one to three parameters."""
        rng, word = self._rng, self._identifiers.word
        verb, noun = rng.choice(VERBS), word()
        noun = f"{noun} {word()}" if rng.random() < 0.5 else noun
        name = f"{verb}_{noun.replace(' ', '_')}"
        count = rng.choice((1, 1, 2, 2, 3))
        names = [word() if rng.random() < 0.7 else f"{word()}_{word()}" for _ in range(count)]
        return Tool(name, f"{verb} the {noun}", {each: rng.choice(TYPES) for each in names})

    def value(self, kind: str) -> Any:
        """A value for a parameter of this type."""
        rng = self._rng
        match kind:
            case "integer":
                return rng.choice((rng.randint(0, 12), rng.randint(10, 100), rng.randint(100, 9999)))
            case "number":
                return round(rng.uniform(0, 100), rng.randint(1, 2))
            case "boolean":
                return rng.random() < 0.5
        word = self._identifiers.word
        text = " ".join(word() for _ in range(rng.choice((1, 1, 1, 2, 3))))
        return rng.choice(
            (
                text,
                text,
                text.title(),
                f"{word()}.{rng.choice(('txt', 'py', 'json'))}",
                self._identifiers.identifier(),
            )
        )

    def request(self, tool: Tool, arguments: Json) -> str:
        """A user's message that asks for this call."""
        rng = self._rng
        text = rng.choice(OPENINGS) + tool.action
        for key, value in arguments.items():
            shown = json.dumps(value) if not isinstance(value, str) else value
            quoted = f'"{shown}"' if isinstance(value, str) and rng.random() < 0.3 else shown
            text += rng.choice(JOINS).format(key=key.replace("_", " "), value=quoted)
        return text[0].upper() + text[1:] + rng.choice((".", ".", "", "?"))

    def result(self) -> tuple[str, str]:
        """A tool's result and the answer that tells it."""
        fields = {
            self._identifiers.word(): self.value(self._rng.choice(TYPES))
            for _ in range(self._rng.randint(1, 3))
        }
        told = [
            f"The {key} is {json.dumps(v) if not isinstance(v, str) else v}." for key, v in fields.items()
        ]
        return json.dumps(fields), " ".join(told)

    def conversation(self) -> Example:
        """One to MOST_TOOLS tools, a request, its call and, often, the result with its answer."""
        rng = self._rng
        tools = [self.tool() for _ in range(rng.randint(1, MOST_TOOLS))]
        tool = rng.choice(tools)
        arguments = {name: self.value(kind) for name, kind in tool.parameters.items()}
        system = system_turn(tools, sort_keys=rng.random() < SORTED_SHARE)
        pieces = [
            Piece(system + format_prompt(self.request(tool, arguments)), False),
            Piece(call_text(tool.name, arguments) + TURN_END, True),
        ]
        if rng.random() < ANSWERED_SHARE:
            result, told = self.result()
            pieces += [Piece("\n" + result_prompt(result), False), Piece(told + TURN_END, True)]
        return [*pieces, Piece("\n", False)]


def tool_examples(count: int, words: list[str], plain: Iterator[Example], seed: str) -> Iterator[Example]:
    """`count` conversations with tools; some of them ask what no tool is for, out of `plain`."""
    rng = random.Random(f"tools {seed}")
    maker = ToolMaker(words, rng)
    for _ in range(count):
        if rng.random() >= PLAIN_SHARE:
            yield maker.conversation()
            continue
        tools = [maker.tool() for _ in range(rng.randint(1, MOST_TOOLS))]
        example = next((each for each in plain if not each[0].text.startswith(f"{TURN_START}system")), None)
        if example is not None:
            yield [Piece(system_turn(tools, sort_keys=rng.random() < SORTED_SHARE), False), *example]

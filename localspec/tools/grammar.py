"""The grammar of an answer that may call tools, in Lark as llguidance reads it.

Text is free up to the trigger of a call. From there on only calls of the given tools follow, with arguments
that match their schemas, and then the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from localspec.errors import InvalidOptions
from localspec.protocol.requests import ChatPrompt, Prompt, Tool
from localspec.tools.families import BARE, MOST_CALLS, Form, as_json, trigger
from localspec.tools.parser import types_of

LAYOUT = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": True,
    "coerce_one_of": True,
}
"""of JSON; what the library does not know in a schema is no constraint, so that any client's tools work"""
FREE, BLANK, ID, KEY = r"/(.|\n)*/", r"/\n{0,2}/", "/[0-9A-Za-z]{1,9}/", f"/{BARE.pattern}/"
MOST_UNMARKED = 128
"""tools whose calls without the family's mark are held to them, too: 300 exceed the library's limits"""
OPEN = frozenset(("$ref", "allOf", "anyOf", "oneOf", "patternProperties"))
"""keys of schemas that may allow properties besides those that they list"""


class AnswerMarkup(NamedTuple):
    """The markup of the answer to a chat's ``prompt``: its form, the texts of its control tokens by id, and
    the texts of those in it that end an answer."""

    form: Form
    names: Mapping[int, bytes]
    ends: frozenset[str]
    prompt: ChatPrompt

    def name_pieces(self, piece: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """The texts of tokens by ``piece``, those of control tokens of the markup among them."""
        return lambda token: self.names.get(token) or piece(token)

    @property
    def loose(self) -> AnswerMarkup:
        """The same, with tools that take any arguments."""
        tools = tuple(Tool(tool.name) for tool in self.form.tools)
        return self._replace(form=self.form._replace(tools=tools))


def answer_grammar(marked: AnswerMarkup, answer: str | None) -> str | None:
    """The grammar of an answer that may call tools, and is otherwise of the grammar ``answer``, behind
    thoughts; None if it is free. Raises :class:`InvalidOptions` if the tool that must be called is none of
    the tools, and for parameters that are not of a JSON schema's shape."""
    form, prompt = marked.form, marked.prompt
    if not form.tools and (answer is None or form.thought is None):
        return answer
    tools = [tool for tool in form.tools if prompt.tool in (None, tool.name)]
    if prompt.tool is not None and not tools:
        raise InvalidOptions(f"there is no tool {prompt.tool}", "Name one of the request's tools.")
    try:
        return _Grammar(marked, answer).text(tools)
    except (TypeError, AttributeError, RecursionError) as error:  # clients send any JSON as a schema
        raise InvalidOptions(f"a tool's parameters are no JSON schema: {error}", "Correct them.") from None


def begun_answer(prompt: Prompt, marked: AnswerMarkup | None) -> str:
    """The beginning of the answer that a prompt has, without thoughts; empty without one."""
    if not isinstance(prompt, ChatPrompt) or not prompt.prefilled or (marked and marked.form.opened):
        return ""
    begun, thought = prompt.messages[-1].content, marked.form.thought if marked else None
    return begun.partition(thought[1])[2].lstrip() if thought and thought[1] in begun else begun


class _Grammar:
    """A grammar as it is written, rule by rule; its methods return the expression for what they name."""

    def __init__(self, marked: AnswerMarkup, answer: str | None) -> None:
        self._form, self._family, self._ends = marked.form, marked.form.family, marked.ends
        self._prompt, self._answer = marked.prompt, answer
        self._blank = BLANK if self._form.thought else ""
        self._tokens = {name.decode(): token for token, name in marked.names.items()}
        names = sorted((*self._tokens, *self._ends), key=len, reverse=True)
        self._parts = re.compile("|".join((*map(re.escape, names), "#")))
        self._rules: list[str] = []

    def text(self, tools: list[Tool]) -> str:
        thought = self._write_thought()
        if not tools:
            answer = self._write_answer()
        else:
            family = self._family
            first = trigger(family.opens + family.heads[0])
            arguments = {tool.name: self._rule(self._arguments(tool)) for tool in tools}
            calls = self._calls(arguments, first)
            at_once = f"{self._blank} {self._literal(first)} {calls}"
            if self._prompt.tool_choice == "required" or self._prompt.tool is not None:
                answer = at_once
            elif self._answer is None and first[0] in "<[":
                answer = f"{self._write_answer()} | {self._upto(first, shy=True)} {calls}"
            elif self._answer is None:
                begun = self._rule(f"/{_pattern(first)}/", "[lazy]")
                answer = f"{self._write_answer(first)} | {self._blank} {begun} {calls}"
            else:
                answer = f"{self._write_answer(first)} | {at_once}"
            if self._answer is None and self._prompt.tool is None and self._prompt.tool_choice == "auto":
                answer += self._write_unmarked(arguments, first)
        return "\n".join(("%llguidance {}", f"start: {thought} ({answer})", *self._rules))

    def _calls(self, arguments: Mapping[str, str], first: str) -> str:
        """The calls behind the text ``first``, with which they begin; ``arguments``: rules by tools."""
        family = self._family
        head, _, middle = family.heads[0].partition("@")
        each = (f"{self._literal(name + middle)} {rule}" for name, rule in arguments.items())
        tail = "" if family.tags[0] else self._literal(family.tails[0])
        call = f"{self._rule(' | '.join(each))} {tail}"
        # The end token of a call is the answer's.
        ends = any(mark in family.tails[0] for mark in self._ends)
        more = "" if ends else self._more(f"{self._literal(family.between + head)} {call}")
        begun = self._literal((family.opens + head)[len(first) :])
        return self._rule(f"{begun} {call} {more} {self._literal(family.closes)}")

    def _more(self, call: str) -> str:
        several = self._prompt.parallel_tool_calls and self._prompt.tool is None
        return f"({call}){{0,{MOST_CALLS - 1}}}" if several else ""

    def _write_unmarked(self, arguments: Mapping[str, str], first: str) -> str:
        """The calls with those heads of the family that do not begin with the text ``first``: with a tool's
        name in it, a head begins a call wherever the parser reads one."""
        family = self._family
        heads = [head for head in family.heads if trigger(head) != first and not self._parts.search(head)]
        if not heads or family.opens or family.tags[0] or len(arguments) > MOST_UNMARKED:
            return ""
        begun, more = [], []
        for name, rule in arguments.items():
            begins = [f"/{_begins(head.replace('@', name))}/{self._no_thought()}" for head in heads]
            begun.append(f'({" | ".join(self._rule(each, "[lazy]") for each in begins)}) " "? {rule}')
            more += [f"{self._literal(head.replace('@', name))} {rule}" for head in heads]
        # In parts, as all of them begin alike.
        tails = (" ".join(map(_quote, re.findall(r"\}|\n|[^}\n]+", tail))) for tail in family.tails)
        tail = self._rule(" | ".join(tails))
        further = self._more(f"{self._literal(family.between)} ({' | '.join(more)}) {tail}")
        return f" | ({' | '.join(begun)}) {tail} {further}"

    def _rule(self, body: str, flag: str = "", kind: str = "r") -> str:
        self._rules.append(f"{kind}{len(self._rules)}{flag}: {body}")
        return f"{kind}{len(self._rules) - 1}"

    def _literal(self, text: str) -> str:
        """Text with control tokens and ids; an end token ends the answer, and is in no grammar."""
        parts, at = [], 0
        for found in self._parts.finditer(text):
            token = self._tokens.get(found[0])
            other = ID if found[0] == "#" else ""
            parts += [_quote(text[at : found.start()]), other if token is None else f"<[{token}]>"]
            at = found.end()
        return " ".join(filter(None, (*parts, _quote(text[at:]))))

    def _upto(self, mark: str, *, shy: bool = False) -> str:
        """Free text up to ``mark``; ``shy``: not beginning with a thought."""
        if self._parts.search(mark):  # the parser reads it where it is typed, too
            text = self._rule(f"{FREE} & ~/(.|\\n)*{_pattern(mark)}(.|\\n)*/", kind="T")
            return f"{text} {self._literal(mark)}"
        unlike = self._no_thought() if shy else ""
        return self._rule(f"{FREE[:-1]}{_pattern(mark)}/{unlike}", "[lazy]")

    def _no_thought(self) -> str:
        opens = self._form.thought[0] if self._form.thought and not self._form.opened else ""
        return f" & ~/{_pattern(opens)}(.|\\n)*/" if opens and not self._parts.search(opens) else ""

    def _write_answer(self, but: str = "") -> str:
        """An answer; a free one does not begin with the text ``but``, nor with a thought."""
        opens, closes = (f"({self._literal(mark)})?" if mark else "" for mark in self._family.answer)
        if self._answer is not None:
            return f"{self._blank} {opens} %lark {{\n{self._answer}\n}} {closes}"
        unlike = f" & ~/\\n*{_pattern(but)}(.|\\n)*/" if but else ""
        text = self._rule(FREE + unlike + self._no_thought(), kind="T")
        return f"{opens} {text} {closes}"

    def _write_thought(self) -> str:
        opens, closes = self._form.thought or ("", "")
        rest = f"{self._upto(closes)} {self._literal(self._family.link)}"
        again = f"({self._literal(opens)} {rest}){'*' if self._family.link else '?'}"
        return rest if self._form.opened else again if opens else ""

    def _arguments(self, tool: Tool) -> str:
        if self._family.tags[0]:
            return f"{self._elements(tool)} {self._literal(self._family.tails[0])}"
        if self._family.quote:
            return self._bare({"type": "object", **tool.parameters})
        schema = {"type": "object", **tool.parameters}
        if "properties" in schema and not OPEN & schema.keys():
            schema.setdefault("additionalProperties", False)
        return _json(schema)

    def _elements(self, tool: Tool) -> str:
        opens, closes = self._family.tags
        before, _, after = opens.partition("$")
        if "properties" not in tool.parameters:
            end = after.split()[0]
            behind = f"{self._literal(after[len(end) :])} {self._upto(closes)}"
            return f"({self._literal(before)} {self._upto(end)} {behind})*"
        shared = {key: value for key, value in tool.parameters.items() if key in ("$defs", "definitions")}
        parts = []
        for key, schema in self._properties(tool.parameters).items():
            if "string" not in types_of({key: schema}, key):
                value = f"{_json({**shared, **schema})} {self._literal(closes)}"
            elif "enum" in schema:
                texts = (each if isinstance(each, str) else as_json(each) for each in schema["enum"])
                value = f"({' | '.join(map(_quote, texts))}) {self._literal(closes)}"
            else:
                value = self._upto(closes)
            needed = "" if key in tool.parameters.get("required", ()) else "?"
            parts.append(f"({self._literal(before)} {_quote(key)} {self._literal(after)} {value}){needed}")
        return " ".join(parts)

    def _bare(self, schema: dict[str, Any]) -> str:
        kind = schema.get("type", ["string", "number", "boolean", "null"])
        quote = self._literal(self._family.quote)
        if "enum" in schema:
            texts = (
                f"{quote} {_quote(v)} {quote}" if isinstance(v, str) else _quote(as_json(v))
                for v in schema["enum"]
            )
            return f"({' | '.join(texts)})"
        if (several := schema.get("anyOf") or schema.get("oneOf")) or isinstance(kind, list):
            each_kind = several or ({**schema, "type": each} for each in kind)
            return f"({' | '.join(map(self._bare, each_kind))})"
        if kind == "string":
            return f"{quote} {self._upto(self._family.quote)}"
        if kind == "array":
            item = self._rule(self._bare(schema.get("items", {})))
            return f'"[" ({item} ("," {item})*)? "]"'
        return f'"{{" {self._members(schema)} "}}"' if kind == "object" else _json(schema)

    def _members(self, schema: dict[str, Any]) -> str:
        """The required ones in the order of their names, as templates write them, then others. A name that
        is not bare stands in the family's quotes."""
        needs = schema.get("required", ())
        if "properties" not in schema:
            member = self._rule(f'{KEY} ":" {self._bare({})}')
            return f'({member} ("," {member})*)?'
        quote, members = self._literal(self._family.quote), dict[str, str]()
        for key, each in sorted(self._properties(schema).items()):
            name = _quote(key) if BARE.fullmatch(key) else f"{quote} {_quote(key)} {quote}"
            members[key] = f'{name} ":" {self._bare(each)}'
        required = ' "," '.join(member for key, member in members.items() if key in needs)
        others = [member for key, member in members.items() if key not in needs]
        if not others:
            return required
        other = self._rule(" | ".join(others))
        return f'{required} ("," {other})*' if required else f'({other} ("," {other})*)?'

    def _properties(self, schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
        found, carries = schema.get("properties", {}), self._family.carries
        return {key: each for key, each in found.items() if isinstance(each, dict) and carries(key)}


def _json(schema: dict[str, Any]) -> str:
    known = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    return f"%json {json.dumps({**known, 'x-guidance': LAYOUT})}"


def _quote(text: str) -> str:
    return as_json(text) if text else ""


def _begins(head: str) -> str:
    """A regular expression for text up to the end of a call's head; one without a mark begins the answer."""
    before = r"(.|\n)*" if head[0] in "<[`" else r"\s*"
    return before + r"\s*".join(map(_pattern, re.sub("([{:,])", r" \1 ", head).split()))


def _pattern(text: str) -> str:
    return re.sub(r"([!-/:;=?@\[-`{-~])", r"\\\1", text).replace("\n", "\\n")

"""Families of models by the markup of their tool calls, and the marks of thoughts.

A pattern is the text as the family's models write it: ``@`` stands for a tool's name, ``#`` for an id, ``$``
for a parameter's name, which goes up to the text behind it. Text is compared with a pattern without regard to
up to :data:`MOST_BLANK` characters of whitespace in a row. The turns of a chat with tools are written as the
family's template takes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from localspec.protocol.requests import ChatPrompt, Message, Tool

NAME = r"[\w./-]{1,128}"
BARE = re.compile(r'[^\s{}\[\],:"<\\]+(?: [^\s{}\[\],:"<\\]+)*')
"""the names of parameters that stand without quotes before a colon"""
MOST_BLANK, LONGEST_KEY = 64, 512
"""characters: the text that waits for more is bounded, and so is the time for it"""
SPACE = rf"\s{{0,{MOST_BLANK}}}"
TRIGGER = re.compile(r"<[^>\s@#]*>|\[\w+\]|[^@#\s]+")
MOST_CALLS = 16
"""calls of one answer: a small model may go on with calls until its context is full"""
ALL = -1
"""a match that more text may complete"""


class ToolFamily(NamedTuple):
    """The markup of calls, in templates that have all texts of ``known_by``: ``opens``,
    then calls with ``between`` between them, then ``closes``. A call is one of ``heads``, the arguments, one
    of ``tails``; the first of each is the usual one. The arguments are a JSON object, or elements (``tags``:
    the pattern before a value, and the exact text that ends it), or JSON with bare keys and ``quote`` around
    texts. ``answer`` stands around an answer, ``link`` between thoughts and what follows; ``hidden`` are
    further marks."""

    known_by: tuple[str, ...]
    heads: tuple[str, ...]
    tails: tuple[str, ...]
    opens: str = ""
    between: str = ""
    closes: str = ""
    tags: tuple[str, str] = ("", "")
    quote: str = ""
    answer: tuple[str, str] = ("", "")
    link: str = ""
    hidden: tuple[str, ...] = ()
    short_ids: bool = False
    """True if the template takes ids of 9 letters and digits only"""

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks that stand for no text, besides those of calls."""
        return tuple(filter(None, (*self.answer, self.link, *self.hidden)))

    def carries(self, key: str) -> bool:
        """Return False for a parameter's name that the markup cannot carry: one with the mark in it that ends
        a name, or longer than :data:`LONGEST_KEY`. Calls have no such parameter."""
        end = _end_of_key(self.tags[0]) or self.quote
        return not end or (len(key) <= LONGEST_KEY and f"{key}{end}".find(end) == len(key))

    @property
    def starts(self) -> tuple[str, ...]:
        return tuple(self.opens + head for head in self.heads)


_JSON = (" <|constrain|>json", " json", "")
_OBJECT = '{"name": "@", "arguments": '


def _make_list_family(known_by: tuple[str, ...], opens: str, closes: str) -> ToolFamily:
    return ToolFamily(known_by, (_OBJECT,), ("}",), opens, between=", ", closes=closes)


HERMES = ToolFamily(
    ("<tool_call>",),
    tuple(mark + _OBJECT for mark in ("<tool_call>\n", "```json\n", "<tools>\n", "", "{")),
    tuple(n * "}" + mark for mark in ("\n</tool_call>", "\n```", "\n</tools>", "") for n in (1, 2, 3)),
    between="\n",
)
"""small models write no marks, a fence, or the two pairs of braces of Qwen's template, closed too often"""
FAMILIES = (
    ToolFamily(
        ("<|channel|>", "<|message|>"),
        (
            *(f"<|channel|>commentary to=functions.@{form}<|message|>" for form in _JSON),
            *(f"to=functions.@<|channel|>commentary{form}<|message|>" for form in _JSON[:2]),
        ),
        ("<|call|>",),
        between="<|start|>assistant",
        answer=("<|channel|>final<|message|>", ""),
        link="<|start|>assistant",
        hidden=("<|channel|>commentary<|message|>", "<|end|>"),
    ),
    ToolFamily(
        ("<seed:tool_call>", "<function="),
        ("<seed:tool_call>\n<function=@>\n",),
        ("</function>\n</seed:tool_call>",),
        between="\n",
        tags=("<parameter=$>", "</parameter>\n"),
    ),
    ToolFamily(
        ("<minimax:tool_call>", "<invoke name="),
        ('<invoke name="@">\n',),
        ("</invoke>",),
        opens="<minimax:tool_call>\n",
        between="\n",
        closes="\n</minimax:tool_call>",
        tags=('<parameter name="$">', "</parameter>\n"),
    ),
    ToolFamily(
        ("<tool_call>", "<function=", "<parameter="),
        ("<tool_call>\n<function=@>\n", "<function=@>\n"),
        ("</function>\n</tool_call>", "</function>"),
        between="\n",
        tags=("<parameter=$>\n", "\n</parameter>\n"),
    ),
    ToolFamily(
        ("<tool_call>", "<arg_key>"),
        ("<tool_call>@\n",),
        ("</tool_call>",),
        between="\n",
        tags=("<arg_key>$</arg_key>\n<arg_value>", "</arg_value>\n"),
    ),
    ToolFamily(
        ("<|tool_call_argument_begin|>",),
        ("<|tool_call_begin|>functions.@:#<|tool_call_argument_begin|>",),
        ("<|tool_call_end|>",),
        opens="<|tool_calls_section_begin|>",
        closes="<|tool_calls_section_end|>",
    ),
    ToolFamily(
        ("<｜tool▁sep｜>", "```json"),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>@\n```json\n",),
        ("\n```<｜tool▁call▁end｜>",),
        opens="<｜tool▁calls▁begin｜>",
        between="\n",
        closes="<｜tool▁calls▁end｜>",
    ),
    ToolFamily(
        ("<｜tool▁sep｜>",),
        ("<｜tool▁call▁begin｜>@<｜tool▁sep｜>",),
        ("<｜tool▁call▁end｜>",),
        opens="<｜tool▁calls▁begin｜>",
        closes="<｜tool▁calls▁end｜>",
    ),
    ToolFamily(
        ("[TOOL_CALLS]", "[ARGS]"),
        ("[TOOL_CALLS]@[ARGS]", "[TOOL_CALLS]@[CALL_ID]#[ARGS]"),
        ("",),
        short_ids=True,
    ),
    _make_list_family(("[TOOL_CALLS]",), "[TOOL_CALLS][", "]")._replace(
        tails=("}", ', "id": "#"}'), short_ids=True
    ),
    ToolFamily(
        ("<|START_ACTION|>",),
        (
            '    {"tool_call_id": "#", "tool_name": "@", "parameters": ',
            '    {"tool_name": "@", "parameters": ',
        ),
        ("}",),
        opens="<|START_ACTION|>[\n",
        between=",\n",
        closes="\n]<|END_ACTION|>",
        answer=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ),
    ToolFamily(("<|tool_call>", '<|"|>'), ("<|tool_call>call:@",), ("<tool_call|>",), quote='<|"|>'),
    ToolFamily(
        ("<start_function_call>",),
        ("<start_function_call>call:@",),
        ("<end_function_call>",),
        quote="<escape>",
    ),
    _make_list_family(("<|tool_call|>", "<|/tool_call|>"), "<|tool_call|>[", "]<|/tool_call|>"),
    _make_list_family(("<|tool_call|>",), "<|tool_call|>[", "]"),
    _make_list_family(("<TOOLCALL>",), "<TOOLCALL>[", "]</TOOLCALL>"),
    HERMES,
    ToolFamily(
        ("ipython", '"parameters"'),
        (
            '{"name": "@", "parameters": ',
            '<|python_tag|>{"name": "@", "parameters": ',
            '{"type": "function", "name": "@", "parameters": ',
            "<function=@>",
        ),
        ("}", "</function>"),
        between="; ",
    ),
    ToolFamily(("<function=",), ("<function=@>",), ("</function>",), between="\n"),
)
"""the first that knows a template is its family"""

THOUGHTS = (
    *((f"<{tag}>", f"</{tag}>") for tag in ("think", "seed:think", "thinking", "reasoning", "thought")),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("◁think▷", "◁/think▷"),
)


class Form(NamedTuple):
    """The markup to expect in an answer: calls of ``tools`` as the ``family`` writes them, and a ``thought``,
    which ``opened`` already if the prompt ends in it."""

    family: ToolFamily
    tools: tuple[Tool, ...] = ()
    thought: tuple[str, str] | None = None
    opened: bool = False

    @property
    def marks(self) -> str:
        family = self.family
        ends = (*family.tails, family.between, family.closes, *family.tags, family.quote)
        calls = (*family.starts, *ends) if self.tools else ()
        return "".join((*calls, *family.marks, *(self.thought or ())))


def family_of(template: str) -> ToolFamily | None:
    """The family of a chat template; None if it has no tools, or calls in a markup that is not known."""
    known = (family for family in FAMILIES if all(text in template for text in family.known_by))
    return next(known, None) if re.search(r"\btools\b", template) else None


def find_thought(template: str) -> tuple[str, str] | None:
    """The marks of the thoughts of a template's model; None without any."""
    for opens, closes in THOUGHTS:
        # Other families end a turn with the mark that ends a thought of gpt-oss.
        if opens.strip() in template or (closes != "<|end|>" and closes in template):
            return opens, closes
    return None


def match_pattern(pattern: str, text: str) -> tuple[int, str] | None:
    """The end of ``pattern`` at the start of ``text``, and the name in it; the end is :data:`ALL` if ``text``
    may be the beginning of a match. None if it is not."""
    found = _beginning(pattern).match(text)
    if found is None or (found["end"] is None and found.end() < len(text)):
        return None
    return ALL if found["end"] is None else found.end(), found.groupdict().get("name") or ""


@cache
def _beginning(pattern: str) -> re.Pattern[str]:
    """Matches as much of a pattern as a text begins with; the group ``end`` stands behind all of it."""
    key = f"(?P<name>(?:(?!{re.escape(_end_of_key(pattern))}).){{0,{LONGEST_KEY}}})"
    units = {"@": f"(?P<name>{NAME})", "#": NAME, "$": key}
    # A name at the end of a text may go on, and one line break may follow, which is no part of a value.
    regex = r"(?P<end>\n|(?=.))?" if pattern.endswith(("@", "\n")) else "(?P<end>)"
    for unit in reversed("".join(pattern.split())):
        regex = f"{'' if unit == '$' else SPACE}(?:{units.get(unit, re.escape(unit))}{regex})?"
    return re.compile(regex, re.DOTALL)


def _end_of_key(pattern: str) -> str:
    return "".join(pattern.partition("$")[2].split()[:1])


def trigger(pattern: str) -> str:
    """The fixed text with which a pattern begins: its first mark, or all up to a name or whitespace."""
    found = TRIGGER.match(pattern)
    return found[0] if found else ""


def count_undecided(text: str, marks: Collection[str]) -> int:
    """The length of the longest end of ``text`` that is the beginning of one of ``marks``."""
    longest = max(map(len, marks), default=1) - 1
    ends = (n for n in range(min(longest, len(text)), 0, -1) if any(m.startswith(text[-n:]) for m in marks))
    return next(ends, 0)


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


ABOUT = """# Tools

You may call these functions; each line is one, with the JSON schema of its arguments:
<tools>
{tools}
</tools>

To call one, write a JSON object with its name and arguments between these marks, and nothing after it:
<tool_call>
{{"name": <name>, "arguments": <arguments>}}
</tool_call>"""
"""for a template without tools: in the system message"""


def turns_for(prompt: ChatPrompt, family: ToolFamily | None) -> ChatPrompt:
    """``prompt`` for a model of ``family``; without one, tools, calls and results are written into texts."""
    if family is None:
        return _write_tools(prompt)
    if not family.short_ids:
        return prompt
    return replace(prompt, messages=tuple(_shorten_ids(message) for message in prompt.messages))


def _shorten_ids(message: Message) -> Message:
    calls = tuple(replace(call, id=_short(call.id)) for call in message.tool_calls)
    return replace(message, tool_calls=calls, tool_call_id=_short(message.tool_call_id))


def _short(id: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", id)[-9:].rjust(9, "0") if id else ""


def _write_tools(prompt: ChatPrompt) -> ChatPrompt:
    messages = [_as_text(message) for message in prompt.messages]
    if prompt.tools:
        about = ABOUT.format(tools="\n".join(as_json(to_builtins(tool)) for tool in prompt.tools))
        if messages[0].role == "system":
            about = f"{messages.pop(0).content}\n\n{about}"
        messages.insert(0, Message("system", about))
    return replace(prompt, messages=tuple(messages), tools=())


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    head, tail = HERMES.heads[0], HERMES.tails[0]
    calls = (f"{head.replace('@', call.name)}{call.arguments}{tail}" for call in message.tool_calls)
    return Message(message.role, "\n".join(filter(None, (message.content, *calls))))

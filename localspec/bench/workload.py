"""The benchmark's workloads: fixed prompts, and a conversation's next prompt from the last answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

import msgspec

from localspec.errors import InvalidOptions
from localspec.protocol.options import Options, unknown_key
from localspec.protocol.requests import ChatPrompt, Prompt, Request

CODE = "{code}"
"""placeholder in a turn's messages for the code that it edits"""
FENCED = re.compile(r"^```(?:python)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""a complete code block of an answer"""
USABLE_LENGTHS = (0.5, 1.5)
"""shortest and longest usable code, as multiples of the turn's own"""
QUICK_TURNS = 2


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request.

    ``{code}`` in the messages of ``prompt`` stands for the code to edit: that of the previous
    answer where it is usable (:func:`usable_code`), else ``code``, that of a right answer. A turn
    without ``code`` is sent as it is.
    """

    prompt: Prompt
    options: Options
    code: str = ""


class Case(msgspec.Struct, frozen=True):
    """Turns that follow one another; different cases are independent."""

    workload: str
    name: str
    turns: tuple[Turn, ...]


WORKLOADS = {
    "edit-short": "renames in short functions, two turns of one conversation: prompt lookup does best",
    "edit-long": "four edits of one file, each of the last answer: n-gram memory does best",
    "fim": "gaps at random cursor positions, half with other files as context, as editors send them",
    "chat": "questions answered in prose, half of them sampled: must not become slower",
    "story": "open-ended text at temperature 1: must not become slower, worst case",
}
"""purposes by name"""


def load_workload(name: str) -> tuple[Case, ...]:
    """The cases of one of :data:`WORKLOADS`; raises :class:`InvalidOptions` for another name."""
    if name not in WORKLOADS:
        raise InvalidOptions(
            unknown_key("workload", name, list(WORKLOADS)), f"Choose among: {', '.join(WORKLOADS)}."
        )
    return _stored(name)


@cache
def _stored(name: str) -> tuple[Case, ...]:
    lines = files("localspec.bench").joinpath("workloads", f"{name}.jsonl").read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Case) for line in lines)


def quick(cases: Iterable[Case]) -> tuple[Case, ...]:
    """The first cases, cut after two turns in all."""
    return tuple(_up_to(cases, QUICK_TURNS))


def _up_to(cases: Iterable[Case], left: int) -> Iterator[Case]:
    for case in cases:
        if not left:
            return
        turns = case.turns[:left]
        left -= len(turns)
        yield msgspec.structs.replace(case, turns=turns)


def usable_code(answer: str, expected: str) -> str | None:
    """The first complete code block of ``answer``, with its last line ended.

    None where there is no complete block, or where its length is not within half and one and a half
    of that of ``expected``: an answer that stopped early or did not end is not used as code to edit.
    """
    block = FENCED.search(answer)
    if block is None:
        return None
    shortest, longest = (len(expected) * share for share in USABLE_LENGTHS)
    return block[1] if shortest <= len(block[1]) <= longest else None


def request_of(turn: Turn, previous_answer: str | None = None) -> Request:
    """The request of ``turn`` after ``previous_answer``, the text of the answer before it."""
    prompt = turn.prompt
    if turn.code and isinstance(prompt, ChatPrompt):
        found = None if previous_answer is None else usable_code(previous_answer, turn.code)
        code = turn.code if found is None else found
        messages = (
            msgspec.structs.replace(message, content=message.content.replace(CODE, code))
            for message in prompt.messages
        )
        prompt = ChatPrompt(tuple(messages))
    return Request(prompt=prompt, options=turn.options)

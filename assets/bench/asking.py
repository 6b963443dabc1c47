"""Questions by HTTP in the dialects that localspec and llama-server share, answered greedily.

The client's clock gives the time to the first text, and tokens a second from the first text to the last. A
filled gap comes as one piece from localspec, so its tokens a second are those of each server's own clock.
"""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection
from typing import Any, Literal, NamedTuple

import msgspec

from assets.bench.servers import Server

GAP = "<GAP>"

Kind = Literal["chat", "raw", "fim"]


class Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class Question(NamedTuple):
    """The messages of a chat, or in the only one a text that is continued, or one with a gap."""

    messages: tuple[Message, ...]
    kind: Kind = "chat"

    def numbered(self, number: int) -> Question:
        """The same with a number at the beginning, so that no server has read it before."""
        first, *others = self.messages
        mark = f"{number}. " if self.kind == "chat" else f"# {number}\n"
        return self._replace(messages=(msgspec.structs.replace(first, content=mark + first.content), *others))

    def request(self) -> tuple[str, dict[str, Any]]:
        """Path and body of the request, without its options."""
        if self.kind == "chat":
            usage = {"stream_options": {"include_usage": True}}
            return "/v1/chat/completions", {"messages": msgspec.to_builtins(self.messages), **usage}
        text = self.messages[0].content
        if self.kind == "raw":
            return "/completion", {"prompt": text}
        prefix, _, suffix = text.partition(GAP)
        return "/infill", {"input_prefix": prefix, "input_suffix": suffix}


class Answer(msgspec.Struct, frozen=True):
    """``seconds`` of the whole request; ``rate``: tokens a second, None for an answer of a single piece."""

    first_ms: float
    seconds: float
    rate: float | None
    tokens: int
    drafted: int
    accepted: int
    text: str


def one(text: str) -> tuple[Message, ...]:
    """A chat that begins with this text."""
    return (Message("user", text),)


def ask(server: Server, question: Question, tokens: int, **fields: object) -> Answer:
    """Stream an answer of so many tokens at most; SystemExit with the answer of a server that refuses."""
    path, body = question.request()
    body |= {"stream": True, "temperature": 0, "n_predict": tokens, "max_tokens": tokens, **fields}
    connection = HTTPConnection(server.address)
    began = time.perf_counter()
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **server.headers})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"{server.address}{path}: {response.read().decode()}")
    first, last, text, found = 0.0, 0.0, "", dict[str, Any](predicted_n=0)
    while line := response.readline():
        if line.startswith(b"data: {"):
            now, event = time.perf_counter(), json.loads(line[6:])
            if piece := piece_of(event):
                first, last, text = first or now, now, text + piece
            found = event.get("timings") or found
    connection.close()
    whole, n = time.perf_counter() - began, found["predicted_n"]
    took = found.get("predicted_ms", 0.0) / 1000 if question.kind == "fim" else last - first
    rate = (n - 1) / took if took > 0 and n > 1 else None
    drafts = found.get("draft_n", 0), found.get("draft_n_accepted", 0)
    return Answer(1000 * ((first or began + whole) - began), whole, rate, n, *drafts, text)


def piece_of(event: dict[str, Any]) -> str:
    """The text of an event of any of the dialects, and the names and arguments of calls."""
    if "choices" not in event:
        return event.get("content") or ""
    deltas = [choice["delta"] for choice in event["choices"]]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    pieces = [delta.get("content") for delta in deltas] + [
        each.get(of) for each in calls for of in ("name", "arguments")
    ]
    return "".join(piece or "" for piece in pieces)

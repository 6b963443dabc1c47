"""A worker without a model: a real process on the real wire that answers with its prompt.

The last message, text or prefix may ask for more: ``stall`` (answers, then waits to be cancelled),
``flood N SIZE`` (N deltas of SIZE characters), ``lines FIFO`` (a delta for each line that comes),
``kill`` and ``exit 3`` (ends in the middle of the answer), ``fail``, ``degrade``, ``deaf`` (ignores
cancel), ``hang`` (does nothing any more), ``spin`` (does nothing but live), ``await PATH`` (until someone
writes to the FIFO), ``prompt``, ``options``, ``max_ms``, ``source``, ``priority`` and others (answers with
what it was given), ``engine`` (with how its model was to be loaded), ``odd`` (fails if its seed is odd, else
stalls), ``call`` (thinks, says a line, calls two tools) and ``then WORD`` (answers with a line of that
word).
What it is taught it writes to ``taught`` in the cache's directory. Of a prefix the last line counts.
The model ``broken`` cannot be loaded, nor as a draft model; a draft model ``waits`` until someone writes to
the FIFO ``gate`` beside it. ``dies`` exits while loading, ``gate:PATH`` loads
as soon as someone writes to the FIFO, ``late:PATH`` waits so before it ends, ``slow`` heartbeats for ever.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from localspec import home
from localspec.errors import LocalspecError, ModelInvalid, ModelTooLarge, OutOfMemory
from localspec.models.fit import needs_beside, needs_of
from localspec.models.pair import pair_from
from localspec.protocol import frames, requests
from localspec.protocol.frames import Load, RequestEvent, Submit
from localspec.protocol.messages import Placement
from localspec.protocol.requests import ChatPrompt, Delta, Request, Result, Token, ToolCall

BEAT_S = 0.05
BOS = 256

FIRST, SECOND = requests.CallBegun(0, "call_1", "weather"), requests.CallBegun(1, "call_2", "time")
CALLS = (
    Delta("They ask ", (), "thinking"),
    Delta("for two.", (), "thinking"),
    Delta("I look.", ()),
    Delta('{"city": ', (), "call", FIRST),
    Delta('"Oslo"}', (), "call", FIRST),
    Delta("{}", (), "call", SECOND),
)
"""the deltas of an answer that calls two tools"""


def called(load: Load) -> str:
    """The name by which the target was requested."""
    return load.pair.target.description.names[0]


class Running:
    """A request that is being answered."""

    def __init__(self, submit: Submit, load: Load) -> None:
        self.id = submit.id
        self.load = load
        calls = said(submit.request) == "call"
        self.words: Iterator[str | Delta] = iter(CALLS) if calls else words(submit.request, load)
        self.deaf = said(submit.request) == "deaf"
        self.spins = said(submit.request) == "spin"
        self.stalled = said(submit.request) in ("stall", "deaf", "spin", "odd")
        self.texts = {"answer": "", "thinking": ""}
        self.calls: dict[requests.CallBegun, str] = {}
        self.count = 0

    def delta(self, word: str | Delta) -> frames.Streamed:
        self.count += 1
        delta = word if isinstance(word, Delta) else Delta(word, (Token(self.count, "target", len(word)),))
        if delta.call is not None:
            self.calls[delta.call] = self.calls.get(delta.call, "") + delta.text
        else:
            self.texts[delta.channel] += delta.text
        return frames.make_streamed(self.id, delta)

    def done(self, reason: requests.FinishReason) -> RequestEvent:
        proposers = {"prompt-lookup": requests.ProposerStats(drafted=4, accepted=3)}
        choices = {"prompt-lookup": self.count}
        stats = requests.Stats(rounds=self.count, drafted=4, accepted=3, proposers=proposers, choices=choices)
        result = Result(
            text=self.texts["answer"],
            thinking=self.texts["thinking"],
            tool_calls=tuple(ToolCall(call.id, call.name, text) for call, text in self.calls.items()),
            finish_reason="tool_calls" if self.calls else reason,
            model=called(self.load),
            draft=None,
            backend="toy",
            prompt_tokens=1,
            cached_tokens=0,
            completion_tokens=self.count,
            stats=stats,
        )
        return RequestEvent(self.id, requests.Done(result))


def said(request: Request) -> str:
    match request.prompt:
        case ChatPrompt(messages):
            return messages[-1].content
        case requests.TextPrompt(text):
            return text
        case requests.TokenPrompt(tokens):
            return " ".join(map(str, tokens))
        case requests.FimPrompt(prefix=prefix):
            return prefix.rpartition("\n")[2]


def octets(text: str | tuple[int, ...] | ChatPrompt) -> bytes:
    """The tokens of what is tokenized: a chat as JSON."""
    if isinstance(text, tuple):
        return bytes(text)
    return text.encode() if isinstance(text, str) else msgspec.json.encode(text)


GIVEN = ("prompt", "options", "max_ms", "max_prompt_ms", "max_predict_ms", "source", "priority", "engine")


def words(request: Request, load: Load) -> Iterator[str]:
    """Yield the deltas of the answer."""
    match said(request).split():
        case ["stall" | "deaf" | "spin"]:
            yield "stalling"
        case ["hang"]:
            yield "hanging"
            signal.pause()
        case ["flood", count, size]:
            yield from ("x" * int(size) for _ in range(int(count)))
        case ["lines", fifo]:
            with open(fifo) as lines:
                yield from (line.strip() for line in lines)
        case ["await", path]:
            yield "waiting "
            Path(path).read_text()
            yield "done "
        case ["kill", *name]:
            yield "dying"
            os.kill(os.getpid(), signal.Signals[name[0] if name else "SIGKILL"])
        case ["exit", code]:
            yield "dying"
            os._exit(int(code))
        case [what] if what in GIVEN:
            given = getattr(load if what == "engine" else request, what)
            yield given if isinstance(given, str) else msgspec.json.encode(given).decode()
        case ["then", word]:
            yield "\n" + word
        case several:
            yield from (word + " " for word in several)


class EchoWorker:
    """Answers every running request by turns, a delta each."""

    def __init__(self, wire: socket.socket) -> None:
        self.wire = wire
        self.running: dict[int, Running] = {}
        self.steps, self.beaten = 0, 0.0
        self.source = ""
        self.load: Load | None = None
        self.name = ""

    def serve(self) -> None:
        while True:
            busy = any(not r.stalled or not r.count for r in self.running.values())
            idle_s = BEAT_S if self.running else None
            if select.select([self.wire], [], [], 0 if busy else idle_s)[0]:
                self.receive()
            if self.running:
                self.beat()
            for running in tuple(self.running.values()):
                self.step(running)

    def beat(self) -> None:
        """Send heartbeats; while a request spins no steps are done."""
        if (now := time.monotonic()) - self.beaten < BEAT_S:
            return
        self.beaten = now
        self.steps += not any(running.spins for running in self.running.values())
        self.send(frames.Heartbeat(self.steps, 0.0))

    def receive(self) -> None:
        (length,) = frames.HEADER.unpack(self.exactly(frames.HEADER.size))
        match frames.to_worker_decoder.decode(self.exactly(length)):
            case Load() as load:
                self.load, self.name = load, called(load)
                self.open(load)
            case frames.LoadDraft() as load_draft:
                self.draft(load_draft)
            case frames.DropDraft(id):
                self.answer(id, frames.Drafted())
            case Submit() as submit:
                self.submit(submit)
            case frames.Cancel(id) if id in self.running and not self.running[id].deaf:
                self.send(self.running.pop(id).done("cancelled"))
            case frames.TokenizeFrame(id, text, start, _, pieces):
                tokens = (BOS,) * start + tuple(octets(text))
                found = frames.TokenizedFrame(
                    tokens, tuple(bytes([token % 256]) for token in tokens) * pieces
                )
                self.answer(id, found)
            case frames.Teach(text=text):
                (home.cache_dir() / "taught").write_text(text)
            case frames.Rest(allowed) if self.name == "other":
                (home.cache_dir() / "rest of other").write_text(str(allowed))
            case frames.Stop():
                self.leave()
                sys.exit(0)

    def open(self, load: Load) -> None:
        self.answer(frames.LOAD, frames.Loading("weights", 0.5))
        pair = pair_from(load.pair)
        if self.name == "broken":
            self.fail(frames.LOAD, ModelInvalid("this model is broken"))
            sys.exit(1)
        if self.name == "dies":
            os._exit(7)
        if self.name.startswith("gate:"):
            Path(self.name.removeprefix("gate:")).read_text()
        while self.name == "slow":
            self.send(frames.Heartbeat(0, 0.0))
            time.sleep(BEAT_S)
        backend = load.pair.target.description.backend
        planned = needs_of(pair.target, None, load.engine).total if pair.target.path.exists() else 0
        ready = frames.TargetReady(
            self.name, backend, 4096, "it echoes", 0, 1, planned, 0, Placement(("Some GPU",), 3, 4)
        )
        self.answer(frames.LOAD, ready)

    def draft(self, load: frames.LoadDraft) -> None:
        pair = pair_from(load.pair)
        assert pair.draft is not None and self.load is not None
        self.answer(load.id, frames.Loading("draft", 0.5))
        name, needs = pair.draft.path.stem, needs_beside(pair.target, pair.draft, self.load.engine, 1)
        if name.startswith("waits"):
            (pair.draft.path.parent / "gate").read_text()
        if "broken" in name and pair.drafter.asked:
            self.fail(load.id, ModelInvalid("this draft is broken"))
        elif pair.drafter.asked and load.free is not None and needs.total > load.free:
            self.fail(load.id, ModelTooLarge("it has no room"))
        else:
            self.answer(load.id, frames.Drafted("broken" not in name, "it was wanted", needs.total))

    def leave(self) -> None:
        """Write the cache of the last chat, as late as was requested."""
        if self.name.startswith("late:"):
            Path(self.name.removeprefix("late:")).read_text()
            place = home.private_dir(home.chat_caches_dir() / "echo") / home.chat_cache_name(self.source)
            place.write_text("what was said")

    def submit(self, submit: Submit) -> None:
        self.source = submit.request.source
        self.send(frames.make_streamed(submit.id, requests.Progress()))
        match said(submit.request), (submit.request.options.seed or 0) % 2:
            case ("fail", _) | ("odd", 1):
                self.fail(submit.id, OutOfMemory("no memory is left"))
                return
            case "degrade", _:
                slow = requests.Degraded("draft", "prompt-lookup", "the draft is slow")
                self.send(frames.make_streamed(submit.id, slow))
        assert self.load is not None
        self.running[submit.id] = Running(submit, self.load)

    def step(self, running: Running) -> None:
        word = next(running.words, None)
        if word is not None:
            self.send(running.delta(word))
        elif not running.stalled:
            del self.running[running.id]
            self.send(running.done("stop"))

    def answer(self, id: int, event: frames.Answer) -> None:
        self.send(RequestEvent(id, event))

    def fail(self, id: int, error: LocalspecError) -> None:
        self.answer(id, requests.Failed(error.as_dict()))

    def send(self, frame: frames.FromWorker) -> None:
        self.wire.sendall(frames.encode_frame(frame))

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (part := self.wire.recv(size - len(data))):
                sys.exit(0)
            data += part
        return data


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    with socket.socket(fileno=parser.parse_args().fd) as wire:
        EchoWorker(wire).serve()

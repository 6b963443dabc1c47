"""Between daemon and worker: length-prefixed msgpack frames over a socket pair."""

from __future__ import annotations

import struct
from typing import BinaryIO, NamedTuple

import msgspec

from localspec.protocol.messages import ModelDescription, Placement
from localspec.protocol.requests import (
    ChatPrompt,
    Degraded,
    Delta,
    Done,
    EngineConfig,
    Failed,
    Progress,
    Request,
    StreamEvent,
)

HEADER = struct.Struct("<I")
MAX_FRAME = 64 * 1024 * 1024
LOAD = 0
"""the id of the load among a worker's jobs"""
Signature = tuple[tuple[int, int, int, int], ...]
"""of each of a model's files: size, times of the last change of content and of permissions (ns), inode"""


class ModelFile(msgspec.Struct, frozen=True):
    """A model at a path (bytes, not always valid text), with its files' state when it was chosen."""

    path: bytes
    signature: Signature
    description: ModelDescription


class PairFile(msgspec.Struct, frozen=True):
    """A target, the reason for its backend, its drafter, and the reason for it or for none; ``asked``: it was
    named, not chosen."""

    target: ModelFile
    why: str
    draft: ModelFile | None
    draft_why: str
    asked: bool


class Load(msgspec.Struct, frozen=True, tag=True):
    """First frame to a worker: open the target of this pair, with room for the draft model; answered by
    Loading events and one Ready or Failed of the id :data:`LOAD`. After a Failed the worker exits. ``free``:
    bytes of memory that it may use; None: all free memory."""

    pair: PairFile
    engine: EngineConfig
    free: int | None = None


class LoadDraft(msgspec.Struct, frozen=True, tag=True):
    """Open the draft model of this pair, too; answered by Loading events and one Drafted or Failed."""

    id: int
    pair: PairFile
    free: int | None = None


class DropDraft(msgspec.Struct, frozen=True, tag=True):
    """Free the draft model that the LoadDraft ``draft`` has loaded; answered by one Drafted."""

    id: int
    draft: int


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Run a request; answered by its events, ending with one Done or Failed. ``draft``: the LoadDraft of its
    draft model; None: none."""

    id: int
    request: Request
    draft: int | None = None


class TokenizeFrame(msgspec.Struct, frozen=True, tag=True):
    """Tokenize a text or a chat, as :class:`~localspec.protocol.messages.Tokenize` says; answered by one
    Tokenized or Failed of the same id."""

    id: int
    text: str | tuple[int, ...] | ChatPrompt
    start: bool
    special: bool
    pieces: bool


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End a request at the next round; it still answers Done, with the text so far."""

    id: int


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Drop all that was computed for a source, such as ``chat:<session>``."""

    source: str


class Teach(msgspec.Struct, frozen=True, tag=True):
    """Learn ``text``, which was accepted into the file at ``path``, at idle time."""

    path: str
    text: str
    workspace: str | None = None


class Rest(msgspec.Struct, frozen=True, tag=True):
    """Do the chores of an idle model only while ``allowed``: while no other model is at work."""

    allowed: bool


class GrantTurn(msgspec.Struct, frozen=True, tag=True):
    """Compute for ``seconds`` from the begin of the turn with this ``number``, then answer TurnOver and wait.
    Infinite seconds: compute without turns. Number 0: no turn, its seconds do not count."""

    number: int
    seconds: float


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Free everything and exit."""


class Loading(msgspec.Struct, frozen=True, tag=True):
    """Progress of a load: the ``fraction`` of its ``stage``, 0 to 1."""

    stage: str
    fraction: float


class TargetReady(msgspec.Struct, frozen=True, tag=True):
    """The target is loaded, for this reason by this backend. ``offloaded_bytes`` of its weights are in a
    GPU's memory; ``sequences`` can run at once. ``planned_bytes`` of memory are needed, ``mapped_bytes`` of
    them for pages of files."""

    model: str
    backend: str
    n_ctx: int
    reason: str
    offloaded_bytes: int = 0
    sequences: int = 0
    planned_bytes: int = 0
    mapped_bytes: int = 0
    placement: Placement | None = None


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """Sent each second while there is work: the number of steps done, and the predicted seconds of a step."""

    steps: int
    predicted_s: float


class TurnOver(msgspec.Struct, frozen=True, tag=True):
    """The worker has requests and waits for its next turn; this one took ``seconds``."""

    number: int
    seconds: float


class TokenizedFrame(msgspec.Struct, frozen=True, tag="tokenized"):
    """The tokens of a text, and the bytes that each adds to it if those were requested."""

    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]


class Drafted(msgspec.Struct, frozen=True, tag="drafted"):
    """A draft model is ``loaded``, or left out for this reason; its memory, as in :class:`TargetReady`."""

    loaded: bool = False
    why: str = ""
    planned_bytes: int = 0
    mapped_bytes: int = 0


Answer = Done | Failed | TokenizedFrame | Drafted | TargetReady | Loading


class RequestEvent(msgspec.Struct, frozen=True, tag=True):
    """The end of the request, or an event of the answer to another frame, with this ``id``."""

    id: int
    event: Answer


class Streamed(NamedTuple):
    """An event before the end of the request with this ``id``, for its client: ``params`` of the notification
    ``method`` are a JSON object, to which the daemon adds the client's ``request``, and the ``seq`` of a
    delta."""

    id: int
    method: str
    params: bytes


ToWorker = (
    Load | LoadDraft | DropDraft | Submit | TokenizeFrame | Cancel | Forget | Teach | Rest | GrantTurn | Stop
)
FromWorker = Heartbeat | RequestEvent | Streamed | TurnOver

DELTA, PROGRESS, DEGRADED = "stream/delta", "stream/progress", "speculation/degraded"
"""methods of the notifications of a request's events"""
_METHODS = {Delta: DELTA, Degraded: DEGRADED}

_packer = msgspec.msgpack.Encoder()
to_worker_decoder = msgspec.msgpack.Decoder(ToWorker)
from_worker_decoder = msgspec.msgpack.Decoder(FromWorker)


def encode_frame(message: msgspec.Struct | Streamed) -> bytes:
    """One frame: a 4-byte little-endian length, then msgpack."""
    body = _packer.encode(message)
    return HEADER.pack(len(body)) + body


def read_frame(stream: BinaryIO, most: int) -> bytes | None:
    """The msgpack of the next frame; None at the end of the stream, also within a frame. Raises ValueError
    for more than ``most`` bytes."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    if length > most:
        raise ValueError(f"a frame of {length} bytes")
    body = stream.read(length)
    return body if len(body) == length else None


def make_streamed(id: int, event: StreamEvent) -> Streamed:
    if isinstance(event, Progress):
        facts = {"stage": "prefill", "fraction": event.fraction, **msgspec.to_builtins(event)}
        return Streamed(id, PROGRESS, msgspec.json.encode(facts))
    return Streamed(id, _METHODS[type(event)], msgspec.json.encode(event))

"""Between daemon and worker: length-prefixed msgpack frames over a socket pair.

Frames carry typed structs, so a worker never sees JSON and the daemon never sees numpy.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from localspec.config import EngineConfig
from localspec.protocol.events import Event
from localspec.protocol.pairs import PairFile
from localspec.protocol.requests import Request

HEADER = struct.Struct("<I")
MAX_FRAME = 64 * 1024 * 1024


class Load(msgspec.Struct, frozen=True, tag=True):
    """First frame to a worker: open this pair. Answered by LoadFailed with ``model_changed`` where a file is
    not as it was when the pair was chosen.

    ``free``: bytes of memory that it may use; None: what is free.
    """

    pair: PairFile
    engine: EngineConfig
    free: int | None = None


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Run a request; answered by its events, of which one Done or Failed is the last.

    ``watch``: with a Round for each of its rounds.
    """

    id: int
    request: Request
    watch: bool = False


class Tokenize(msgspec.Struct, frozen=True, tag=True):
    """Find a text's tokens; answered by one Tokenized or Failed of the same id.

    ``start``: with the token before it that texts begin with. ``special``: names of special tokens are those.
    ``pieces``: with the bytes of each.
    """

    id: int
    text: str
    start: bool
    special: bool
    pieces: bool


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End a request at the next round; it still answers Done, with what it has."""

    id: int


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Give up what was computed of a source, such as ``chat:<session>``."""

    source: str


class Teach(msgspec.Struct, frozen=True, tag=True):
    """What was accepted into the file at ``path`` is worth remembering, at idle time."""

    path: str
    text: str
    workspace: str | None = None


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Free everything and exit."""


class Loading(msgspec.Struct, frozen=True, tag=True):
    """How far the model is loaded, 0 to 1."""

    stage: str
    fraction: float


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded: what was paired with what, and why; and their places on the disk."""

    model: str
    draft: str | None
    backend: str
    n_ctx: int
    reason: str
    path: str = ""
    draft_path: str | None = None


class LoadFailed(msgspec.Struct, frozen=True, tag=True):
    """The model could not be loaded; the worker exits after this."""

    error: dict[str, str]


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """Each second while there is work: how many steps were done, and how long one may be expected to take."""

    steps: int
    predicted_s: float


class Tokenized(msgspec.Struct, frozen=True, tag="tokenized"):
    """The tokens of a text, and the bytes that each adds to it if those are wanted."""

    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]


class RequestEvent(NamedTuple):
    """An event of the request, or the answer to the Tokenize, that is called ``id``."""

    id: int
    event: Event | Tokenized


ToWorker = Load | Submit | Tokenize | Cancel | Forget | Teach | Stop
FromWorker = Heartbeat | Loading | Ready | LoadFailed | RequestEvent

_encoder = msgspec.msgpack.Encoder()
to_worker_decoder = msgspec.msgpack.Decoder(ToWorker)
from_worker_decoder = msgspec.msgpack.Decoder(FromWorker)


def encode_frame(message: ToWorker | FromWorker) -> bytes:
    """One frame: a 4-byte little-endian length, then msgpack."""
    body = _encoder.encode(message)
    return HEADER.pack(len(body)) + body

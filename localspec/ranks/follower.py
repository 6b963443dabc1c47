"""A rank that replays: it loads its share of the model, and repeats the calls of the first rank."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from localspec.backends.base import Backend
from localspec.config import load_config
from localspec.engine.load import room_for
from localspec.errors import EngineError, InvalidOptions, LocalspecError, ModelInvalid
from localspec.models.directory import ModelDirectory
from localspec.models.library import find as by_name
from localspec.models.model import Model
from localspec.models.needs import size_of
from localspec.ranks import frames
from localspec.ranks.frames import (
    Change,
    Find,
    Forward,
    Frame,
    Hello,
    ModelFound,
    Ping,
    RankReady,
    Refused,
    Start,
)
from localspec.ranks.peer import GREETING_S, SSHD, Peer

CHECKED = 16
"""one in so many forwards has its choices compared"""
PR_SET_PDEATHSIG = 1
log = logging.getLogger(__name__)


class FirstPeer(Peer):
    """The first rank. Its silence only leaves this process over: it may have other work for a while."""

    silent_s = 30.0


def main() -> NoReturn:
    """Follow a first rank over stdin and stdout until it ends; what libraries print goes to stderr. Raises
    :class:`InvalidOptions` on a terminal."""
    if os.isatty(0) or os.isatty(1):
        raise InvalidOptions(
            "`localspec follow` speaks with the daemon of another machine, which starts it by ssh",
            "Name this machine in `nodes` there.",
        )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    reading, writing = os.fdopen(0, "rb", closefd=False), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    peer = FirstPeer("first", reading, writing)
    try:
        follow(peer, *addresses())
    except LocalspecError as error:
        peer.send(Refused(error.as_dict()))
    except Exception as error:
        # Of any kind: the first rank shows it to its user.
        log.error("this node failed", exc_info=error)
        peer.send(Refused(EngineError(f"a node failed: {type(error).__name__}: {error}").as_dict()))
    sys.stderr.flush()
    os._exit(1)


def addresses() -> tuple[str, str]:
    """This machine's address and the first rank's, as sshd sees them; without it both are this machine."""
    match os.environ.get(SSHD, "").split():
        case [first, _, own, _]:
            return own, first
    return "127.0.0.1", "127.0.0.1"


def free_port(address: str) -> str:
    """The address with a port that is free now."""
    with socket.create_server((address, 0)) as server:
        return f"{address}:{server.getsockname()[1]}"


def follow(peer: Peer, own: str, first: str) -> None:
    """Greet, load, and replay calls until the first rank ends this process by its own end. Raises every error
    of :mod:`localspec.ranks.frames` and of loading."""
    peer.send(Hello(frames.PROTOCOL, frames.versions()))
    while isinstance(find := peer.receive(GREETING_S), Ping):
        peer.send(Ping())
    if not isinstance(find, Find):
        raise EngineError(f"internal error: the first rank sent {type(find).__name__}")
    model = found_model(find)
    check_room(model, find)
    assert isinstance(model.header, ModelDirectory)
    # MLX takes seconds to import, in which no rank may wait for this one.
    from localspec.backends.mlx import backend, native

    peer.send(ModelFound(frames.digests_of(model.header), free_port(own), first))
    start = peer.expect(Start)
    # From here on native code waits for other ranks: this process must end with the first one.
    peer.watch(lambda error: os._exit(1))
    group = native.ring(start.rank, start.hosts)
    share = backend.MlxBackend(model, find.config, group=group)
    limits = share.capabilities
    peer.send(RankReady((limits.n_ctx, limits.max_sequences, limits.max_batch)))
    while True:
        replay(share, peer.receive(), peer)


def found_model(find: Find) -> Model:
    """The model at the first rank's path, or of its name here; raises :class:`ModelNotFound` and
    :class:`ModelInvalid`."""
    name = find.path if Path(find.path).is_dir() else find.name
    model = by_name(name, load_config().model_dirs, format="mlx")
    if not isinstance(model.header, ModelDirectory):
        raise ModelInvalid(f"{find.name} is no MLX directory on this node")
    return model


def check_room(model: Model, find: Find) -> None:
    """Raise :class:`ModelTooLarge` if this machine has too little memory for its share."""
    free = room_for(find.config).free(model)
    if free is not None:
        share = size_of(model, find.config).over(find.machines)
        share.needs(None, find.config, free).check(f"its share of {find.name}", free)


def replay(backend: Backend, frame: Frame, peer: Peer) -> None:
    """Repeat one call; raises :class:`EngineError` if its result is another one than the first rank's."""
    match frame:
        case Forward():
            choices = backend.forward(frame.spans).argmax()
            if frame.number % CHECKED == 0:
                peer.send(frames.Choices(frame.number, digest_of(choices)))
        case Change(method=method, arguments=arguments):
            own = getattr(backend, method)(*arguments)
            same(frame, own, frame.result)
            if method == "fork":
                same(frame, backend.length(own), arguments[1])
        case _:
            raise EngineError(f"internal error: the first rank sent {type(frame).__name__}")


def same(frame: Frame, own: int | None, first: int | None) -> None:
    """Raise :class:`EngineError` if two ranks have different results of a call."""
    if own != first:
        raise EngineError(f"the ranks disagree: {frame} gave {own} on a node, {first} on the first machine")


def digest_of(choices: Sequence[int]) -> int:
    return zlib.crc32(",".join(map(str, choices)).encode())

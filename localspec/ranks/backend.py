"""The backend of the first rank: an MLX model that other machines share."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, Protocol

from msgspec.structs import replace

from localspec.backends.base import Backend, Logits, Rows, Span
from localspec.errors import EngineError, InvalidOptions, LocalspecError, ModelInvalid, NodeLost
from localspec.models.directory import ModelDirectory
from localspec.models.gguf import REMEDY
from localspec.models.model import Model
from localspec.protocol.requests import EngineConfig
from localspec.ranks import frames
from localspec.ranks.follower import CHECKED, digest_of, free_port
from localspec.ranks.frames import Change, Find, Forward, ModelFound, RankReady, Start
from localspec.ranks.peer import GREETING_S, LOCAL, Lost, Peer, greet

NOTICED_S = 2.0
"""seconds in which the loss of a node is noticed whose end has ended a forward already"""


def open_over_nodes(
    model: Model, config: EngineConfig, progress: Callable[[float], None] | None, lost: Lost
) -> Ranks:
    """Load a model over the nodes of ``config``. ``lost`` is called, from any thread, with the error by which
    a node was lost after the greeting: native code may then wait for it for ever, so it must end this
    process. Raises what a node or this machine refuses."""
    from localspec.backends.mlx import backend, native

    directory = model.header
    if not isinstance(directory, ModelDirectory):
        raise ModelInvalid(f"{model.path} is a file, not a model directory", REMEDY)
    if LOCAL in config.nodes and {*config.nodes} != {LOCAL}:
        raise InvalidOptions(f"other machines cannot reach the node {LOCAL!r}", "Name it alone, or not.")
    native.check_divides(directory, 1 + len(config.nodes))
    with contextlib.ExitStack() as stack:
        peers: list[Peer] = []
        for node in config.nodes:
            peers.append(greet(node))
            stack.callback(peers[-1].close)
        hosts = _find_on_nodes(model, directory, config, peers)
        for rank, peer in enumerate(peers, 1):
            peer.watch(lost)
            peer.send(Start(rank, hosts))
        try:
            group = native.ring(0, hosts)
            inner = backend.MlxBackend(model, config, progress=progress, group=group)
        except LocalspecError as error:
            raise _loss_of(peers) or error from None
        stack.callback(inner.free)
        limits = inner.capabilities
        sizes = limits.n_ctx, limits.max_sequences, limits.max_batch
        for peer in peers:
            ready = peer.receive(GREETING_S)
            if ready != RankReady(sizes):
                raise EngineError(f"the ranks disagree: {ready} on node {peer.name}, {sizes} here")
        stack.pop_all()
        return Ranks(inner, peers, lost)


def _find_on_nodes(
    model: Model, directory: ModelDirectory, config: EngineConfig, peers: Sequence[Peer]
) -> list[list[str]]:
    """Have all nodes find the model; return the addresses of all ranks."""
    alone, own = replace(config, nodes=()), frames.digests_of(directory)
    for peer in peers:
        peer.send(Find(model.own_name, str(directory.path), alone, len(peers) + 1))
    found = [peer.expect(ModelFound) for peer in peers]
    for peer, each in zip(peers, found, strict=True):
        frames.check_digests(peer.name, model.own_name, each.digests, own)
    name, seen = peers[-1].name, found[-1].first
    try:
        return [[free_port(seen)], *([each.own] for each in found)]
    except OSError as error:
        raise NodeLost(
            f"this machine cannot listen at {seen}, where node {name} sees it: {error}",
            "Use a network in which the machines reach each other directly.",
        ) from None


def _loss_of(peers: Sequence[Peer]) -> LocalspecError | None:
    """The error of a node whose end may have caused one here."""
    found = (peer.loss_within(NOTICED_S) for peer in peers)
    return next((loss for loss in found if loss is not None), None)


class ShareBackend(Backend, Protocol):
    """A backend over one rank's share of a model."""

    def check(self, batch: Sequence[Span]) -> None:
        """Raise :class:`EngineError` if a forward of ``batch`` is not possible."""


class Ranks:
    """See :class:`localspec.backends.base.Backend`. Every call that changes something is made here, then on
    the other ranks, except a forward, for which all must be there at once."""

    def __init__(self, inner: ShareBackend, peers: Sequence[Peer], lost: Lost) -> None:
        self._inner, self._peers, self._lost = inner, peers, lost
        self._forwards = 0
        self._checked: tuple[int, Logits] | None = None
        """the last forward whose choices the other ranks send, until they are compared"""
        self.name, self.model, self.description = inner.name, inner.model, inner.description
        self.vocabulary, self.defaults = inner.vocabulary, inner.defaults
        self.capabilities = dataclasses.replace(inner.capabilities, saves=False)

    def _tell(self, frame: frames.Call) -> None:
        for peer in self._peers:
            peer.send(frame)

    def open(self) -> int:
        sequence = self._inner.open()
        self._tell(Change("open", [], sequence))
        return sequence

    def forward(self, batch: Sequence[Span]) -> Logits:
        self._compare()
        self._inner.check(batch)
        self._forwards += 1
        self._tell(Forward(self._forwards, list(batch)))
        with self.share_errors():
            logits = WatchedLogits(self._inner.forward(batch), self)
        if self._forwards % CHECKED == 0:
            self._checked = self._forwards, logits
        return logits

    @contextmanager
    def share_errors(self) -> Iterator[None]:
        """Make an error inside the loss of all nodes."""
        try:
            yield
        except Exception as error:
            # Of any kind: the nodes may have done something else.
            failed = NodeLost(f"a forward over {len(self._peers) + 1} machines failed: {error}")
            self._end(_loss_of(self._peers) or failed)

    def _compare(self) -> None:
        if self._checked is None or any(peer.choices.forward != self._checked[0] for peer in self._peers):
            return
        own = digest_of(self._checked[1].argmax())
        self._checked = None
        for peer in self._peers:
            if peer.choices.digest != own:
                self._end(NodeLost(f"the ranks disagree: node {peer.name} chose other tokens"))

    def _end(self, error: LocalspecError) -> NoReturn:
        self._lost(error)
        raise error

    def rollback(self, sequence: int) -> int | None:
        return self._inner.rollback(sequence)

    def reach(self, sequence: int, length: int) -> int:
        return self._inner.reach(sequence, length)

    def truncate(self, sequence: int, length: int) -> int:
        kept = self._inner.truncate(sequence, length)
        self._tell(Change("truncate", [sequence, kept], kept))
        return kept

    def mark(self, sequence: int) -> None:
        self._inner.mark(sequence)
        self._tell(Change("mark", [sequence]))

    def fork(self, sequence: int, length: int) -> int:
        copy = self._inner.fork(sequence, length)
        self._tell(Change("fork", [sequence, self._inner.length(copy)], copy))
        return copy

    def preempt(self, on: bool) -> None:
        return

    def save(self, sequence: int) -> bytearray:
        raise EngineError("internal error: a sequence over several machines cannot be saved")

    def restore(self, state: bytearray) -> int:
        raise EngineError("internal error: no sequence can be restored over several machines")

    def close(self, sequence: int) -> None:
        self._inner.close(sequence)
        self._tell(Change("close", [sequence]))

    def length(self, sequence: int) -> int:
        return self._inner.length(sequence)

    def free(self) -> None:
        for peer in self._peers:
            peer.close()
        self._checked = None
        self._inner.free()


class WatchedLogits:
    """Rows whose computation other ranks share: an error that shows only when they are read is a loss."""

    def __init__(self, logits: Logits, ranks: Ranks) -> None:
        self._logits, self._ranks = logits, ranks

    def argmax(self) -> Sequence[int]:
        with self._ranks.share_errors():
            return self._logits.argmax()

    def margins(self) -> Sequence[float]:
        with self._ranks.share_errors():
            return self._logits.margins()

    def choice(self, i: int) -> int | None:
        with self._ranks.share_errors():
            return self._logits.choice(i)

    def rows(self, start: int, stop: int) -> Rows:
        with self._ranks.share_errors():
            return self._logits.rows(start, stop)

    def row(self, i: int) -> Rows:
        with self._ranks.share_errors():
            return self._logits.row(i)

"""The frames between the first rank and another one, and what both compare before they begin.

A follower greets with :class:`Hello`; for a :class:`Find` it answers :class:`ModelFound`, and gets
:class:`Start`. Both connect and load, then it answers :class:`RankReady` and replays calls. Instead of any
frame it may send :class:`Refused`, which is its last one. Both sides send beats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import metadata
from typing import BinaryIO, Literal, cast

import msgspec

from localspec._version import __version__
from localspec.backends.base import Span
from localspec.errors import ModelInvalid, VersionSkew
from localspec.models.directory import CONFIG, ModelDirectory
from localspec.protocol.frames import read_frame
from localspec.protocol.requests import EngineConfig

PROTOCOL = 3
MAX_FRAME = 1 << 20
"""bytes of a frame: a forward of 200,000 tokens; more are damage"""
SAMPLES = 16
"""places of a file of weights that are compared, beside its header"""
SAMPLE = 1 << 16
"""bytes compared at each of them"""
LENGTH = 8
"""bytes of the length of a header, which was checked when the directory was read"""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A follower's first frame."""

    protocol: int
    versions: dict[str, str]


class Find(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The model to look for, at its path or else by its name, and how many machines share it."""

    name: str
    path: str
    config: EngineConfig
    machines: int


class ModelFound(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The digests of the model's files, and the addresses for the ring: the follower's own with a free port,
    and the first rank's as the follower sees it."""

    digests: dict[str, str]
    own: str
    first: str


class Start(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The follower's number, and the addresses of all ranks in order."""

    rank: int
    hosts: list[list[str]]


class RankReady(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The model is loaded. ``sizes``: what must be equal on all ranks."""

    sizes: tuple[int, int, int]


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The sender is there."""


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """The receiver answers with another one."""


class Choices(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A digest of the most probable tokens of forward number ``forward``."""

    forward: int
    digest: int


class Forward(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """``number`` counts forwards from 1."""

    number: int
    spans: list[Span]


class Change(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Another call of the backend, and its result on the first rank."""

    method: Literal["open", "truncate", "mark", "fork", "close"]
    arguments: list[int]
    result: int | None = None


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The error that ends the sender, as a dictionary."""

    error: dict[str, str]


Call = Forward | Change
Frame = Hello | Find | ModelFound | Start | RankReady | Beat | Ping | Choices | Call | Refused
_decoder = msgspec.msgpack.Decoder(Frame)


def read(stream: BinaryIO) -> Frame | None:
    """The next frame; None at the end of the stream. Raises ValueError for one that is damaged."""
    body = read_frame(stream, MAX_FRAME)
    return None if body is None else cast(Frame, _decoder.decode(body))


def versions() -> dict[str, str]:
    """The versions that must be equal on all ranks."""
    return {"localspec": __version__, **{name: _version(name) for name in ("mlx", "mlx-lm")}}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def check_versions(node: str, hello: Hello, own: Mapping[str, str]) -> None:
    """Raise :class:`VersionSkew` with the first difference between a node and this machine."""
    found = {"protocol": str(hello.protocol), **hello.versions}
    for name, version in {"protocol": str(PROTOCOL), **own}.items():
        if (other := found.get(name, "not there")) != version:
            raise VersionSkew(
                f"{name} is {other} on node {node}, and {version} on this machine",
                "Install the same versions on all machines.",
            )


def check_digests(node: str, model: str, digests: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Raise :class:`ModelInvalid` with the first file of a model that differs on a node."""
    for name in sorted({*digests, *own}):
        if digests.get(name) != own.get(name):
            raise ModelInvalid(
                f"{name} of {model} is not the same on node {node}",
                f"Copy the model's directory to {node}, or download the same revision there.",
            )


def digests_of(directory: ModelDirectory) -> dict[str, str]:
    """A digest by name of the configuration and of each file of weights: its size, header and samples."""
    found = {CONFIG: hashlib.sha256((directory.path / CONFIG).read_bytes()).hexdigest()}
    for path in directory.weights:
        size = path.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        with path.open("rb") as file:
            digest.update(file.read(int.from_bytes(file.read(LENGTH), "little")))
            for place in range(SAMPLES + 1):
                file.seek(max(0, size - SAMPLE) * place // SAMPLES)
                digest.update(file.read(SAMPLE))
        found[path.name] = digest.hexdigest()
    return found

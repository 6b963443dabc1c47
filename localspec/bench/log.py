"""Token logs: prompts and answers of a model as token ids; one JSON line a request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from localspec.bench.results import write_whole
from localspec.errors import InvalidOptions


class Log(msgspec.Struct, frozen=True):
    """One plain answer: ``output`` follows ``prompt``, without an end token."""

    workload: str
    case: str
    turn: int
    prompt: list[int]
    output: list[int]


def write_logs(path: Path, logs: Iterable[Log]) -> None:
    """Write a log file; raises :class:`LocalspecError`."""
    write_whole(path, "".join(msgspec.json.encode(log).decode() + "\n" for log in logs))


def read_logs(path: Path) -> list[Log]:
    """Read a log file.

    Raises :class:`InvalidOptions` for a file that cannot be read, or with the number of the first line
    that is not a log.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidOptions(f"{path} cannot be read: {error.strerror}", "Give a readable file.") from None
    logs = []
    for number, line in enumerate(lines, 1):
        try:
            logs.append(msgspec.json.decode(line, type=Log))
        except msgspec.DecodeError as error:
            raise InvalidOptions(
                f"{path}:{number} is not a token log: {error}",
                "Record one with `localspec bench --record FILE`.",
            ) from None
    return logs

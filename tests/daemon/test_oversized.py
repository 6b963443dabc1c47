"""Strings of nearly a frame wherever a client can put one: answers, log and memory stay small."""

from __future__ import annotations

import json

import psutil
import pytest

from localspec.protocol.jsonrpc import LONGEST_SENTENCE
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import REAL_DAEMON, Frame, Raw, raw
from tests.protocol.strings import TEXTS, string_fields

HUGE = 3_900_000
MIB = 1024 * 1024
LONGEST_ANSWER = 3 * LONGEST_SENTENCE
"""characters: a message, again in the data, and a remedy"""
MORE_BYTES = 60 * MIB
"""beyond what it had after the first request: of one frame several copies are held while it is read"""
LOOSE = [
    '{"jsonrpc": "2.0", "id": 1, "method": "%s"}',
    '{"jsonrpc": "2.0", "id": "%s", "method": "metrics"}',
    '{"jsonrpc": "%s", "id": 1, "method": "metrics"}',
    '{"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"%s": 1}}',
    '{"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"prompt": "x", "options": {"%s": 1}}}',
    '{"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"prompt": "x", "options": {"k": "%s"}}}',
    '{"jsonrpc": "2.0", "id": 1, "method": "events/subscribe", "params": {"kinds": ["%s"]}}',
    '{"jsonrpc": "2.0", "id": 1%s, "method": "metrics"}',
    "%s",
]


def calls(value: str, names: tuple[str, ...] = ()) -> list[str]:
    """A call for each field, or each of these ``names``, with ``value`` there."""
    fields = [(field, field.path.rpartition(".")[2]) for field in string_fields()]
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": field.method, "params": field.around(value)}
        for field, name in fields
        if name not in TEXTS and field.method != "$/cancelRequest" and name in (names or (name,))
    ]
    return list(map(json.dumps, messages))


async def refused(client: Raw, text: str) -> int:
    """The length of the answer, which must be an error."""
    await client.say(text)
    answer: Frame = await client.next()
    while "method" in answer:
        answer = await client.next()
    client.unclaimed.clear()
    client.seen.clear()
    assert "error" in answer, answer
    return len(json.dumps(answer, ensure_ascii=False))


@pytest.mark.slow
async def test_a_string_of_megabytes_costs_no_log_no_answer_and_no_memory(start: StartDaemon) -> None:
    daemon = start(command=(*REAL_DAEMON, "--log"))
    process = psutil.Process(daemon.process.pid)
    attempts = [*calls("x" * HUGE), *(text % ("x" * HUGE) for text in LOOSE)]

    async with raw(daemon) as client:
        await refused(client, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x" * HUGE}))
        before = process.memory_info().rss
        longest = max([await refused(client, text) for text in attempts])
        grown = process.memory_info().rss - before
    log = (daemon.home / "state" / "daemon.log").stat().st_size
    print(f"longest answer {longest} characters, log {log} bytes, {grown / MIB:.0f} MiB more")
    assert longest <= LONGEST_ANSWER
    assert log < 100_000
    assert grown < MORE_BYTES


@pytest.mark.slow
async def test_names_as_long_as_may_be_leave_short_lines(start: StartDaemon) -> None:
    """Names within the bounds reach disks, workers and the log."""
    daemon = start(command=(*REAL_DAEMON, "--log"))
    async with raw(daemon) as client:
        attempts = calls("/" + "x" * 4000, ("model", "draft"))
        longest = max([await refused(client, text) for text in attempts])
    log = (daemon.home / "state" / "daemon.log").read_text()
    assert longest <= LONGEST_ANSWER
    assert max(map(len, log.splitlines())) <= 2100, "a line repeats a name at length"

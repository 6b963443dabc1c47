"""The codec under fire: any input becomes a message or a documented fault that can itself be sent."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from localspec.errors import QueueFull
from localspec.protocol import jsonrpc
from localspec.protocol.jsonrpc import Call, ProtocolFault, Response
from localspec.protocol.messages import METHODS, params_of
from tests.mutation import JSON_PIECES, Mutator

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
UNDECODABLE = {jsonrpc.PARSE_ERROR, jsonrpc.INVALID_REQUEST}
UNUSABLE = {jsonrpc.METHOD_NOT_FOUND, jsonrpc.INVALID_PARAMS}


def example_messages() -> list[bytes]:
    """Return the messages of the golden conversations, a call of every method, and answers."""
    said = [
        line["client"]
        for path in sorted(TRANSCRIPTS.glob("*.jsonl"))
        for line in map(json.loads, path.read_text().splitlines()[1:])
        if "client" in line
    ]
    calls = [jsonrpc.request("id", method, {}).encode() for method in METHODS]
    answers = [jsonrpc.result(1, {"text": "hi"}).encode(), jsonrpc.failure("a", QueueFull("full")).encode()]
    return [(text if isinstance(text, str) else json.dumps(text)).encode() for text in said] + calls + answers


def read_message(data: bytes | str) -> str:
    """Decode it as the daemon does; returns what became of it. Anything undocumented is raised."""
    try:
        message = jsonrpc.decode(data)
    except ProtocolFault as fault:
        assert fault.code in UNDECODABLE, fault.code
        return refused(fault)
    if isinstance(message, Response):
        return "response"
    if message.id is not None:
        echoed = jsonrpc.decode(jsonrpc.result(message.id, None))
        assert isinstance(echoed, Response) and echoed.id == message.id
    return read_params(message)


def read_params(call: Call) -> str:
    try:
        found = params_of(call)
    except ProtocolFault as fault:
        assert fault.code in UNUSABLE, fault.code
        return refused(fault)
    assert isinstance(found, METHODS[call.method])
    return "call"


def refused(fault: ProtocolFault) -> str:
    """Its refusal can be sent, is not long, and names what it answers."""
    text = jsonrpc.failure(fault.id, fault)
    response = jsonrpc.decode(text)
    assert isinstance(response, Response) and response.error is not None
    assert (response.id, response.error.code) == (fault.id, fault.code) and len(text) < 10_000
    return str(fault.code)


def fuzz_messages(n: int, seed: int) -> Counter[str]:
    """Read ``n`` damaged messages, as bytes and where they are text as text; counts what became of them."""
    mutator, endings = Mutator(example_messages(), JSON_PIECES, seed), Counter[str]()
    for number in range(n):
        data = next(mutator)
        try:
            ending = read_message(data)
            endings[ending] += 1
            try:
                text = data.decode()
            except UnicodeDecodeError:
                continue
            assert read_message(text) == ending
        except Exception as error:  # whatever it is: the input must be known
            raise AssertionError(f"seed {seed}, input {number}: {data[:500]!r}") from error
    return endings

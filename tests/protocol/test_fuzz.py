"""Thousands of damaged messages and frames; tests/slow/test_fuzz.py has a hundred times as many."""

from __future__ import annotations

import pytest

from localspec.protocol import jsonrpc
from localspec.protocol.jsonrpc import ProtocolFault
from localspec.protocol.messages import params_of
from tests.protocol.fuzzing import fuzz_frames, fuzz_messages, read_message

INPUTS = 3000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_damaged_message_is_refused_or_read(seed: int) -> None:
    endings = fuzz_messages(INPUTS, seed)
    print(f"seed {seed}: {INPUTS} messages, {dict(endings)}, 0 crashes")
    assert endings.keys() == {"-32700", "-32600", "-32601", "-32602", "call", "response"}
    assert min(endings.values()) > 0 and endings.total() == INPUTS


@pytest.mark.slow
def test_a_damaged_frame_is_refused_or_read() -> None:
    endings = fuzz_frames(INPUTS, 1)
    assert endings["frame"] > INPUTS // 20 and endings["refused"] > INPUTS // 20


def test_the_longest_method_is_refused_with_a_short_sentence() -> None:
    """The search for names similar to one of megabytes took a second, in which no client was answered."""
    for name in ("x" * 4_000_000, "daemon/statu" * 330_000):
        assert read_message(f'{{"jsonrpc":"2.0","id":1,"method":"{name}"}}') == "-32601"
        assert (
            read_message(f'{{"jsonrpc":"2.0","id":1,"method":"metrics","params":{{"{name}":1}}}}') == "-32602"
        )
        assert read_message(f'{{"jsonrpc":"2.0","id":1,"{name}":1}}') == "-32600"


def test_a_name_almost_right_is_still_found() -> None:
    with pytest.raises(ProtocolFault, match="did you mean 'daemon/status'"):
        params_of(jsonrpc.Call("daemon/statu", 1, jsonrpc.EMPTY))

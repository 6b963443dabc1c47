"""Names of methods and fields: long ones, and almost right ones; tests/slow/test_fuzz.py damages messages."""

from __future__ import annotations

import pytest

from localspec.protocol import jsonrpc
from localspec.protocol.jsonrpc import ProtocolFault
from localspec.protocol.messages import params_of
from tests.protocol.fuzzing import read_message


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

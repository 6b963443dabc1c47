"""Every string of the wire has a bound, and no error repeats one at length; damaged messages are refused."""

from __future__ import annotations

import msgspec
import pytest

from localspec.errors import ModelNotFound
from localspec.protocol import jsonrpc
from localspec.protocol.jsonrpc import Call, ProtocolFault, shorten
from localspec.protocol.messages import params_of
from tests.protocol.fuzzing import fuzz_messages, read_message
from tests.protocol.strings import TEXTS, Field, string_fields

FIELDS = list(string_fields())
MOST = 1 << 20
BOUNDED = [field for field in FIELDS if field.path.rpartition(".")[2] not in TEXTS]


def call(field: Field, value: str) -> Call:
    return Call(field.method, 1, msgspec.Raw(msgspec.json.encode(field.around(value))))


def test_every_string_but_what_models_read_has_a_bound() -> None:
    assert len(FIELDS) > 60
    assert [f"{field.method} {field.path}" for field in BOUNDED if field.longest is None] == []
    assert max(field.longest or 0 for field in FIELDS) <= MOST


@pytest.mark.parametrize("field", BOUNDED, ids=lambda field: f"{field.method}{field.path}")
def test_a_longer_string_is_refused_and_not_repeated(field: Field) -> None:
    assert field.longest is not None
    params_of(call(field, "x" * field.longest))
    with pytest.raises(ProtocolFault, match="length <=") as refused:
        params_of(call(field, "x" * (field.longest + 1)))
    assert "xxx" not in str(refused.value)


@pytest.mark.parametrize("params", ['{"options": {"proposer": "%s"}}', '{"%s": 1}', '{"options": {"%s": 1}}'])
def test_an_unknown_word_is_repeated_in_short(params: str) -> None:
    long = Call("generate", 1, msgspec.Raw((params % ("x" * 1_000_000)).encode()))
    with pytest.raises(ProtocolFault) as refused:
        params_of(long)
    assert 10 < str(refused.value).count("x") < 70


def test_the_longest_name_is_refused_with_a_short_sentence() -> None:
    """The search for names similar to one of megabytes took a second, in which no client was answered."""
    for name in ("x" * 4_000_000, "daemon/statu" * 330_000):
        head = '{"jsonrpc":"2.0","id":1,'
        assert read_message(f'{head}"method":"{name}"}}') == "-32601"
        assert read_message(f'{head}"method":"metrics","params":{{"{name}":1}}}}') == "-32602"
        assert read_message(f'{head}"{name}":1}}') == "-32600"


def test_an_error_keeps_its_ends() -> None:
    error = ModelNotFound(f"there is no model {'x' * 100_000} here", "y" * 100_000)
    sent = jsonrpc.decode(jsonrpc.failure(1, error))
    assert isinstance(sent, jsonrpc.Response) and sent.error is not None and sent.error.data is not None
    assert sent.error.message == sent.error.data["message"]
    for text in (sent.error.message, sent.error.data["remedy"]):
        assert len(text) == jsonrpc.LONGEST_SENTENCE and "…" in text
    assert sent.error.message.startswith("there is no model x") and sent.error.message.endswith("x here")
    assert shorten("short", 5) == "short" and len(shorten("longer", 5)) == 5


def test_damaged_messages_are_decoded_or_refused() -> None:
    assert len(fuzz_messages(3000, seed=1)) == 6

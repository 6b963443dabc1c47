"""JSON-RPC 2.0, sans I/O: text in, typed messages out, and back. Also the base of all parameters of the
wire's methods, and the bounds of its texts; the frame alone bounds prompts, contents and texts of files."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.errors import InvalidOptions, LocalspecError

LONGEST_PATH = 4096
ENDING = 4
"""a shortened text keeps one part in so many for its end"""

Name = Annotated[str, Meta(max_length=LONGEST_PATH)]
"""a model: its name, or a path"""
FilePath = Annotated[str, Meta(max_length=LONGEST_PATH)]
"""a file as an editor names it; it need not exist"""
Place = Annotated[str, Meta(min_length=1, max_length=LONGEST_PATH, pattern=r"^[^\x00]*$")]
"""a path on this disk"""
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Language = Annotated[str, Meta(max_length=100)]
"""an editor's name of a language"""
Identity = Annotated[str, Meta(max_length=128)]
"""the id of a session, an item, a stream or a call; the name of a tool"""


class Params(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parameters: an unknown field is an error."""


def shorten(text: str, longest: int) -> str:
    """The text, or its beginning and its end where it is longer than ``longest`` characters."""
    if len(text) <= longest:
        return text
    end = longest // ENDING
    return f"{text[: longest - end - 1]}…{text[len(text) - end :]}"


PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000

Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Identity
"""a request's id, repeated in each of its messages"""
LONGEST_FAULT = 500
"""characters of a fault's message, which may quote the peer's"""
LONGEST_SENTENCE = 1000
"""characters of an error's message and of its remedy, which name models and files"""


EMPTY = msgspec.Raw(b"{}")
"""parameters that are not given"""


class Incoming(msgspec.Struct, forbid_unknown_fields=True):
    """Any message: a request has method and id, a notification has no id, a response no method."""

    jsonrpc: str
    method: str | None = None
    id: Id | None | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = EMPTY
    result: msgspec.Raw = msgspec.Raw(b"")
    error: ErrorObject | None = None


class ErrorObject(msgspec.Struct, omit_defaults=True):
    """``data`` is an error of localspec's: code, message, remedy."""

    code: int
    message: str
    data: dict[str, str] | None = None


class Call(msgspec.Struct, frozen=True):
    """A request (``id`` is set) or a notification (``id`` is None)."""

    method: str
    id: Id | None
    params: msgspec.Raw


class Response(msgspec.Struct, frozen=True):
    """The one terminal answer to a request."""

    id: Id | None
    result: msgspec.Raw | None
    error: ErrorObject | None


class ProtocolFault(Exception):
    """A message that breaks JSON-RPC or names an unknown method; ``id`` is that of the request, if known."""

    def __init__(self, code: int, message: str, id: Id | None = None) -> None:
        super().__init__(shorten(message, LONGEST_FAULT))
        self.code = code
        self.id = id


_decoder = msgspec.json.Decoder(Incoming)
_encoder = msgspec.json.Encoder()


def decode(text: str | bytes) -> Call | Response:
    """Parse one frame; raises only :class:`ProtocolFault`."""
    try:
        message = _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise ProtocolFault(INVALID_REQUEST, f"not a JSON-RPC 2.0 message: {error}", _id_of(text)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ProtocolFault(PARSE_ERROR, f"not JSON: {error}") from None
    identity = message.id if isinstance(message.id, (int, str)) else None
    if message.jsonrpc != "2.0":
        raise ProtocolFault(INVALID_REQUEST, 'jsonrpc must be "2.0"', identity)
    is_answer = bool(message.result) or message.error is not None
    if message.method is not None:
        if is_answer:
            raise ProtocolFault(INVALID_REQUEST, "both a request and a response", identity)
        if message.id is None:
            raise ProtocolFault(INVALID_REQUEST, "id must be a number or a string")
        return Call(message.method, identity, message.params)
    if message.id is msgspec.UNSET or not is_answer or (message.result and message.error):
        raise ProtocolFault(INVALID_REQUEST, "neither a request nor a response", identity)
    return Response(identity, message.result or None, message.error)


class _Named(msgspec.Struct):
    id: Id | None = None


def _id_of(text: str | bytes) -> Id | None:
    """The id of a message that is JSON but not JSON-RPC, for the refusal."""
    try:
        return msgspec.json.decode(text, type=_Named).id
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def request(id: Id, method: str, params: Any) -> str:
    return _text({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def notification(method: str, params: Any) -> str:
    return _text({"jsonrpc": "2.0", "method": method, "params": params})


def result(id: Id, value: Any) -> str:
    return _text({"jsonrpc": "2.0", "id": id, "result": value})


def failure(id: Id | None, error: LocalspecError | ProtocolFault) -> str:
    return _text({"jsonrpc": "2.0", "id": id, "error": describe_error(error)})


def describe_error(error: LocalspecError | ProtocolFault) -> ErrorObject:
    """Describe a LocalspecError as -32000 with data (invalid options: -32602), a fault by its code."""
    if isinstance(error, ProtocolFault):
        return ErrorObject(error.code, str(error))
    code = INVALID_PARAMS if isinstance(error, InvalidOptions) else SERVER_ERROR
    data = {key: shorten(value, LONGEST_SENTENCE) for key, value in error.as_dict().items()}
    return ErrorObject(code, data["message"], data)


def _text(message: dict[str, Any]) -> str:
    return _encoder.encode(message).decode()

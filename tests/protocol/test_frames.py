"""Every frame between daemon and worker arrives as it was sent."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ModelNotFound
from localspec.protocol import frames
from localspec.protocol.frames import (
    HEADER,
    Cancel,
    Drafted,
    DropDraft,
    Forget,
    FromWorker,
    GrantTurn,
    Heartbeat,
    Load,
    LoadDraft,
    Loading,
    ModelFile,
    PairFile,
    RequestEvent,
    Rest,
    Stop,
    Submit,
    TargetReady,
    Teach,
    TokenizedFrame,
    TokenizeFrame,
    ToWorker,
    TurnOver,
    encode_frame,
    from_worker_decoder,
    make_streamed,
    to_worker_decoder,
)
from localspec.protocol.messages import ModelDescription, Placement
from localspec.protocol.options import Options
from localspec.protocol.requests import (
    ChatPrompt,
    Degraded,
    Delta,
    Done,
    EngineConfig,
    Failed,
    File,
    FimPrompt,
    Message,
    Progress,
    ProposerStats,
    Request,
    Stats,
    TextPrompt,
    Token,
)
from tests.mutation import FLIPS, flipped
from tests.toys import result_of

RESULT = result_of(
    Stats(rounds=2, proposers={"draft": ProposerStats(4, 3, 0.5)}, k_histogram={0: 1, 4: 1}), text="é😀"
)
FILE = ModelFile(
    b"/models/caf\xe9.gguf",
    ((1, 2, 3, 4),),
    ModelDescription(id="m", path="/models/caf\ufffd.gguf", format="gguf", backend="llama_cpp", size=1),
)
PAIR = PairFile(FILE, "on llama_cpp", FILE, "it drafts", asked=False)
TO_WORKER: list[ToWorker] = [
    Load(PAIR, EngineConfig(n_ctx=4096, gpu_layers=0), 1 << 30),
    Submit(1, Request(prompt=TextPrompt("é\0"), options=Options(k=4, stop=("a",)), max_ms=500)),
    Submit(2, Request(prompt=ChatPrompt((Message("system", "s"), Message("user", "u"))))),
    Submit(3, Request(prompt=FimPrompt("a", "b", "p.py", "python", (File("q.py", "x"),)))),
    Submit(4, Request(prompt=FimPrompt("a", "b", multiline=False, tidy=True), priority="background")),
    Submit(5, Request(prompt=TextPrompt("a")), draft=7),
    LoadDraft(7, PAIR, 1 << 30),
    DropDraft(8, 7),
    Cancel(1),
    Forget("chat:one"),
    TokenizeFrame(7, "é\0", start=True, special=False, pieces=True),
    Teach("/p.py", "x = 1", "/w"),
    Rest(allowed=False),
    GrantTurn(2, 0.05),
    Stop(),
]
FROM_WORKER: list[FromWorker] = [
    RequestEvent(0, Loading("target", 0.5)),
    RequestEvent(0, TargetReady("m", "toy", 4096, "why", 1 << 30, 4, placement=Placement(("g",), 3, 4, 1))),
    RequestEvent(7, Loading("draft", 1.0)),
    RequestEvent(7, Drafted(True, "it drafts", 1 << 20, 1 << 10)),
    Heartbeat(7, 0.25),
    make_streamed(1, Progress(2, 1, 2)),
    make_streamed(1, Delta("é", (Token(5, "target", 0), Token(6, "draft", 1, logprob=-0.5)))),
    make_streamed(1, Degraded("draft", "prompt-lookup", "it failed")),
    RequestEvent(1, Done(RESULT)),
    RequestEvent(7, TokenizedFrame((5, 6), (b"\xc3", b"\xa9"))),
    RequestEvent(1, Failed(ModelNotFound("no").as_dict())),
    TurnOver(2, 0.06),
]


def body(frame: bytes) -> bytes:
    assert HEADER.unpack_from(frame)[0] == len(frame) - HEADER.size
    return frame[HEADER.size :]


def test_every_frame_has_an_example_here() -> None:
    assert {type(message) for message in TO_WORKER} == set(get_args(ToWorker))
    assert {type(message) for message in FROM_WORKER} == set(get_args(FromWorker))


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda message: type(message).__name__)
def test_frames_reach_the_worker(message: ToWorker) -> None:
    assert to_worker_decoder.decode(body(encode_frame(message))) == message


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda message: type(message).__name__)
def test_frames_reach_the_daemon(message: FromWorker) -> None:
    assert from_worker_decoder.decode(body(encode_frame(message))) == message


def test_a_frame_begins_with_its_length_in_little_endian() -> None:
    assert encode_frame(Stop()) == b"\x0b\x00\x00\x00" + b"\x81\xa4type\xa4Stop"


@given(st.sampled_from(FROM_WORKER), FLIPS)
def test_damaged_frames_are_decoded_or_refused(message: FromWorker, flips: list[tuple[int, int]]) -> None:
    damaged = flipped(body(encode_frame(message)), flips)
    try:
        assert isinstance(from_worker_decoder.decode(damaged), get_args(FromWorker))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        assert str(error)


def test_the_largest_message_of_a_client_fits_a_frame() -> None:
    text = "😀" * (4 * 1024 * 1024 // 4)
    assert len(encode_frame(Submit(1, Request(prompt=TextPrompt(text))))) < frames.MAX_FRAME

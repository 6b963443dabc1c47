"""Every frame between daemon and worker arrives as it was sent."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ModelNotFound
from localspec.protocol import frames, requests
from localspec.protocol.frames import (
    FromWorker,
    RequestEvent,
    TargetReady,
    ToWorker,
    encode_frame,
    make_streamed,
)
from localspec.protocol.messages import ModelDescription, Placement
from localspec.protocol.options import Options
from localspec.protocol.requests import Delta, FimPrompt, Message, Request, TextPrompt, Token
from tests.mutation import FLIPS, flipped
from tests.toys import result_of

RESULT = result_of(
    requests.Stats(
        rounds=2, proposers={"draft": requests.ProposerStats(4, 3, 0.5)}, k_histogram={0: 1, 4: 1}
    ),
    text="é😀",
)
FILE = frames.ModelFile(
    b"/models/caf\xe9.gguf",
    ((1, 2, 3, 4),),
    ModelDescription(id="m", path="/models/caf\ufffd.gguf", format="gguf", backend="llama_cpp", size=1),
)
PAIR = frames.PairFile(FILE, "on llama_cpp", FILE, "it drafts", asked=False)
TO_WORKER: list[ToWorker] = [
    frames.Load(PAIR, requests.EngineConfig(n_ctx=4096, gpu_layers=0), 1 << 30),
    frames.Submit(1, Request(prompt=TextPrompt("é\0"), options=Options(k=4, stop=("a",)), max_ms=500)),
    frames.Submit(2, Request(prompt=requests.ChatPrompt((Message("system", "s"), Message("user", "u"))))),
    frames.Submit(3, Request(prompt=FimPrompt("a", "b", "p.py", "python", (requests.File("q.py", "x"),)))),
    frames.Submit(4, Request(prompt=FimPrompt("a", "b", multiline=False, tidy=True), priority="background")),
    frames.Submit(5, Request(prompt=TextPrompt("a")), draft=7),
    frames.LoadDraft(7, PAIR, 1 << 30),
    frames.DropDraft(8, 7),
    frames.Cancel(1),
    frames.Forget("chat:one"),
    frames.TokenizeFrame(7, "é\0", start=True, special=False, pieces=True),
    frames.Teach("/p.py", "x = 1", "/w"),
    frames.Rest(allowed=False),
    frames.GrantTurn(2, 0.05),
    frames.Stop(),
]
FROM_WORKER: list[FromWorker] = [
    RequestEvent(0, frames.Loading("target", 0.5)),
    RequestEvent(0, TargetReady("m", "toy", 4096, "why", 1 << 30, 4, placement=Placement(("g",), 3, 4, 1))),
    RequestEvent(7, frames.Loading("draft", 1.0)),
    RequestEvent(7, frames.Drafted(True, "it drafts", 1 << 20, 1 << 10)),
    frames.Heartbeat(7, 0.25),
    make_streamed(1, requests.Progress(2, 1, 2)),
    make_streamed(1, Delta("é", (Token(5, "target", 0), Token(6, "draft", 1, logprob=-0.5)))),
    make_streamed(1, requests.Degraded("draft", "prompt-lookup", "it failed")),
    RequestEvent(1, requests.Done(RESULT)),
    RequestEvent(7, frames.TokenizedFrame((5, 6), (b"\xc3", b"\xa9"))),
    RequestEvent(1, requests.Failed(ModelNotFound("no").as_dict())),
    frames.TurnOver(2, 0.06),
]


def body(frame: bytes) -> bytes:
    assert frames.HEADER.unpack_from(frame)[0] == len(frame) - frames.HEADER.size
    return frame[frames.HEADER.size :]


def test_every_frame_has_an_example_here() -> None:
    assert {type(message) for message in TO_WORKER} == set(get_args(ToWorker))
    assert {type(message) for message in FROM_WORKER} == set(get_args(FromWorker))


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda message: type(message).__name__)
def test_frames_reach_the_worker(message: ToWorker) -> None:
    assert frames.to_worker_decoder.decode(body(encode_frame(message))) == message


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda message: type(message).__name__)
def test_frames_reach_the_daemon(message: FromWorker) -> None:
    assert frames.from_worker_decoder.decode(body(encode_frame(message))) == message


@given(st.sampled_from(FROM_WORKER), FLIPS)
def test_damaged_frames_are_decoded_or_refused(message: FromWorker, flips: list[tuple[int, int]]) -> None:
    damaged = flipped(body(encode_frame(message)), flips)
    try:
        assert isinstance(frames.from_worker_decoder.decode(damaged), get_args(FromWorker))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        assert str(error)


def test_the_largest_message_of_a_client_fits_a_frame() -> None:
    text = "😀" * (4 * 1024 * 1024 // 4)
    assert len(encode_frame(frames.Submit(1, Request(prompt=TextPrompt(text))))) < frames.MAX_FRAME

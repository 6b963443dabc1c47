"""Frames, what is compared before ranks begin, and the loss of one, without a second rank."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from queue import SimpleQueue

import pytest

from localspec.backends.base import Span
from localspec.errors import LocalspecError, ModelInvalid, ModelTooLarge, NodeLost, OutOfMemory, VersionSkew
from localspec.models.directory import ModelDirectory
from localspec.models.model import model_at
from localspec.protocol.frames import HEADER, encode_frame
from localspec.protocol.requests import EngineConfig
from localspec.ranks import frames
from localspec.ranks.follower import addresses, check_room
from localspec.ranks.frames import Change, Find, Forward, Frame, Hello, Refused
from localspec.ranks.peer import PERIOD_S, SILENT_S, Peer, Silence, greet
from tests.waiting import DEADLINE_S

VERSIONS = {"localspec": "1.0", "mlx": "0.32.4", "mlx-lm": "0.32.2"}
SPAN = Span(3, [7, 8], 1)


class Ended(io.BytesIO):
    """The bytes that were sent, also after the end."""

    def close(self) -> None:
        return


@pytest.mark.parametrize(
    "frame",
    [
        Change("open", [], 3),
        Change("truncate", [1, 20], 20),
        Forward(2, [SPAN]),
        Find("a", "/b", EngineConfig(n_ctx=64), 2),
    ],
)
def test_a_frame_is_read_as_it_was_sent(frame: Frame) -> None:
    assert frames.read(io.BytesIO(encode_frame(frame))) == frame


@pytest.mark.parametrize("cut", [0, 3, 5])
def test_the_end_of_the_stream_is_no_frame(cut: int) -> None:
    assert frames.read(io.BytesIO(encode_frame(Change("mark", [3]))[:cut])) is None


@pytest.mark.parametrize("name", ["protocol", "localspec", "mlx", "mlx-lm"])
def test_another_version_is_refused_by_name(name: str) -> None:
    protocol = frames.PROTOCOL + (name == "protocol")
    hello = Hello(protocol, VERSIONS | ({name: "0.1"} if name in VERSIONS else {}))
    with pytest.raises(VersionSkew, match=f"^{name} is .* on node mac-b"):
        frames.check_versions("mac-b", hello, VERSIONS)
    frames.check_versions("mac-b", Hello(frames.PROTOCOL, VERSIONS), VERSIONS)


def test_a_host_that_ssh_does_not_reach_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.ranks.peer.SSH", ("false",))
    with pytest.raises(NodeLost, match="does not answer over ssh on mac-b") as raised:
        greet("mac-b")
    assert "`ssh mac-b localspec --version`" in raised.value.remedy


def test_the_addresses_of_both_machines_are_those_of_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 10.0.0.2 22")
    assert addresses() == ("10.0.0.2", "10.0.0.1")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelDirectory:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
    from tests.mlx_models import write_model

    header = model_at(write_model("qwen3", tmp_path)).header
    assert isinstance(header, ModelDirectory)
    return header


@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_other_weights_are_refused_by_file(directory: ModelDirectory, place: float) -> None:
    own = frames.digests_of(directory)
    frames.check_digests("mac-b", "qwen3", own, own)
    weights = directory.path / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[int(place * (len(changed) - 1))] ^= 1
    weights.write_bytes(changed)
    with pytest.raises(ModelInvalid, match=r"^model.safetensors of qwen3 is not the same on node mac-b"):
        frames.check_digests("mac-b", "qwen3", frames.digests_of(directory), own)


def test_a_node_with_too_little_memory_refuses_its_share(directory: ModelDirectory) -> None:
    model = model_at(directory.path)
    for n_ctx, machines in ((64, 2), (2**40, 2**40)):
        check_room(model, Find("qwen3", "", EngineConfig(n_ctx=n_ctx), machines))
    with pytest.raises(ModelTooLarge, match="^its share of qwen3 needs .* of memory"):
        check_room(model, Find("qwen3", "", EngineConfig(n_ctx=2**40), 2))


def test_a_missing_file_is_refused(directory: ModelDirectory) -> None:
    own = frames.digests_of(directory)
    with pytest.raises(ModelInvalid, match=r"^config.json "):
        frames.check_digests("mac-b", "qwen3", {"model.safetensors": own["model.safetensors"]}, own)


def test_a_silent_rank_is_given_up() -> None:
    now = [100.0]
    silence = Silence("mac-b", clock=lambda: now[0])
    for _ in range(int(SILENT_S / PERIOD_S) - 1):
        now[0] += PERIOD_S
        assert silence.look() is None
    now[0] += PERIOD_S
    assert str(silence.look()) == "node mac-b has been silent for 5 s"
    silence.heard()
    assert silence.look() is None


def test_time_in_which_this_process_stood_still_does_not_count() -> None:
    now = [100.0]
    silence = Silence("mac-b", clock=lambda: now[0])
    now[0] += 3600.0
    assert silence.look() is None


def peer(*sent: Frame) -> Peer:
    return Peer("mac-b", io.BytesIO(b"".join(map(encode_frame, sent))), Ended())


def test_a_node_that_ends_is_lost() -> None:
    with pytest.raises(NodeLost, match="node mac-b closed its connection"):
        peer().receive(DEADLINE_S)


def test_what_a_node_refuses_is_raised_with_its_name() -> None:
    refused = Refused(OutOfMemory("too large", "Take less.").as_dict())
    with pytest.raises(OutOfMemory, match="^node mac-b: too large$") as raised:
        peer(refused).receive(DEADLINE_S)
    assert raised.value.remedy == "Take less."


@pytest.mark.parametrize(
    "sent",
    [
        HEADER.pack(frames.MAX_FRAME + 1) + bytes(frames.MAX_FRAME + 1),
        HEADER.pack(2) + b"\xc1\xc1",
        HEADER.pack(9_999) + b"\x91" * 9_999,
        encode_frame(Refused({})),
    ],
)
def test_any_damaged_frame_loses_the_node(sent: bytes) -> None:
    with pytest.raises(NodeLost, match="the connection to node mac-b broke"):
        Peer("mac-b", io.BytesIO(sent), Ended()).receive(DEADLINE_S)


def test_a_frame_out_of_turn_loses_the_node() -> None:
    with pytest.raises(NodeLost, match="sent Change instead of Hello"):
        peer(Change("open", [], 1)).expect(Hello)


def test_a_loss_before_it_is_watched_is_reported_too() -> None:
    lost: SimpleQueue[LocalspecError] = SimpleQueue()
    one = peer()
    with pytest.raises(NodeLost):
        one.receive(DEADLINE_S)
    one.watch(lost.put)
    assert isinstance(lost.get(timeout=DEADLINE_S), NodeLost)
    assert lost.empty()


def test_a_node_that_is_left_is_no_loss() -> None:
    reading, writing = socket.socketpair()
    lost: SimpleQueue[LocalspecError] = SimpleQueue()
    with reading, writing, reading.makefile("rb") as stream:
        one = Peer("mac-b", stream, Ended(), lambda: writing.shutdown(socket.SHUT_RDWR))
        one.watch(lost.put)
        assert one.loss_within(0) is None
        one.close()
        assert isinstance(one.loss_within(DEADLINE_S), NodeLost)
    assert lost.empty()

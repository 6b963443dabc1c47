"""Downloads from servers that answer oddly or lie, or that end half-way: resumed, bounded, redirected."""

from __future__ import annotations

import io
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from localspec.errors import DownloadBroken
from localspec.hub import download
from tests.hub.conftest import Q4, REPO, Puller
from tests.hub.server import Hub, Refusal
from tests.waiting import DEADLINE_S, until_sync

WHOLE, KEPT = b"abcdefgh", b"abc"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx2.Client]:
    monkeypatch.setattr(download, "WAIT_S", 0)
    with httpx2.Client(headers={"Authorization": "secret"}) as client:
        yield client


@pytest.fixture
def out() -> io.BytesIO:
    """A file with a part of the content."""
    out = io.BytesIO()
    out.write(KEPT)
    return out


def sent(status: int, body: bytes = b"", start: object = None, **headers: str) -> Refusal:
    part = {} if start is None else {"Content-Range": f"bytes {start}-7/8"}
    return Refusal(status, {**part, **{name.replace("_", "-"): each for name, each in headers.items()}}, body)


@pytest.mark.parametrize(
    ("answers", "ranges"),
    [
        ([sent(206, WHOLE[3:], 3)], ["bytes=3-"]),
        ([sent(200, WHOLE)], ["bytes=3-"]),
        ([sent(200, WHOLE, 3)], ["bytes=3-"]),
        ([sent(416), sent(200, WHOLE)], ["bytes=3-", None]),
        ([sent(206, b"fgh", 5), sent(200, WHOLE)], ["bytes=3-", None]),
        ([sent(206, WHOLE[3:]), sent(200, WHOLE)], ["bytes=3-", None]),
        ([sent(206, b"de", 3, Content_Length="5"), sent(206, b"fgh", 5)], ["bytes=3-", "bytes=5-"]),
        ([sent(206, b"de", 3), sent(206, b"fgh", 5)], ["bytes=3-", "bytes=5-"]),
    ],
)
def test_a_part_is_completed(
    hub: Hub, client: httpx2.Client, out: io.BytesIO, answers: list[Refusal], ranges: list[str | None]
) -> None:
    hub.answers = [sent(302, Location=f"{hub.cdn}/x"), *answers]
    reported: list[int] = []
    download.complete(client, hub.url, out, len(WHOLE), reported.append)
    assert (out.getvalue(), reported[-1]) == (WHOLE, len(WHOLE))
    assert [asked.range for asked in hub.log][1:] == ranges
    assert [asked.token for asked in hub.log][:2] == ["secret", None], "a secret is for one host"


@pytest.mark.parametrize("answer", [sent(206, b"", 3), sent(302, Location="file:///etc/passwd"), sent(503)])
def test_a_source_without_the_rest_is_given_up(
    hub: Hub, client: httpx2.Client, out: io.BytesIO, answer: Refusal
) -> None:
    hub.answers = [answer]
    with pytest.raises(httpx2.HTTPError):
        download.complete(client, hub.url, out, len(WHOLE), print)
    assert len(hub.log) == (download.TRIES if answer.status == 206 else 1) and out.getvalue() == KEPT


@pytest.mark.parametrize(
    ("headers", "body"),
    [({"Transfer-Encoding": "chunked"}, b"1\r\na\r\n"), ({"Content-Length": "9" * 15}, b"a" * 1000)],
)
def test_more_than_expected_is_refused_at_once_and_dropped(
    hub: Hub, client: httpx2.Client, out: io.BytesIO, headers: dict[str, str], body: bytes
) -> None:
    hub.answers = [Refusal(200, headers, body, is_endless=True)]
    with pytest.raises(DownloadBroken, match="sends more than the expected 10.0 kB"):
        download.append(client, hub.url, out, 10_000)
    assert out.getvalue() == b""


def test_content_behind_a_redirect_out_of_https_is_refused(out: io.BytesIO) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            302 if request.url.scheme == "https" else 200, headers={"Location": "http://x/"}
        )

    with (
        httpx2.Client(transport=httpx2.MockTransport(answer)) as client,
        pytest.raises(httpx2.RequestError, match="out of https, to x"),
    ):
        download.append(client, "https://127.0.0.1/file", out, 8)


NAME = "tiny-7b-q4_k_m.gguf"
HALF = len(Q4) // 2


@pytest.fixture
def half(hub: Hub) -> Hub:
    """A hub that sends half of the file, and then waits."""
    hub.add(REPO, {NAME: Q4})
    hub.pauses[NAME] = HALF
    return hub


def begin(cli: Puller, most: int = resource.RLIM_INFINITY) -> subprocess.Popen[str]:
    """A pull in a process of its own, whose files have at most so many bytes; a part of one is written."""
    process = subprocess.Popen(
        (*cli.command, "models", "pull", REPO),
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY)),
    )
    until_sync(lambda: process.poll() is not None or came(cli) > 0, "a part of the file is there")
    return process


def came(cli: Puller) -> int:
    return sum(partial.stat().st_size for partial in cli.partials())


@pytest.mark.parametrize(
    ("sent", "most", "code", "text"),
    [
        (signal.SIGKILL, resource.RLIM_INFINITY, -9, ""),
        (signal.SIGINT, resource.RLIM_INFINITY, 130, "are kept; the same command resumes."),
        (None, HALF, 1, "the disk of the hub's cache is full"),
    ],
    ids=["killed", "Ctrl-C", "full disk"],
)
def test_the_part_of_a_download_is_kept_and_the_same_command_requests_the_rest(
    cli: Puller, half: Hub, sent: signal.Signals | None, most: int, code: int, text: str
) -> None:
    process = begin(cli, most)
    if sent is None:
        half.go_on.set()
    else:
        process.send_signal(sent)
    _, printed = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code and text in printed and "Traceback" not in printed
    assert sent is not None or "the same command continues it" in printed
    half.go_on.set()
    half.pauses.clear()
    kept = came(cli)
    assert 0 < kept <= HALF
    assert cli.pull(REPO).read_bytes() == Q4
    assert half.ranges_of(Q4)[1:] == [f"bytes={kept}-"] and cli.partials() == []


@pytest.mark.slow
def test_two_at_once_do_not_write_the_same_file(cli: Puller, half: Hub) -> None:
    first = begin(cli)
    for command in (("pull", REPO), ("rm", REPO, "--yes")):
        error = cli.refusal(*command)
        assert (error["exit"], error["code"]) == (75, "hub_busy") and NAME in error["message"]
    half.go_on.set()
    path, errors = first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 0 and Path(path.strip()).read_bytes() == Q4, errors


def test_a_cache_that_is_a_file_is_an_error(cli: Puller, half: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cli.environment["HF_HUB_CACHE"] = str(tmp_path / "file")
    assert "HF_HUB_CACHE" in cli.refusal("pull", REPO)["remedy"]

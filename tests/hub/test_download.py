"""Downloads from servers that answer oddly, or lie: resumed, bounded, redirected."""

from __future__ import annotations

import io
from collections.abc import Iterator

import httpx2
import pytest

from localspec.errors import DownloadBroken
from localspec.hub import download
from tests.hub.server import Hub, Refusal

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

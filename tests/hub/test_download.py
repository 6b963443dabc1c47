"""Downloads from servers that answer oddly, or lie: resumed, bounded, redirected."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

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
        ([sent(206, WHOLE[3:])], ["bytes=3-"]),
        ([sent(206, WHOLE[1:], 1)], ["bytes=3-"]),
        ([sent(206, WHOLE[3:], "9" * 5000)], ["bytes=3-"]),
        ([sent(200, WHOLE[3:], 3)], ["bytes=3-"]),
        ([sent(200, WHOLE)], ["bytes=3-"]),
        ([sent(416), sent(200, WHOLE)], ["bytes=3-", None]),
        ([sent(206, b"fgh", 5), sent(200, WHOLE)], ["bytes=3-", None]),
        ([sent(206, b"de", Content_Length="5"), sent(206, b"fgh")], ["bytes=3-", "bytes=5-"]),
        ([sent(206, b"de"), sent(206, b"fgh")], ["bytes=3-", "bytes=5-"]),
    ],
)
def test_a_part_is_completed(
    hub: Hub, client: httpx2.Client, out: io.BytesIO, answers: list[Refusal], ranges: list[str | None]
) -> None:
    hub.answers = answers
    reported: list[int] = []
    download.complete(client, hub.url, out, len(WHOLE), reported.append)
    assert (out.getvalue(), reported[-1]) == (WHOLE, len(WHOLE))
    assert [asked.range for asked in hub.log] == ranges


def test_a_source_without_the_rest_is_given_up(hub: Hub, client: httpx2.Client, out: io.BytesIO) -> None:
    hub.answers = [sent(206)]
    with pytest.raises(httpx2.RemoteProtocolError, match="ended early"):
        download.complete(client, hub.url, out, len(WHOLE), print)
    assert len(hub.log) == download.TRIES and out.getvalue() == KEPT


@pytest.mark.parametrize(
    ("headers", "body"),
    [({"Transfer-Encoding": "chunked"}, b"1\r\na\r\n"), ({"Content-Length": "9" * 15}, b"a" * 1000)],
)
def test_more_than_expected_is_refused_at_once_and_dropped(
    hub: Hub, client: httpx2.Client, out: io.BytesIO, headers: Mapping[str, str], body: bytes
) -> None:
    hub.answers = [Refusal(200, headers, body, is_endless=True)]
    with pytest.raises(DownloadBroken, match="sends more than the expected 10.0 kB"):
        download.append(client, hub.url, out, 10_000)
    assert out.getvalue() == b""


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://", "data:,abc", "/x"])
def test_a_redirect_out_of_http_or_without_end_is_an_error(
    hub: Hub, client: httpx2.Client, out: io.BytesIO, address: str
) -> None:
    hub.answers = [Refusal(302, {"Location": address}, b"a" * 1000, is_endless=True)]
    with pytest.raises(httpx2.HTTPError):
        download.append(client, hub.url, out, 8)


def test_a_redirect_out_of_https_is_not_followed(out: io.BytesIO) -> None:
    leading = httpx2.MockTransport(lambda request: httpx2.Response(302, headers={"Location": "http://x/"}))
    with (
        httpx2.Client(transport=leading) as client,
        pytest.raises(httpx2.RequestError, match="a redirect to"),
    ):
        download.append(client, "https://127.0.0.1/file", out, 8)


def test_a_redirect_takes_the_range_and_no_secret_to_another_host(
    hub: Hub, client: httpx2.Client, out: io.BytesIO
) -> None:
    hub.answers = [sent(302, Location=f"{hub.cdn}/x"), sent(206, WHOLE[3:])]
    assert download.append(client, hub.url, out, 8) == f"{hub.cdn}/x" and out.getvalue() == WHOLE
    assert [asked[2:] for asked in hub.log] == [("bytes=3-", "secret"), ("bytes=3-", None)]

"""Authentication: accepted and refused requests."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from localspec import home
from tests.http.server import SECTION, HttpServer, opened, wire
from tests.waiting import DEADLINE_S, run

OWNERS_OWN: list[dict[str, object]] = [{"workspace": "/tmp"}, {"proposer": "memory"}, {"proposer": "auto"}]
CHAT = {"messages": [{"role": "user", "content": "hello"}]}


KEYS = "", "Bearer", "Bearer wrong", "Bearer %FC", "Basic dXNlcjpwYXNz"
FOREIGN = {
    "host": ("evil.example", "127.0.0.1.evil.example", "0.0.0.0"),
    "origin": ("https://evil.example", "null", "http://localhost:3000"),
    "sec-fetch-site": ("cross-site", "same-site"),
}
REFUSED = [
    *((key, 401, "invalid_api_key") for key in [("x-api-key", "wrong"), *product(["authorization"], KEYS)]),
    *(((name, value), 403, "forbidden") for name, values in FOREIGN.items() for value in values),
]


@pytest.mark.slow
@pytest.mark.parametrize(("header", "status", "code"), REFUSED)
def test_refused_requests(echo: HttpServer, header: tuple[str, str], status: int, code: str) -> None:
    answer = echo.ask("POST", "/v1/chat/completions", CHAT, **dict([header]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert echo.token not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost"},
        {"host": "localhost:8012"},
        {"host": "[::1]:8012"},
        {"authorization": "bearer  {token}"},
        {"authorization": "", "x-api-key": "{token}"},
        {"sec-fetch-site": "none"},
    ],
)
def test_accepted_requests(echo: HttpServer, headers: dict[str, str]) -> None:
    shown = {name: value.format(token=echo.token) for name, value in headers.items()}
    answer = echo.ask("POST", "/v1/chat/completions", CHAT, **shown)
    assert answer.status_code == 200, answer.text


def test_a_container_may_name_this_machine_otherwise() -> None:
    with opened(section=SECTION + 'hosts = ["host.docker.internal"]\n') as http:
        assert http.ask("GET", "/health", host="Host.docker.internal:8012").status_code == 200
        assert http.ask("GET", "/health", host="host.docker.internal", origin="http://x").status_code == 403
        refused = http.ask("GET", "/health", host="x.docker.internal")
        assert refused.status_code == 403 and "http.hosts" in refused.text


def test_two_hosts_are_none(echo: HttpServer) -> None:
    with socket.create_connection(("127.0.0.1", echo.port), DEADLINE_S) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n")
        assert connection.recv(1024).split()[1] in (b"400", b"403")


def test_what_everybody_may_know(echo: HttpServer) -> None:
    assert echo.ask("GET", "/health", authorization="").json() == {"status": "ok"}
    assert echo.ask("GET", "/health", origin="https://evil.example").status_code == 403


@pytest.mark.slow
def test_a_dialect_may_do_without_the_token_and_no_other() -> None:
    with opened(section=SECTION + 'without_token = ["openai"]\n') as http:
        assert http.ask("GET", "/v1/models/none", authorization="").status_code == 404
        page = http.ask("GET", "/v1/models", authorization="", origin="https://evil.example")
        assert page.status_code == 403
        refused = http.ask("GET", "/api/tags", authorization="")
        assert refused.status_code == 401 and "openai needs none here, ollama does" in refused.text
        for path in ("/infill", "/props", "/tokenize", "/api/tags", "/api/version", "/models", "/metrics"):
            for odd in (path, f"{path}%0a", f"{path}/", f"/{path}", f"/v1/..{path}"):
                for method in ("GET", "POST"):
                    answer = http.ask(method, odd, {}, authorization="")
                    assert answer.status_code in (307, 401, 404), (odd, answer.text)
                    assert answer.status_code != 404 or " is not offered" in answer.text
        warning = "Every program and every user of this machine can send requests in these dialects: openai"
        assert warning in http.daemon.log()


OBSIDIAN = "app://obsidian.md"
PAGES = SECTION + f'origins = ["{OBSIDIAN}"]\nwithout_token = ["ollama"]\n'


@pytest.mark.slow
def test_a_page_that_is_listed_is_let_in_with_the_token() -> None:
    with opened(section=PAGES) as http:
        site = {"origin": OBSIDIAN, "sec-fetch-site": "cross-site"}
        asked = {**site, "access-control-request-method": "POST"}
        asked["access-control-request-headers"] = "authorization,content-type"
        before = http.ask("OPTIONS", "/api/chat", authorization="", **asked)
        assert before.status_code == 200
        assert before.headers["access-control-allow-origin"] == OBSIDIAN
        assert before.headers["access-control-allow-headers"] == "authorization,content-type"
        answer = http.ask("POST", "/api/chat", {**CHAT, "model": "localspec", "stream": False}, **site)
        assert answer.status_code == 200 and answer.headers["vary"] == "Origin"
        assert answer.headers["access-control-allow-origin"] == OBSIDIAN
        # Requests that other clients may send without the token need it from a page.
        refused = http.ask("GET", "/api/tags", authorization="", **site)
        assert refused.status_code == 401
        assert http.ask("GET", "/api/tags", authorization="").status_code == 200
        assert refused.headers["access-control-allow-origin"] == OBSIDIAN
        other = {"origin": "app://other", "access-control-request-method": "POST"}
        assert http.ask("OPTIONS", "/api/chat", **other).status_code == 403
        two = http.ask("GET", "/api/tags", origin=f"{OBSIDIAN}, app://other")
        assert two.status_code == 403 and "http.origins" in two.text
        elsewhere = http.ask("GET", "/api/tags", host="evil.example", origin=OBSIDIAN)
        assert elsewhere.status_code == 403 and "access-control-allow-origin" not in elsewhere.headers


@pytest.mark.slow
def test_a_scheme_whose_hosts_differ_each_time_is_let_in_with_the_token() -> None:
    with opened(section=SECTION + 'origins = ["vscode-webview://*"]\nwithout_token = ["ollama"]\n') as http:
        page = "vscode-webview://0q3ce7a1"
        answer = http.ask("GET", "/api/tags", origin=page)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, page)
        assert http.ask("GET", "/api/tags", authorization="", origin=page).status_code == 401
        others = (f"{page}, https://evil.example", "vscode-webview://", "vscode-webviews://a")
        for other in (*others, "https://vscode-webview", "null", f"{page}/a"):
            assert http.ask("GET", "/api/tags", origin=other).status_code == 403, other


def models_listed(http: HttpServer) -> float:
    async def seen() -> str:
        async with await wire(http.daemon) as client:
            return (await client.metrics()).prometheus

    counted = re.search(r'^localspec_requests_total\{.*method="models/list".*\} (.+)$', run(seen()), re.M)
    return 0.0 if counted is None else float(counted[1])


@pytest.mark.slow
def test_names_of_no_model_may_mean_the_configured_one(echo: HttpServer) -> None:
    said = {"messages": [{"role": "user", "content": "options"}], "model": "gpt-4o"}
    seen = echo.post("/v1/chat/completions", said)["choices"][0]["message"]["content"]
    assert json.loads(seen)["model"] == "gpt-4o"
    unknown = echo.ask("POST", "/api/show", {"model": "gpt-4o"})
    assert unknown.status_code == 404 and "`localspec config set http.any_model true`" in unknown.text
    open_too = 'any_model = true\nwithout_token = ["openai", "ollama"]\n'
    with opened(section=SECTION + open_too) as http:
        for headers in ({}, {"authorization": ""}):
            # To who shows the token a path is a name.
            for name in ("gpt-4o", "PLACEHOLDER", "unset", *(("/etc/passwd",) if headers else ())):
                answer = http.ask("POST", "/v1/chat/completions", said | {"model": name}, **headers)
                assert answer.status_code == 200, (name, answer.text)
                asked = json.loads(answer.json()["choices"][0]["message"]["content"])
                assert (asked["model"], answer.json()["model"]) == ("bundled", "localspec")
            known = http.ask("POST", "/v1/chat/completions", said | {"model": "stdlib-1m"}, **headers)
            assert known.json()["model"] == "stdlib-1m"
            before = models_listed(http)
            body = said | {"model": "stdlib-1m"}
            assert http.ask("POST", "/v1/chat/completions", body, **headers).is_success
            assert models_listed(http) == before + 1, "the disk is looked through once for a request"
        shown = http.ask("POST", "/api/show", {"model": "llama3"}, authorization="")
        assert shown.status_code == 200


@pytest.mark.slow
def test_without_the_token_no_file_is_reached_and_nothing_is_learnt(tmp_path: Path) -> None:
    with opened(section=SECTION + 'without_token = ["ollama", "llama.cpp"]\n') as http:
        for named in ("/etc/shadow", "~/.ssh/none", "../../etc/passwd", str(tmp_path), "not-here"):
            for path, body in (
                ("/api/generate", {"prompt": "x"}),
                ("/api/show", {}),
                ("/api/chat", {"messages": []}),
                ("/tokenize", {"content": "x"}),
                ("/infill", {"prompt": "x"}),
            ):
                answer = http.ask("POST", path, {"model": named, **body}, authorization="")
                assert answer.status_code == 404, answer.text
                assert f"there is no model named {named!r}" in answer.text
        files = ({"workspace": str(tmp_path)}, {"draft": "/etc/shadow"}, {"model": "/etc/shadow"})
        for own in (*files, *OWNERS_OWN):
            for place in ({"localspec": own}, {"options": {"localspec": own}}):
                said = {"model": "localspec", "prompt": "x", "raw": True, **place}
                refused = http.ask("POST", "/api/generate", said, authorization="")
                assert refused.status_code == 401 and "the token" in refused.text
        own = {"k": 3, "remember": True, "proposer": None, "draft": None}
        asked = {"prompt": "options", "localspec": own}
        for shown, others in (("", (False, "prompt-lookup")), (f"Bearer {http.token}", (True, "auto"))):
            seen = json.loads(http.post("/completion", asked, authorization=shown)["content"])
            assert (seen["k"], seen["remember"], seen["proposer"]) == (3, *others)
        for path, body in (("/completion", {"prompt": "x"}), ("/api/chat", {"messages": []})):
            listed = http.ask("POST", path, {"model": "stdlib-6m:latest", **body}, authorization="")
            assert listed.status_code == 200, listed.text
        owner = http.ask("POST", "/completion", {"prompt": "x", "model": "/nowhere.gguf"})
        assert owner.status_code == 200, "echo loads whatever is named"


def test_more_than_is_taken_is_refused_before_it_is_read(echo: HttpServer) -> None:
    answer = echo.ask("POST", "/completion", b'{"prompt": "' + b"x" * (5 << 20) + b'"}')
    assert answer.status_code == 413 and "4 MiB" in answer.text


def test_one_wrong_among_several_tokens_refuses_them_all(echo: HttpServer) -> None:
    right, wrong = f"Authorization: Bearer {echo.token}\r\n", "Authorization: Bearer wrong\r\n"
    for shown, status in ((right, b"200"), (right + right, b"200"), (right + wrong, b"401"), ("", b"401")):
        with socket.create_connection(("127.0.0.1", echo.port), DEADLINE_S) as connection:
            head = f"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n{shown}Connection: close\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(1024).split()[1] == status


@pytest.mark.slow
def test_a_new_token_holds_at_once_and_the_old_one_no_longer() -> None:
    with opened() as http:
        path = home.http_token_path()
        path.unlink()
        assert http.ask("GET", "/v1/models").status_code == 401, "there is none"
        path.mkdir()
        assert http.ask("GET", "/v1/models").status_code == 401, "nor is this one"
        path.rmdir()
        new = localspec("daemon", "token")
        assert new == localspec("daemon", "token") != (new := localspec("daemon", "token", "--new"))
        assert http.ask("GET", "/v1/models").status_code == 401
        assert http.ask("GET", "/v1/models", authorization=f"Bearer {new}").status_code == 200
        path.chmod(0o644)
        assert http.ask("GET", "/v1/models", authorization=f"Bearer {new}").status_code == 401


def localspec(*words: str) -> str:
    command = (sys.executable, "-m", "localspec", *words)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.http.server import HttpServer, opened


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServer]:
    with opened(real=True) as http:
        yield http


@pytest.fixture(scope="module")
def echo() -> Iterator[HttpServer]:
    """An HTTP server before models that answer as the prompt requests."""
    with opened() as http:
        yield http


@pytest.fixture(scope="module")
def client(echo: HttpServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{echo.url}/v1", api_key=echo.token, max_retries=0) as client:
        yield client

"""Prompts to be continued, as OpenAI's and llama.cpp's dialects say them: texts, tokens, both, or several."""

from __future__ import annotations

import msgspec

from localspec.client import Client, Deadlines, Stream
from localspec.errors import InvalidOptions
from localspec.http.models import model_of
from localspec.protocol.options import Options
from localspec.protocol.results import Result

MOST = 16
"""answers to one request"""


class Given(msgspec.Struct):
    """A prompt as llama.cpp's server takes it for models that see."""

    prompt_string: str
    multimodal_data: list[str] = []


Mixed = list[str | int]
"""pieces of one prompt"""
Prompt = str | Given | list[str | int | Mixed | Given]
Single = str | Mixed


def prompts_of(said: Prompt) -> list[Single]:
    """Each prompt by itself; a list with a token in it is one. Raises :class:`InvalidOptions`."""
    if not isinstance(said, list):
        return [_single(said)]
    if not said:
        raise InvalidOptions("prompt is an empty list", "Give a text, tokens, or a list of those.")
    if any(isinstance(piece, int) for piece in said):
        pieces = [piece for piece in said if isinstance(piece, str | int)]
        if len(pieces) < len(said):
            raise InvalidOptions("prompt has lists beside tokens", "Give pieces of one prompt, or several.")
        return [pieces]
    if len(said) > MOST:
        raise InvalidOptions(f"prompt has {len(said)} prompts", f"Give at most {MOST} of them.")
    return [_single(each) for each in said if not isinstance(each, int)]


def _single(said: str | Mixed | Given) -> Single:
    if not isinstance(said, Given):
        return said
    if said.multimodal_data:
        raise InvalidOptions("multimodal_data is not supported", "Leave multimodal_data out.")
    return said.prompt_string


def text_of(prompt: Single, why: str) -> str:
    """A prompt that must be a text. Raises :class:`InvalidOptions` with ``why``."""
    if isinstance(prompt, str):
        return prompt
    raise InvalidOptions(f"tokens as a prompt are not supported {why}", "Give a text.")


async def continued(client: Client, prompt: Single, options: Options, deadlines: Deadlines) -> Stream[Result]:
    """The continuation of a prompt as it is."""
    if isinstance(prompt, str):
        return client.generate(prompt, raw=True, options=options, **deadlines)
    tokens = await _tokens(client, prompt, options.model)
    return client.generate(tokens=tokens, options=options, **deadlines)


async def _tokens(client: Client, pieces: Mixed, model: str | None) -> tuple[int, ...]:
    """The tokens of all pieces; a text at the beginning has what texts begin with before it."""
    tokens: list[int] = []
    for i, piece in enumerate(pieces):
        if isinstance(piece, int):
            tokens.append(piece)
        else:
            found = await client.tokenize(piece, model=model_of(model), start=i == 0, special=True)
            tokens += [token.id for token in found]
    return tuple(tokens)

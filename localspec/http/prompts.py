"""Prompts of the dialects that are continued: texts, tokens, both mixed, or several of them."""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec.structs import replace

from localspec.client import Client, Following, Stream
from localspec.errors import InvalidOptions
from localspec.http.models import model_of
from localspec.http.sampling import IDS, MOST_TEXTS, SEEDS
from localspec.protocol.messages import Tokenize
from localspec.protocol.options import Options
from localspec.protocol.requests import Result

MOST = 16
"""the number of answers to one request"""


class PromptObject(msgspec.Struct):
    prompt_string: str
    multimodal_data: list[str] = []


Mixed = list[str | int]
Prompt = str | PromptObject | list[str | int | Mixed | PromptObject]
Single = str | Mixed


def prompts_of(given: Prompt) -> list[Single]:
    """Return each prompt by itself; a list that holds a token is one. Raises :class:`InvalidOptions`."""
    if not isinstance(given, list):
        return [_single(given)]
    if not given:
        raise InvalidOptions("prompt is an empty list", "Give a string, tokens, or a list of those.")
    kinds = set(map(type, given))  # fast also for 300,000 tokens
    if int in kinds:
        if not kinds <= {int, str}:
            remedy = "Give one list of tokens and strings for one prompt, or a list of them for several."
            raise InvalidOptions("prompt is a list that mixes tokens with lists or objects", remedy)
        return [cast(Mixed, given)]
    if len(given) > MOST:
        raise InvalidOptions(f"prompt is a list of {len(given)} prompts", f"Give at most {MOST} prompts.")
    return [_single(each) for each in given if not isinstance(each, int)]


def _single(given: str | Mixed | PromptObject) -> Single:
    if not isinstance(given, PromptObject):
        return given
    if given.multimodal_data:
        raise InvalidOptions("multimodal_data is not supported", "Leave multimodal_data out.")
    return given.prompt_string


async def continue_prompts(
    client: Client, given: list[Single], options: Options, count: int, how: Following
) -> list[Stream[Result]]:
    """Return ``count`` answers to each prompt, without a chat template. Raises :class:`InvalidOptions`."""
    if len(given) * count > MOST:
        message = f"one request is for {len(given) * count} answers, {count} to each prompt"
        raise InvalidOptions(message, f"Request at most {MOST} answers at once.")
    streams: list[Stream[Result]] = []
    each_options = vary_seeds(options, count)
    for prompt in given:
        if isinstance(prompt, str):
            streams += [client.generate(prompt, raw=True, options=each, **how) for each in each_options]
        else:
            tokens = await _tokens(client, prompt, options.model)
            streams += [client.generate(tokens=tokens, options=each, **how) for each in each_options]
    return streams


def vary_seeds(options: Options, count: int) -> list[Options]:
    if options.seed is None:
        return [options] * count
    return [replace(options, seed=(options.seed + i) % SEEDS) for i in range(count)]


async def _tokens(client: Client, pieces: Mixed, model: str | None) -> tuple[int, ...]:
    """Return the tokens of all pieces; a text at the beginning gets the model's start token before it. Raises
    :class:`InvalidOptions`."""
    texts = [*map(type, pieces)].count(str)
    if not texts:
        return tuple(cast(list[int], pieces))
    if texts > MOST_TEXTS:
        message = f"a prompt of tokens has {texts} strings, more than {MOST_TEXTS}"
        raise InvalidOptions(message, f"Join the strings. {IDS}")
    tokens: list[int] = []
    for i, piece in enumerate(pieces):
        if isinstance(piece, int):
            tokens.append(piece)
        else:
            params = Tokenize(text=piece, model=model_of(model), start=i == 0, special=True)
            tokens += (await client.tokenize(params)).tokens
    return tuple(tokens)

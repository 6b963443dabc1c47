"""The models that a request may name, and their names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from localspec.client import Client
from localspec.config import Config, load_config
from localspec.errors import ModelError, ModelNotFound
from localspec.models.library import settle_name
from localspec.models.model import place_of
from localspec.models.template import PLAIN, texts_of
from localspec.protocol.messages import ModelDescription
from localspec.tools.families import find_thought

DEFAULT_MODEL = "localspec"
"""the name of the configured model, for clients that must name one"""
LATEST = ":latest"
"""the suffix that Ollama's clients add to a name without a tag"""


def model_of(name: str | None) -> str | None:
    """Return the model that a request's name stands for; None for the configured one."""
    name = (name or "").removesuffix(LATEST)
    return None if name in ("", DEFAULT_MODEL) else name


@cache
def read_config() -> Config:
    """Return ``config.toml`` as of the first call; a changed file takes effect in a new process."""
    return load_config()


def configured_model() -> str:
    """Return the name or path of the configured model. Raises :class:`InvalidOptions`."""
    config = read_config()
    return os.path.expanduser(settle_name(config.options.model or "", config.model_dirs))


async def settle_model(client: Client, body: Any, *, is_owner: bool) -> None:
    """Check the model that a body names: unauthenticated clients may name the listed ones only. If
    ``http.any_model`` is set, a name that is not listed is replaced by the configured model; else raises
    :class:`ModelNotFound`."""
    name, any_model = model_of(getattr(body, "model", None)), read_config().http.any_model
    if name is None or (is_owner and not any_model):
        return
    try:
        await model_named(client, name)
    except ModelNotFound:
        if not any_model:
            raise
        body.model = DEFAULT_MODEL


def names_of(models: Iterable[ModelDescription]) -> dict[str, ModelDescription]:
    """Return the models that can be loaded by their first names; of one in two formats, the first."""
    named: dict[str, ModelDescription] = {}
    for model in models:
        if model.problem is None:
            named.setdefault(model.names[0] if model.names else model.id, model)
    return named


async def named_models(client: Client) -> dict[str, ModelDescription]:
    """Return all models that can be loaded by name; the configured one is first, as :data:`DEFAULT_MODEL`."""
    named = names_of(await client.models())
    configured = await asyncio.to_thread(configured_model)
    own = [each for each in named.values() if _is_named(each, configured)]
    return {DEFAULT_MODEL: own[0], **named} if own else named


async def model_named(client: Client, name: str) -> ModelDescription:
    """Return the model of a name, id or path. Raises :class:`ModelNotFound`."""
    named, name = await named_models(client), name.removesuffix(LATEST)
    known = named.get(name) or next((model for model in named.values() if _is_named(model, name)), None)
    if known is None:
        raise ModelNotFound(f"there is no model named {name[:200]!r}")
    return known


def _is_named(model: ModelDescription, name: str) -> bool:
    return name in (model.id, model.path, *model.names)


def is_at(model: ModelDescription, place: str) -> bool:
    """Return True if a listed model is the loaded one at ``place``; links lead to it from its own path."""
    return model.loaded and place in {place_of(Path(each)) for each in (model.path, *model.also)}


def read_texts(path: str) -> tuple[dict[str, str], list[str]]:
    """Return a model's special texts, empty if its files cannot be read, and what its chats can have besides
    texts: ``tools``, which a template without tools gets as a text, and ``thinking``."""
    try:
        texts = texts_of(Path(path))
    except (ModelError, OSError):
        texts = dict.fromkeys(("model_ftype", "bos_token", "eos_token", "chat_template"), "")
    template = texts["chat_template"]
    has = {"tools": template not in ("", PLAIN), "thinking": find_thought(template) is not None}
    return texts, [name for name in has if has[name]]


def modified_s(model: ModelDescription) -> float:
    """Return a model file's modification time in seconds since 1970; 0 if the file is gone."""
    try:
        return os.stat(model.path).st_mtime
    except OSError:
        return 0.0

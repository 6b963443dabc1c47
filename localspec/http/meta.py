"""``meta`` of a model as llama.cpp's server has it, and its list ``models``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from localspec.http.models import configured
from localspec.models.fit import context_size
from localspec.models.sections import Sections
from localspec.protocol.messages import ModelDescription

Metas = dict[str, dict[str, Any]]


async def metas_of(models: Mapping[str, ModelDescription]) -> Metas:
    """Return the ``meta`` of each model by its name."""
    return await asyncio.to_thread(_read, models)


def _read(models: Mapping[str, ModelDescription]) -> Metas:
    sections = Sections(configured())
    return {name: _meta(model, sections) for name, model in models.items()}


def _meta(model: ModelDescription, sections: Sections) -> dict[str, Any]:
    return {
        "n_ctx": context_size(model.context, sections.engine(model.path)),
        "n_ctx_train": model.context,
        "n_params": model.parameters,
        "size": model.size,
        "ftype": model.quantisation,
    }

"""Remedies for the names of models that were not found."""

from __future__ import annotations

import os
from collections.abc import Sequence

from localspec.config import config_path, environment_options, load_config
from localspec.errors import LocalspecError, ModelError, ModelNotFound
from localspec.models.library import find, is_path
from localspec.models.sections import Sections

NOT_THERE = (
    "This shell finds it; the daemon was started with other settings or another environment (HF_HOME, "
    "OLLAMA_MODELS, …): run `localspec daemon restart`; for a service, `localspec service install` first."
)


def explained(error: ModelError, arguments: Sequence[str]) -> ModelError:
    """The error, with a remedy for a name that this shell finds, and for one that is a setting and is not
    among the typed ``arguments``."""
    typed = [name for each in arguments for name in (each, each.partition("=")[2]) if name]
    try:
        config = load_config()
        options = Sections(config).merged(environment_options())
    except LocalspecError:
        return error
    configured = {name: key for key in ("model", "draft") if (name := getattr(options, key))}
    for name in (*typed, *configured):
        path = os.path.normpath(os.path.expanduser(name))
        if repr(name) not in error.message and not (is_path(name) and path in error.message):
            continue
        try:
            find(name, config.model_dirs)
            return ModelNotFound(error.message, NOT_THERE) if isinstance(error, ModelNotFound) else error
        except LocalspecError:
            pass
        if name not in typed:
            key = configured[name]
            places = f"{config_path()} or LOCALSPEC_{key.upper()}"
            remedy = f"The name is set as {key} in {places}: `localspec config show`. {error.remedy}"
            return type(error)(error.message, remedy)
    return error

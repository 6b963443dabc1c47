"""What a shell offers for a word that is being typed; whatever fails offers nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from localspec.wording import one_line

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from localspec.protocol.messages import ModelDescription

SHOWN_TITLE = 60


def models(_context: CompletionContext) -> list[str]:
    """The names of models that can be used."""
    return _names(lambda model: model.problem is None)


def listed(_context: CompletionContext) -> list[str]:
    """The names of all models, also of those that cannot be used."""
    return _names(lambda _model: True)


def _names(is_meant: Callable[[ModelDescription], bool]) -> list[str]:
    """Of the models' files only what has changed is read."""
    from localspec.config import load_config
    from localspec.models.library import list_models

    meant = filter(is_meant, list_models(load_config().model_dirs))
    return _typeable({"bundled", *(name for model in meant for name in (model.names or (model.id,)))})


def _typeable(names: set[str]) -> list[str]:
    """The names without control characters, which would command a terminal."""
    return sorted(name for name in names if one_line(name) == name)


def drafts(context: CompletionContext) -> list[str]:
    """What may be named as a draft model."""
    return ["auto", "none", *models(context)]


def pulled(_context: CompletionContext) -> list[str]:
    """What `models pull` downloaded."""
    from localspec.hub import records

    return _typeable({each.name for each in records.read()})


def settings(context: CompletionContext) -> Iterator[tuple[str, str]]:
    """The names of settings, with what they mean; whole keys once one is begun."""
    from localspec import settings

    for setting in settings.settings():
        yield setting.name, setting.meaning
        if context.incomplete and setting.table:
            yield setting.key, setting.meaning


def values(context: CompletionContext) -> list[str]:
    """What the setting that was typed before takes, where that can be listed."""
    from localspec import settings

    setting = settings.find(context["key"].raw or "")
    of_models = {"model": models, "draft": drafts}.get(setting.name)
    return list(setting.choices) if of_models is None else of_models(context)


def sessions(_context: CompletionContext) -> Iterator[tuple[str, str]]:
    """The sessions that a running daemon knows, with their titles; none is started to be asked."""
    from localspec.cli import answer

    for session in answer.remote(lambda client: client.sessions(), start=False):
        yield session.session, one_line(session.title or "")[:SHOWN_TITLE]

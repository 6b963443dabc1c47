"""Shell completions of a word being typed; an error gives none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from localspec.cli.answer import remote
from localspec.config import find as find_setting
from localspec.config import load_config
from localspec.config import settings as all_settings
from localspec.models.index import read_disk
from localspec.protocol.messages import ModelDescription
from localspec.protocol.options import choices
from localspec.wording import one_line

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

SHOWN_TITLE = 60


def models(_context: CompletionContext) -> list[str]:
    return _names(lambda model: model.problem is None)


def complete_models(_context: CompletionContext) -> list[str]:
    """The names of all models, also of those that cannot be used."""
    return _names(lambda _model: True)


def _names(is_meant: Callable[[ModelDescription], bool]) -> list[str]:
    """The names of models; only changed files are read."""
    meant = filter(is_meant, read_disk(load_config().model_dirs).models)
    return typeable({"bundled", *(name for model in meant for name in (model.names or (model.id,)))})


def typeable(names: set[str]) -> list[str]:
    """The names without control characters, which would command a terminal."""
    return sorted(name for name in names if one_line(name) == name)


def drafts(context: CompletionContext) -> list[str]:
    return ["auto", "none", *models(context)]


def settings(context: CompletionContext) -> Iterator[tuple[str, str]]:
    """The names of settings with their meanings; also whole keys once a word is begun."""
    for setting in all_settings():
        yield setting.name, setting.meaning
        if context.incomplete and setting.table:
            yield setting.key, setting.meaning


def values(context: CompletionContext) -> list[str]:
    """Return the possible values of the setting whose key was typed before: for ``model`` and ``draft`` the
    names of models, for others their choices. The list is empty for a setting without choices."""
    setting = find_setting(context["key"].raw or "")
    of_models = {"model": models, "draft": drafts}.get(setting.name)
    return list(choices(setting.struct, setting.name)) if of_models is None else of_models(context)


def sessions(_context: CompletionContext) -> Iterator[tuple[str, str]]:
    """The sessions of a running daemon with their titles; no daemon is started."""
    for session in remote(lambda client: client.sessions(), start=False):
        yield session.session, one_line(session.title or "")[:SHOWN_TITLE]

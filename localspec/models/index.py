"""Descriptions of models, kept in the cache directory: a model is read anew when its files change.

Two processes may write the file at once: each writes all of it, and the last one stays. The models of the
other process are then read again, once.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from localspec import home
from localspec._version import __version__
from localspec.errors import LocalspecError
from localspec.models.bounded import read_bounded
from localspec.models.description import Format, Vocabularies, format_of, text_of
from localspec.models.model import Model, signature_of
from localspec.protocol.messages import ModelDescription
from localspec.protocol.pairs import Signature

MAX_INDEX = 64 * 1024 * 1024
LAYOUT = f"{__version__}/5"
"""a file of another layout is ignored: raise the number when descriptions change in form or meaning"""


class _Entry(msgspec.Struct, array_like=True):
    signature: Signature
    model: ModelDescription


class _Content(msgspec.Struct):
    layout: str
    models: dict[str, _Entry]


def index_path() -> Path | None:
    """The file of the index; None where no cache is possible."""
    with contextlib.suppress(LocalspecError):
        return home.cache_dir() / "models.json"
    return None


class Index:
    """Descriptions by path, from the last time they were read."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._content = _Content(LAYOUT, {}) if path is None else _read(path)
        self._vocabularies: Vocabularies = {}
        self._changed = False

    def model(self, name: str, path: Path) -> Model:
        """The model at a path, described under this name; read where its files have changed since."""
        key, signature = text_of(path), signature_of(path)
        known = self._content.models.get(key)
        if known is None or known.signature != signature or known.model.id != text_of(name):
            found = Model(path, format_of(path), stamp=signature)
            known = _Entry(signature, found.described(name, self._vocabularies))
            self._content.models[key] = known
            self._changed = True
        format: Format = "mlx" if known.model.format == "mlx" else "gguf"
        return Model(path, format, known=known.model, stamp=signature)

    def save(self) -> None:
        """Write the descriptions if some are new; where that fails, those are read again next time."""
        if not self._changed or self._path is None:
            return
        models = {path: entry for path, entry in self._content.models.items() if os.path.lexists(path)}
        content = msgspec.json.encode(_Content(LAYOUT, models)).decode()
        with contextlib.suppress(OSError):
            home.write_private(self._path, content)
            self._changed = False


def _read(path: Path) -> _Content:
    with contextlib.suppress(LocalspecError, msgspec.DecodeError, ValueError, RecursionError):
        content = msgspec.json.decode(read_bounded(path, MAX_INDEX), type=_Content)
        if content.layout == LAYOUT:
            return content
    return _Content(LAYOUT, {})

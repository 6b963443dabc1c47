"""Table of all settings, from the configuration's schema."""

from __future__ import annotations

import json

from assets.docs.parts import table
from localspec.settings import Setting, settings


def body() -> str:
    """Return a row for each setting: key, allowed values, default, meaning."""
    return table(("key", "takes", "default", "meaning"), map(_row, settings()))


def _row(setting: Setting) -> tuple[str, ...]:
    default = "not set" if setting.default is None else f"`{json.dumps(setting.default)}`"
    return f"`{setting.key}`", setting.takes, default, setting.meaning

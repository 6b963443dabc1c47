"""The settings of the server, and messages about wrong ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from localspec.lsp.server import FIELDS, EditorSettings, read_settings, section
from tests.hygiene.source import ROOT

ALL: dict[str, Any] = {"enabled": False, "automatic": False, "multiline": False}
ALL |= {"model": "stdlib-1m", "maxMs": 100, "excludedLanguages": ["markdown"]}


def test_each_can_be_set() -> None:
    settings, wrong = read_settings(ALL, EditorSettings())
    assert wrong == [] and settings == msgspec.convert(ALL, EditorSettings)
    assert set(ALL) == set(FIELDS)


def test_what_is_not_said_stays() -> None:
    base = EditorSettings(model="one", max_ms=1)
    assert read_settings({"model": None}, base) == (EditorSettings(max_ms=1), [])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"maxms": 1}, "there is no setting named 'maxms'; did you mean 'maxMs'?"),
        ({"maxMs": 0}, "maxMs: expected int >= 1"),
        ({"enabled": "yes"}, "enabled: expected bool"),
    ],
)
def test_what_is_wrong_is_named_and_the_rest_holds(values: dict[str, Any], sentence: str) -> None:
    settings, wrong = read_settings({**values, "automatic": False}, EditorSettings())
    assert settings == EditorSettings(automatic=False)
    assert len(wrong) == 1 and wrong[0].startswith(sentence), wrong


@pytest.mark.parametrize(
    ("values", "own"),
    [
        (None, {}),
        ([], {}),
        ({"enabled": False}, {"enabled": False}),
        ({"localspec": {"enabled": False}, "python": {}}, {"enabled": False}),
        ({"localspec": None}, {}),
        ({"python": {"analysis": {}}, "yaml": {}}, {}),
        ({"maxms": 1, "python": {}}, {"maxms": 1}),
    ],
)
def test_sections(values: Any, own: dict[str, Any]) -> None:
    assert section(values) == own


def test_the_readme_tells_them() -> None:
    readme = (ROOT / "plugins" / "lsp" / "README.md").read_text(encoding="utf-8")
    assert all(f"\n| `{name}` |" in readme for name in FIELDS)

"""Keys are measured as a typing user sees them."""

from __future__ import annotations

import pytest

from tests.vscode.asking import Asking
from tests.vscode.editor import Editor
from tests.vscode.measure import measured

pytestmark = pytest.mark.slow


def test_what_is_counted_was_asked_of_the_model_and_drawn(editor: Editor, asking: Asking) -> None:
    editor.open("measured.py")
    asked = asking.answered("model")
    figures = measured(editor, 3)
    assert len(figures) == 3
    assert asking.answered("model") >= asked + 3
    assert all(drawn > daemon > 0 for drawn, daemon in figures)

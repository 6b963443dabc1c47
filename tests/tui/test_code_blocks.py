"""Code that is copied is the code that is shown."""

from __future__ import annotations

import pytest

from localspec.tui.commands.messages import code_blocks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("No `code` here.\n\n- one\n- two", []),
        ("```py\nx = 1\n\ny = 2\n```\nand\n~~~\nz\n~~~", ["x = 1\n\ny = 2", "z"]),
        ("1. do\n\n   ```py\n   x = 1\n     y\n   ```\n", ["x = 1\n  y"]),
        ("> ```\n> x\n> ```\n", ["x"]),
        ("Indented:\n\n    x = 1\n      y\n\nno more", ["x = 1\n  y"]),
        ("- a\n  - b\n\n    ```\n    deep\n    ```\n\n```\nflat\n```", ["deep", "flat"]),
        ("````md\n```\nx\n```\n````", ["```\nx\n```"]),
        ("It goes on:\n```py\nx =", ["x ="]),
        ("```\n```", [""]),
    ],
)
def test_code_is_found_wherever_it_stands(text: str, found: list[str]) -> None:
    assert code_blocks(text) == found

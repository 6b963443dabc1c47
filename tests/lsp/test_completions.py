"""Inline completions as an editor asks for them, against those of the daemon itself."""

from __future__ import annotations

from pathlib import Path

from localspec.client import connect
from tests.lsp.editor import editing, texts
from tests.waiting import run

BEFORE = "import os\n\n\ndef join(parts):\n    return "
AFTER = "\n\n\nprint(join([]))\n"


def test_an_answer_is_the_daemons_own(home: Path, tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "a.py"
        async with editing(tmp_path) as editor, await connect() as client:
            editor.open(file.as_uri(), BEFORE + AFTER)
            items = await editor.complete(file.as_uri(), (4, 11))
            answer = await client.complete(
                BEFORE, AFTER, language="python", path=str(file), trigger="invoked", n=3
            ).result()
            assert texts(items) == [item.text for item in answer.items] != []
            (place,) = {(item.range.start.line, item.range.start.character) for item in items if item.range}
            assert place == (4, 11)

    run(test())

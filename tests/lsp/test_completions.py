"""Inline completions as an editor requests them, against those of the daemon itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lsprotocol import types

from localspec.client import Client, connect
from localspec.protocol.messages import MemoryStats
from tests.lsp.editor import editing, texts

pytestmark = pytest.mark.slow

BEFORE = "import os\n\n\ndef join(parts):\n    return "
AFTER = "\n\n\nprint(join([]))\n"


async def test_an_answer_is_the_daemons_own(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    async with editing(tmp_path, options={"maxMs": 60_000}) as editor, await connect() as client:
        editor.open(file.as_uri(), BEFORE + AFTER)
        items = await editor.complete(file.as_uri(), (4, 11))
        # Now the daemon knows it: to vary an answer takes chance.
        answer = await client.complete(
            BEFORE, AFTER, language="python", path=str(file), trigger="invoked", n=3
        ).result()
        assert texts(items) == [item.text for item in answer.items] != []
        (place,) = {(item.range.start.line, item.range.start.character) for item in items if item.range}
        assert place == (4, 11)


async def test_a_workspace_is_learned_and_forgotten(home: Path, tmp_path: Path) -> None:
    async def learned(client: Client) -> list[str | None]:
        tables = (await client.request("memory/stats", MemoryStats)).tables
        return [table.workspace for table in tables if table.entries]

    root = tmp_path.resolve()
    subprocess.run(("git", "init", "-q", str(root)), check=True)
    (root / "a.py").write_text("def quite_unusual_name(argument):\n    return argument\n")
    window = types.WindowClientCapabilities(work_done_progress=True)
    async with editing(root, window=window) as editor, await connect() as client:
        primed = await editor.do("localspec.primeWorkspace")
        assert primed["files"] == 1 and primed["tokens"] > 5
        assert await editor.hears("Learnt", "of 1 file.")
        assert {value["kind"] for value in editor.progress} >= {"begin", "end"}
        assert editor.progress[0]["cancellable"]
        assert str(root) in await learned(client)
        editor.answer = "Keep"
        assert await editor.do("localspec.forgetWorkspace") is None
        assert str(root) in await learned(client)
        assert await editor.do("localspec.forgetWorkspace", str(root / "deep")) is None
        assert editor.said[-1] == f"Forget all that localspec has learnt in {root}?", "all that would go"
        editor.answer = "Forget"
        assert await editor.do("localspec.forgetWorkspace") == 1
        assert str(root) not in await learned(client)


async def test_a_model_is_chosen_by_name(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    async with editing() as editor:
        editor.open(file.as_uri(), BEFORE + AFTER)
        assert await editor.do("localspec.chooseModel", "no-such-model") is None
        assert "stdlib-1m" in await editor.hears("no-such-model", "Choose one of these")
        assert await editor.do("localspec.chooseModel", "stdlib-1m") == "stdlib-1m"
        await editor.complete(file.as_uri(), (4, 11))
        assert "stdlib-1m" in editor.states[-1]["message"]
        editor.answer = "stdlib-6m"
        assert await editor.do("localspec.chooseModel") == "stdlib-6m"
        await editor.complete(file.as_uri(), (4, 11))
        assert "stdlib-6m" in editor.states[-1]["message"]
        editor.answer = "as configured"
        assert await editor.do("localspec.chooseModel") == ""


async def test_without_a_directory_there_is_nothing_to_learn(home: Path) -> None:
    async with editing() as editor:
        assert await editor.do("localspec.primeWorkspace") is None
        assert await editor.hears("has no directory open")

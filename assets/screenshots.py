"""Pictures of the chat for its page, of a real answer.

.venv/bin/python -m assets.screenshots assets/pictures
.venv/bin/python -m assets.screenshots build --views  # to judge by eye
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import tempfile
from pathlib import Path

from textual.app import App
from textual.pilot import Pilot

from localspec.config import load_config
from localspec.models.catalogue import DEFAULT
from localspec.protocol.options import Options
from localspec.tui.app import ChatApp
from localspec.tui.chat import Chat

QUESTION = '''\
Say this again, with the same indentation:
```python
def geometric_mean(data):
    """Convert data to floats and compute the geometric mean."""
    try:
        return exp(fmean(map(log, data)))
    except ValueError:
        raise StatisticsError('geometric mean requires a non-empty dataset') from None
```'''
THEMES = {"dark": "textual-dark", "light": "textual-light"}
SIZE, SMALL = (100, 28), (60, 20)
VIEWS = {"first": (), "models": ("ctrl+o",), "keys": ("escape", "f1")}
"""views without an answer, and the keys from one to the next"""
LONG = "Write a Python class Stack with push, pop and peek. Then explain each method in a list."


def main(folder: str, model: str, *, views: bool) -> None:
    """Draw them, or the ``views``, with a daemon and a home of their own."""
    settings = settings_for(model)
    with tempfile.TemporaryDirectory(prefix="ls") as home:
        os.environ["LOCALSPEC_HOME"] = home
        (Path(home) / "config").mkdir()
        (Path(home) / "config" / "config.toml").write_text(settings)
        asyncio.run((_draw_views if views else _draw)(Path(folder)))


def settings_for(model: str) -> str:
    """Return config.toml of another home: this model by default, from the library of the user."""
    dirs = json.dumps(load_config().model_dirs)
    return f"model_dirs = {dirs}\n[daemon]\nport = 0\n[options]\nmodel = {json.dumps(model)}\n"


async def _draw(folder: Path) -> None:
    app = ChatApp(
        Options(temperature=0.0, proposer="prompt-lookup", k=8)
    )  # not auto: this machine may be busy
    async with app.run_test(size=SIZE) as pilot:
        chat = await _answered(app, pilot)
        await pilot.press("ctrl+t")
        for name, theme in THEMES.items():
            app.theme = theme
            await pilot.pause()
            (folder / f"chat-{name}.svg").write_text(svg(app), "utf-8")
        await app.link.ask(lambda client: client.shutdown())
        assert chat.answer is not None


async def _draw_views(folder: Path) -> None:
    app = ChatApp(Options(temperature=0.0, proposer="prompt-lookup", k=8))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await app.workers.wait_for_complete()
        for name, keys in VIEWS.items():
            await pilot.press(*keys)
            await pilot.pause(1.0)  # lists are read meanwhile
            for size in (SIZE, SMALL):
                await pilot.resize_terminal(*size)
                await pilot.pause()
                (folder / f"{name}-{size[0]}.svg").write_text(svg(app), "utf-8")
        await pilot.press("escape")
        await _answered(app, pilot, LONG)
        (folder / f"answer-{SMALL[0]}.svg").write_text(svg(app), "utf-8")
        await app.link.ask(lambda client: client.shutdown())


async def _answered(app: ChatApp, pilot: Pilot[None], question: str = QUESTION) -> Chat:
    """Return the chat once the model has answered."""
    await pilot.pause()
    await app.workers.wait_for_complete()
    chat = app.chat_screen.chat
    await chat.send(question)
    await pilot.pause()
    return chat


def svg(app: App[None]) -> str:
    """Return an app's screen as SVG, without the font that it would fetch."""
    return re.sub(r"@font-face \{.*?\}\s*", "", app.export_screenshot(title="localspec"), flags=re.DOTALL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--views", action="store_true", help="draw the other views, to judge them by eye")
    given = parser.parse_args()
    main(given.folder, given.model, views=given.views)

"""Pictures of the chat for its page, of a real answer: ``python -m assets.screenshots assets/pictures``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import tempfile
from pathlib import Path

from textual.app import App

from localspec.config import load_config
from localspec.models.catalogue import DEFAULT
from localspec.protocol.options import Options
from localspec.tui.app import ChatApp

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
SIZE = 100, 28


def main(folder: str, model: str) -> None:
    """Draw them, with a daemon and a home of their own."""
    settings = settings_for(model)
    with tempfile.TemporaryDirectory(prefix="ls") as home:
        os.environ["LOCALSPEC_HOME"] = home
        (Path(home) / "config").mkdir()
        (Path(home) / "config" / "config.toml").write_text(settings)
        asyncio.run(_draw(Path(folder)))


def settings_for(model: str) -> str:
    """Return config.toml of another home: this model by default, from the library of the user."""
    dirs = json.dumps(load_config().model_dirs)
    return f"model_dirs = {dirs}\n[daemon]\nport = 0\n[options]\nmodel = {json.dumps(model)}\n"


async def _draw(folder: Path) -> None:
    options = Options(temperature=0.0, proposer="prompt-lookup", k=8)  # not auto: this machine may be busy
    app = ChatApp(options)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await app.workers.wait_for_complete()
        chat = app.chat_screen.chat
        await chat.send(QUESTION)
        await pilot.press("ctrl+t")
        for name, theme in THEMES.items():
            app.theme = theme
            await pilot.pause()
            (folder / f"chat-{name}.svg").write_text(svg(app), "utf-8")
        await app.link.ask(lambda client: client.shutdown())
        assert chat.answer is not None


def svg(app: App[None]) -> str:
    """Return an app's screen as SVG, without the font that it would fetch."""
    return re.sub(r"@font-face \{.*?\}\s*", "", app.export_screenshot(title="localspec"), flags=re.DOTALL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--model", default=DEFAULT)
    given = parser.parse_args()
    main(given.folder, given.model)

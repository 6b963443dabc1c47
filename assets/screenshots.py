"""Pictures of the chat for README, of a real answer: ``python -m assets.screenshots`` writes them anew."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from textual.app import App

from localspec.protocol.options import Options
from localspec.tui.app import ChatApp

FOLDER = Path(__file__).with_name("pictures")
QUESTION = "What does textwrap.dedent do?"
THEMES = {"dark": "textual-dark", "light": "textual-light"}
SIZE = (100, 30)


def svg(app: App[None]) -> str:
    """What an app shows, as SVG without the font that it would fetch."""
    return re.sub(r"@font-face \{.*?\}\s*", "", app.export_screenshot(title="localspec"), flags=re.DOTALL)


async def main() -> None:
    """Ask, wait for the answer, and write what is seen in each theme."""
    app = ChatApp(Options(temperature=0.0, max_tokens=200))
    async with app.run_test(size=SIZE) as pilot:
        await app.workers.wait_for_complete()
        chat = app.chat_screen.chat
        await chat.send(QUESTION)
        await pilot.press("ctrl+t")
        for name, theme in THEMES.items():
            app.theme = theme
            await pilot.pause()
            (FOLDER / f"chat-{name}.svg").write_text(svg(app), "utf-8")


if __name__ == "__main__":
    asyncio.run(main())

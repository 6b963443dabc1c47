"""Recorded conversations on the wire, from the transcripts that tests replay."""

from __future__ import annotations

import json
from pathlib import Path

TRANSCRIPTS = Path(__file__).parent.parent.parent / "tests" / "transcripts"


def body() -> str:
    """Return a section for each transcript: a frame a line, ``→`` from the client, ``←`` from the daemon."""
    return "\n".join(map(_section, sorted(TRANSCRIPTS.glob("*.jsonl"))))


def _section(path: Path) -> str:
    about, frames = "", []
    for line in path.read_text("utf-8").splitlines():
        step = json.loads(line)
        about = step.get("about", about)
        frames += [_frame(mark, step[side]) for side, mark in SIDES if side in step]
    shown = "\n".join(frames)
    return f"## {path.stem}\n\n{about[:1].upper()}{about[1:]}\n\n```text\n{shown}\n```\n"


SIDES = (("client", "→"), ("server", "←"))


def _frame(mark: str, frame: object) -> str:
    text = frame if isinstance(frame, str) else json.dumps(frame, ensure_ascii=False)
    return f"{mark} {text}"

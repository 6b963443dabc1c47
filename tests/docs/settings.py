"""README's table of all settings, from the schema: ``python -m tests.docs.settings`` writes it anew."""

from __future__ import annotations

import json
from pathlib import Path

from localspec.settings import Setting, settings

README = Path(__file__).parent.parent.parent / "README.md"
BEGIN = "<!-- settings: `python -m tests.docs.settings` writes this table -->\n"
END = "<!-- end of settings -->"
HEAD = "| key | takes | default | meaning |\n|---|---|---|---|\n"


def row(setting: Setting) -> str:
    default = "not set" if setting.default is None else f"`{json.dumps(setting.default)}`"
    cells = (f"`{setting.key}`", setting.takes, default, setting.meaning)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


def with_table(readme: str) -> str:
    """The text with the table as it is to be; raises ValueError if its place is not marked."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("README.md has no place for the table of settings")
    return f"{before}{BEGIN}\n{HEAD}{''.join(map(row, settings()))}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")

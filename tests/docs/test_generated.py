"""The generated parts of the documentation are current and complete."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from assets.docs.__main__ import PARTS, Part, current
from assets.docs.meanings import MEANINGS
from assets.docs.messages import messages
from assets.docs.parts import DOCS, END, filled, table
from localspec.cli.app import app
from localspec.cli.examples import EXAMPLES
from localspec.errors import LocalspecError, ModelNotFound
from localspec.protocol.messages import METHODS, NOTIFICATIONS
from localspec.settings import settings
from tests.hygiene.source import ROOT

OF_OTHERS = {"--force"}
"""flags of other programs that remedies name"""


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


@pytest.mark.parametrize("part", PARTS, ids=[part.name for part in PARTS])
def test_a_part_is_current(part: Part) -> None:
    assert current(part) == page(part.page), "run .venv/bin/python -m assets.docs"


def test_a_page_without_a_place_is_refused() -> None:
    for part in PARTS:
        with pytest.raises(ValueError, match="no place"):
            filled(page(part.page).replace(END.format(name=part.name), ""), part.name, "")


def test_the_table_of_settings_has_all() -> None:
    written = page("settings.md")
    assert all(f"\n| `{setting.key}` | {setting.takes} |" in written for setting in settings())


def test_every_command_has_a_section() -> None:
    headings = set(re.findall(r"^#+ localspec ?(.*)$", page("cli.md"), re.MULTILINE))
    assert set(EXAMPLES) <= headings
    assert {name for name in app if not name.startswith("-")} <= headings


@pytest.mark.parametrize("command", EXAMPLES)
def test_a_section_has_the_flags_and_the_examples_of_the_help(command: str) -> None:
    told = StringIO()
    app.help_print(command.split(), console=Console(file=told, width=400))
    general, *sections = re.split(r"^#+ localspec ?", page("cli.md"), flags=re.MULTILINE)
    (written,) = (text for text in sections if text.partition("\n")[0] == command)
    written += general.partition("<!--")[0] if not command else ""
    flag = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
    assert set(flag.findall(written)) == set(flag.findall(told.getvalue())) | set(flag.findall(command))
    assert all(f"\n{example}\n" in written for example in EXAMPLES[command])


def test_every_error_has_a_row() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page("troubleshooting.md"), re.MULTILINE))
    kinds = [LocalspecError]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each.__module__ == LocalspecError.__module__]
    assert rows == {(kind.code, kind.__name__) for kind in kinds if "code" in vars(kind)}


def test_messages_are_read_from_the_source() -> None:
    found = list(messages())
    assert len(found) > 300 and all(len(each.text) <= 300 for each in found)
    assert ("model_not_found", "there is no model named …", ModelNotFound.default_remedy) in found
    assert [each for each in found if not each.remedy] == []
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page("messages.md")))
    assert flags and {flag for flag in flags if flag not in page("cli.md")} <= OF_OTHERS
    assert {each.code for each in found} <= set(re.findall(r"^## (\w+)$", page("messages.md"), re.MULTILINE))


def test_every_method_is_described_and_has_its_parameters() -> None:
    written = page("wire.md")
    described = written.partition("## Methods\n")[2].partition("### Parameters")[0]
    for name in METHODS:
        assert f"`{name}`" in described and f"\n#### `{name}`\n" in written, name
    assert all(f"\n#### `{name}`\n" in written or name == "event" for name in NOTIFICATIONS)


def test_every_accepted_http_field_has_a_meaning_and_no_other() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| (accepted|required) \| ([^|]*) \|$", page("http.md"), re.MULTILINE
    )
    assert rows and not [name for name, _, meaning in rows if not meaning.strip()]
    assert {name for name, _, _ in rows} == set(MEANINGS)


def test_every_transcript_has_a_section() -> None:
    written = page("transcripts.md")
    for path in (ROOT / "tests" / "transcripts").glob("*.jsonl"):
        section = written.partition(f"\n## {path.stem}\n")[2].partition("\n## ")[0]
        frames = re.findall(r"^[→←] ", section, re.MULTILINE)
        about = sum(line.startswith('{"about"') for line in path.read_text("utf-8").splitlines())
        assert len(frames) == len(path.read_text("utf-8").splitlines()) - about


def test_cells_of_a_table_keep_their_bars() -> None:
    assert table(("a", "b"), [("x | y\nz", "<t>")]).splitlines()[-1] == r"| x \| y z | \<t> |"

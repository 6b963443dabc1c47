"""The pages that are made from the code are complete."""

from __future__ import annotations

import re

import pytest

from assets.docs.reference import pages, table
from localspec.config import settings
from localspec.protocol.messages import METHODS
from tests.cli.test_help import ALL
from tests.docs.test_readme import PAGES


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages()


def test_every_command_setting_and_method_has_its_place(made: dict[str, str]) -> None:
    headings = set(re.findall(r"^## localspec ?(.*)$", made["reference/commands.md"], re.MULTILINE))
    assert headings == set(ALL)
    rows = re.findall(r"^\| `([\w.]+)` \|", made["reference/settings.md"], re.MULTILINE)
    assert rows == [setting.key for setting in settings()]
    described = PAGES["wire.md"].partition("## Methods\n")[2]
    for name in METHODS:
        assert f"\n### `{name}`\n" in made["reference/methods.md"] and f"`{name}`" in described, name


def test_every_error_and_accepted_http_field_has_its_meaning(made: dict[str, str]) -> None:
    errors = made["reference/errors.md"]
    assert "| `model_not_found` | `ModelNotFound` | 1 | See `localspec models list`" in errors
    assert not re.findall(r"\|  \|$", errors, re.MULTILINE)
    fields = made["reference/http-fields.md"]
    assert "| `top_k` | integer | accepted | sample among" in fields
    assert not re.findall(r"\| accepted \|  \|$", fields, re.MULTILINE)


def test_cells_of_a_table_keep_their_bars() -> None:
    assert table(("a", "b"), [("x | y\nz", "<t>")]).splitlines()[-1] == r"| x \| y z | \<t> |"

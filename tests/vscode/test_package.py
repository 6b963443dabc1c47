"""The extension's README, package and source agree."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from localspec._version import __version__
from localspec.lsp.server import FIELDS
from tests.vscode.build import PLUGIN, package


@pytest.mark.slow
def test_what_is_shipped_is_the_source_and_what_it_says_of_itself(tmp_path: Path) -> None:
    with zipfile.ZipFile(package(tmp_path)) as shipped:
        names = {name.removeprefix("extension/") for name in shipped.namelist()}
    texts = {"package.json", "readme.md", "changelog.md", "LICENSE.txt", "extension.vsixmanifest"}
    built = {"out/extension.js", "out/licenses.txt", "[Content_Types].xml"}
    assert names == built | texts | {"images/icon.png", "images/ghost.png"}


PACKAGE: dict[str, Any] = json.loads((PLUGIN / "package.json").read_text("utf-8"))
README = (PLUGIN / "README.md").read_text("utf-8")
CONTRIBUTES: dict[str, Any] = PACKAGE["contributes"]
SETTINGS: dict[str, Any] = CONTRIBUTES["configuration"]["properties"]


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_settings_is_that_of_the_package() -> None:
    listed = {name.strip("`"): json.loads(default.strip("`")) for name, default, _ in rows("Settings")}
    assert listed == {name: setting["default"] for name, setting in SETTINGS.items()}


def test_the_table_of_commands_is_that_of_the_package() -> None:
    keys = {each["command"]: f"`{each['key'].capitalize()}`" for each in CONTRIBUTES["keybindings"]}
    commands = [
        [f"{each['category']}: {each['title']}", keys.get(each["command"], "")]
        for each in CONTRIBUTES["commands"]
    ]
    assert [row[:2] for row in rows("Commands")] == commands


def test_every_setting_is_one_of_the_server_with_its_default() -> None:
    defaults = {name: setting["default"] for name, setting in SETTINGS.items()}
    own = {"localspec.command": "localspec", "localspec.model": ""}
    theirs = {f"localspec.{name}": field.default for name, field in FIELDS.items()}
    assert {**defaults, "localspec.excludedLanguages": ()} == {**theirs, **own}


def test_every_command_does_something() -> None:
    source = (PLUGIN / "src" / "extension.ts").read_text("utf-8").partition("const COMMANDS")[2]
    done = re.findall(r"^    (\w+): ", source.partition("\n  };")[0], re.MULTILINE)
    assert {f"localspec.{name}" for name in done} == {each["command"] for each in CONTRIBUTES["commands"]}


def test_the_version_is_localspecs() -> None:
    lock = json.loads((PLUGIN / "package-lock.json").read_text("utf-8"))
    assert PACKAGE["version"] == lock["version"] == lock["packages"][""]["version"] == __version__
    assert f"localspec-{__version__}.vsix" in README
    headings = re.findall(r"^## (\S+)", (PLUGIN / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == __version__


def test_the_oldest_vscode_is_the_one_that_is_compiled_against() -> None:
    oldest = PACKAGE["engines"]["vscode"].removeprefix("^")
    assert PACKAGE["devDependencies"]["@types/vscode"] == oldest
    assert f"VS Code {oldest.removesuffix('.0')} or newer" in README


def test_everything_that_the_readme_shows_is_shipped() -> None:
    shipped = (PLUGIN / ".vscodeignore").read_text("utf-8").splitlines()
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        assert (PLUGIN / path).is_file(), path
        assert f"!{path}" in shipped


def test_a_workspace_that_is_not_trusted_sets_nothing_but_how_a_completion_looks() -> None:
    restricted = PACKAGE["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"]
    assert SETTINGS.keys() - restricted == {"localspec.multiline", "localspec.maxMs"}

"""Every setting, by every source: a message in our words names the wrong value and valid ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.config import (
    SECTION_KEYS,
    TABLES,
    Config,
    Setting,
    config_path,
    load_config,
    override,
    settings,
)
from localspec.errors import InvalidOptions

FOREIGN = re.compile(r"\$|expected|validation|\b(int|str|float|bool|tuple|dict|array|object|null)\b", re.I)
"""words of the libraries' own messages"""
WRONG = (
    *("3", "-1", "1.5", "1" + "0" * 30, "nan", "-inf", "true", "''", "'many'", "[]", "[1]", "['']"),
    *("['a', true]", "{a = 1}", "2020-01-01", "12:00:00", f"'{'x' * 5000}'", "'\\0'", "['\\n']"),
)
"""values in TOML; for each setting some are right"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    path = config_path()
    path.parent.mkdir()
    return path


def refusals_of_the_file(file: Path, text: str) -> Iterator[InvalidOptions]:
    file.write_text(text)
    try:
        load_config()
    except InvalidOptions as error:
        yield error


def check(error: InvalidOptions, setting: Setting, said: str) -> None:
    assert error.message.startswith(f"{said} takes {setting.takes}"), error.message
    assert len(error.message) < 200
    assert not FOREIGN.search(error.message) and not FOREIGN.search(error.remedy)
    assert "`localspec config" in error.remedy or error.remedy.startswith("Correct /")


@pytest.mark.slow
@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.key)
def test_the_file_is_refused_in_our_words(file: Path, setting: Setting) -> None:
    refused = 0
    header = '[models."/x"]'
    for value in WRONG:
        for error in refusals_of_the_file(file, f"\n{setting.key} = {value}"):
            check(error, setting, setting.key)
            assert error.remedy == f"Correct {file}."
            refused += 1
        for error in (
            refusals_of_the_file(file, f"{header}\n{setting.name} = {value}")
            if setting.name in SECTION_KEYS
            else ()
        ):
            check(error, setting, f"in {header}: {setting.name}")
            assert error.remedy == f"Correct {file}."
            refused += 1
    assert refused >= 8 * (1 + (setting.name in SECTION_KEYS))


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.key)
def test_what_is_typed_is_refused_in_our_words(setting: Setting) -> None:
    takes_any_text = setting.takes == "text"
    refused = 0
    for text in ("-3", "1e40", "nan", "many", "", "[1]", "x" * 5000):
        try:
            setting.parse(text)
        except InvalidOptions as error:
            check(error, setting, setting.key)
            refused += 1
        try:
            if setting.struct is not Config:
                override(Config(), {setting.name: text})
        except InvalidOptions as error:
            if "verified exactly" not in error.message:
                check(error, setting, f"--opt {setting.name}")
            refused += 1
    assert refused or takes_any_text


@pytest.mark.parametrize("name", [*TABLES, "models"])
@pytest.mark.parametrize("value", ["3", "true", "[]", "'x'"])
def test_what_is_no_table_is_refused_in_our_words(file: Path, name: str, value: str) -> None:
    (error,) = refusals_of_the_file(file, f"\n{name} = {value}")
    assert error.message.startswith(f"{name} must be a table of settings, [{name}], not ")
    assert error.remedy == f"Correct {file}."

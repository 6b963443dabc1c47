"""Settings of earlier versions: read, or left out, with a notice."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from localspec import renamed
from localspec.config import TABLES, Config, load_config, parse_config, parse_toml, renamed_settings
from localspec.renamed import RENAMED, by_present_names

OLD = '[daemon]\nport = 0\nallowed_origins = ["http://x"]\n'


def test_the_earlier_names_are_no_settings_and_the_present_ones_are() -> None:
    for old, new in RENAMED.items():
        assert old[-1] not in (TABLES[old[0]] if len(old) > 1 else Config).__struct_fields__
        assert new is None or new[-1] in TABLES[new[0]].__struct_fields__


def test_a_setting_by_its_earlier_name_holds_with_a_notice(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(OLD)
    config = load_config(file)
    assert config.http.origins == ("http://x",) and config.daemon.port == 0
    assert renamed_settings(file) == [f"{file}: daemon.allowed_origins is now named http.origins"]
    file.write_text('[http]\norigins = ["http://x"]')
    assert renamed_settings(file) == []


def test_the_present_name_holds_where_both_are_set() -> None:
    values = parse_toml(f'{OLD}[http]\norigins = ["http://y"]\nenabled = true\n', where="it")
    config = parse_config(values, where="it")
    assert config.http.origins == ("http://y",) and config.http.enabled
    assert by_present_names(values)[1] == [
        "daemon.allowed_origins is now named http.origins, which is set, too, and holds"
    ]


@pytest.mark.parametrize("text", ['[workspaces."/a"]\nk = 3\n', "workspaces = 3\n"])
def test_a_removed_table_is_left_out_with_a_notice(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[options]\nk = 2\n{text}" if "[" in text else text)
    assert load_config(file).options.k == (2 if "[" in text else None)
    assert renamed_settings(file) == [f"{file}: workspaces is not a setting any more, and has no effect"]


@pytest.mark.parametrize("values", [{"daemon": 3}, {"daemon": {"allowed_origins": []}, "http": 3}, {}])
def test_other_values_than_tables_are_left_as_they_are(values: dict[str, Any]) -> None:
    before = copy.deepcopy(values)
    found, _ = by_present_names(values)
    assert values == before
    assert {name for name in found if found[name] == 3} == {name for name in before if before[name] == 3}


def test_options_and_knobs_are_found_in_sections_too(monkeypatch: pytest.MonkeyPatch) -> None:
    new = {("options", "heat"): ("options", "temperature"), ("engine", "steam"): None}
    monkeypatch.setattr(renamed, "RENAMED", new)
    text = '[options]\nheat = 1.0\n[models."m"]\nheat = 0.5\nsteam = 1\nk = 2\n'
    values = parse_toml(text, where="it")
    config = parse_config(values, where="it")
    assert config.options.temperature == 1.0
    assert (config.models["m"].options.temperature, config.models["m"].options.k) == (0.5, 2)
    assert by_present_names(values)[1] == [
        "options.heat is now named options.temperature",
        "models.m.heat is now named models.m.temperature",
        "models.m.steam is not a setting any more, and has no effect",
    ]

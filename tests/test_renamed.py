"""Settings of earlier versions: read, or left out, with a notice."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from localspec import renamed
from localspec.config import TABLES, load_config, parse_config, parse_toml, renamed_settings
from localspec.errors import InvalidOptions
from localspec.renamed import RENAMED, by_present_names, old_keys
from localspec.settings import find

OLD = '[daemon]\nport = 0\nallowed_origins = ["http://x"]\n'


def test_the_earlier_names_are_no_settings_and_the_present_ones_are() -> None:
    for (table, name), new in RENAMED.items():
        assert name not in TABLES[table].__struct_fields__
        if new is not None:
            assert new[1] in TABLES[new[0]].__struct_fields__
            assert find(f"{table}.{name}") == find(".".join(new))


def test_a_setting_by_its_earlier_name_holds() -> None:
    config = parse_config(parse_toml(OLD, where="it"), where="it", text=OLD)
    assert config.http.origins == ("http://x",) and config.daemon.port == 0


def test_the_present_name_holds_where_both_stand() -> None:
    text = f'{OLD}[http]\norigins = ["http://y"]\nenabled = true\n'
    values = parse_toml(text, where="it")
    config = parse_config(values, where="it", text=text)
    assert config.http.origins == ("http://y",) and config.http.enabled
    (key,) = old_keys(values)
    assert key.notice(text, "it") == (
        "daemon.allowed_origins in line 3 of it is now named http.origins, which is set, too, and holds"
    )


def test_the_notice_names_the_line_and_the_present_name(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(OLD)
    expected = [f"daemon.allowed_origins in line 3 of {file} is now named http.origins"]
    assert renamed_settings(file) == expected
    assert load_config(file).http.origins == ("http://x",)
    file.write_text('[http]\norigins = ["http://x"]')
    assert renamed_settings(file) == []


def test_a_removed_setting_is_left_out_with_a_notice(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[engine]\ncontroller = "ema"\nn_ctx = 512\n[models."m"]\nrepetition_gate = 7\n')
    config = load_config(file)
    assert config.engine.n_ctx == 512 and "m" in config.models
    assert renamed_settings(file) == [
        f"engine.controller in line 2 of {file} is not a setting any more, and has no effect",
        f"models.m.repetition_gate in line 5 of {file} is not a setting any more, and has no effect",
    ]


def test_a_wrong_value_is_refused_by_the_name_and_line_that_it_has() -> None:
    text = "[daemon]\nallowed_origins = 3\n"
    with pytest.raises(
        InvalidOptions, match=r"daemon\.allowed_origins takes a list of strings, not 3"
    ) as error:
        parse_config(parse_toml(text, where="it"), where="it", text=text)
    assert error.value.remedy == "Correct line 2 of it."


@pytest.mark.parametrize("values", [{"daemon": 3}, {"daemon": {"allowed_origins": []}, "http": 3}, {}])
def test_what_is_no_table_is_left_to_be_refused(values: dict[str, Any]) -> None:
    before = copy.deepcopy(values)
    found = by_present_names(values)
    assert values == before
    assert {name: value for name, value in found.items() if value == 3} == {
        name: value for name, value in before.items() if value == 3
    }


def test_options_and_knobs_are_found_in_sections_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renamed, "RENAMED", {("options", "heat"): ("options", "temperature")})
    text = '[options]\nheat = 1.0\n[models."m"]\nheat = 0.5\nk = 2\n[workspaces."/w"]\nheat = 0.2\n'
    values = parse_toml(text, where="it")
    config = parse_config(values, where="it", text=text)
    assert config.options.temperature == 1.0
    assert (config.models["m"].options.temperature, config.models["m"].options.k) == (0.5, 2)
    assert config.workspaces["/w"].temperature == 0.2
    assert [key.notice(text, "it") for key in old_keys(values)] == [
        "options.heat in line 2 of it is now named options.temperature",
        "models.m.heat in line 4 of it is now named models.m.temperature",
        'workspaces."/w".heat in line 7 of it is now named workspaces."/w".temperature',
    ]

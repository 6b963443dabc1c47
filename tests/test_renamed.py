"""Settings of earlier versions: read, or left out, with a notice."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from localspec import renamed
from localspec.config import TABLES, Config, load_config, parse_config, renamed_settings
from localspec.renamed import RENAMED, rename

OLD = '[daemon]\nport = 0\nallowed_origins = ["http://x"]\n'


def notices(text: str) -> list[str]:
    return rename(tomllib.loads(text))


def test_the_earlier_names_are_no_settings() -> None:
    for old, new in RENAMED.items():
        assert old[-1] not in (TABLES[old[0]] if len(old) > 1 else Config).__struct_fields__
        assert new is None or new[-1] in TABLES[new[0]].__struct_fields__


def test_a_setting_by_its_earlier_name_holds_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    file = tmp_path.resolve() / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text(OLD)
    config = load_config()
    assert config.http.origins == ("http://x",) and config.daemon.port == 0
    assert renamed_settings() == [f"{file}: daemon.allowed_origins is now named http.origins"]
    file.write_text('[http]\norigins = ["http://x"]')
    assert renamed_settings() == []
    text = f'{OLD}[http]\norigins = ["http://y"]\n'
    assert parse_config(text, where="it").http.origins == ("http://y",)
    assert notices(text) == ["daemon.allowed_origins is now named http.origins, which is set, too, and holds"]


@pytest.mark.parametrize(
    ("text", "remember"),
    [
        ('[workspaces."/a"]\nk = 3', None),
        ('[workspaces."/a"]\nremember = true', None),
        ("workspaces.a = 3", None),
        ('[workspaces."/a"]\nk = 1\n[workspaces."/b"]\nremember = false\n[options]\nk = 2', False),
        ('[workspaces."/a"]\nremember = false\n[options]\nremember = true', True),
    ],
)
def test_a_directory_that_was_not_to_be_learnt_is_not_learnt(text: str, remember: bool | None) -> None:
    options = parse_config(text, where="it").options
    assert options.remember is remember and options.k == (2 if "k = 2" in text else None)
    read = "; remember = false in it is read as options.remember = false, for all directories"
    effect = read if remember is False else ", and has no effect"
    assert notices(text) == [f"workspaces is not a setting any more{effect}"]


def test_options_and_knobs_are_found_in_sections_too(monkeypatch: pytest.MonkeyPatch) -> None:
    new = {("options", "heat"): ("options", "temperature"), ("engine", "steam"): None}
    monkeypatch.setattr(renamed, "RENAMED", new)
    text = '[options]\nheat = 1.0\n[models."m"]\nheat = 0.5\nsteam = 1\nk = 2\n'
    config = parse_config(text, where="it")
    assert config.options.temperature == 1.0
    assert (config.models["m"].options.temperature, config.models["m"].options.k) == (0.5, 2)
    assert notices(text) == [
        "options.heat is now named options.temperature",
        "models.m.heat is now named models.m.temperature",
        "models.m.steam is not a setting any more, and has no effect",
    ]

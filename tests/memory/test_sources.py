"""The names of sources: each once, whatever a killed process left half written."""

from __future__ import annotations

from pathlib import Path

from localspec.memory.sources import Sources, tag_of


def test_names_are_kept_once_and_in_order(tmp_path: Path) -> None:
    sources = Sources(tmp_path / "s")
    assert sources.names() == []
    for name in ("chat:1", "run", "run", "file:/a b\n☃"):
        sources.add(name)
    assert sources.names() == ["chat:1", "run", "file:/a b\n☃"]
    sources.remove("run")
    sources.remove("never there")
    assert Sources(tmp_path / "s").names() == ["chat:1", "file:/a b\n☃"]


def test_half_a_line_costs_that_name_only(tmp_path: Path) -> None:
    sources = Sources(tmp_path / "s")
    sources.add("one")
    with (tmp_path / "s").open("ab") as file:
        file.write(b'\n"tw')
    sources.add("three")
    assert sources.names() == ["one", "three"]


def test_names_that_are_no_unicode_are_spelled_out(tmp_path: Path) -> None:
    sources = Sources(tmp_path / "s")
    for _ in range(2):
        sources.add("file:\udcff")
    assert sources.names() == ["file:\\udcff"]
    assert tag_of("file:\udcff") == tag_of(sources.names()[0]) and tag_of("\ud800")
    sources.remove("file:\udcff")
    assert sources.names() == []


def test_tags_fit_their_bits_and_tell_sources_apart() -> None:
    tags = {tag_of(f"chat:{n}") for n in range(1000)}
    assert len(tags) > 980 and min(tags) >= 1 and max(tags) <= 0xFFFF

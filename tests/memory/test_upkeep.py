"""The memory's report to a user, and forgetting on request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.errors import InvalidOptions
from localspec.memory.memory import Memory, forget, stats, vocabularies
from localspec.memory.sources import Sources
from localspec.memory.table_files import USER, name_of
from tests.memory.tables import FP, no_piece, refuse, remember

ONE = [(7 * i * i + 3 * i) % 1000 for i in range(60)]
TWO = [(11 * i * i + 5 * i) % 1000 + 2000 for i in range(60)]
OTHER_FP = "ffffffffffffffff"


def taught(
    place: Path, *lessons: tuple[Sequence[int], str | None, str], fp: str = FP
) -> list[tuple[str | None, str]]:
    """Teach (text, workspace, source) and close; returns whose tables there are."""
    memory = Memory(place, fp, no_piece, notice=refuse)
    for text, workspace, source in lessons:
        remember(memory, text, workspace, source)
    memory.close()
    return tables(place)


def tables(place: Path) -> list[tuple[str | None, str]]:
    return [(table.workspace, table.vocab_fp) for table in stats(place, refuse)]


def test_tables_are_listed_by_vocabulary_the_users_own_first(tmp_path: Path) -> None:
    taught(tmp_path, (ONE, "/b", "run"), (ONE, None, "run"), fp=OTHER_FP)
    found = taught(tmp_path, (ONE, "/a", "run"), (TWO, None, "run"))
    assert found == [(None, FP), ("/a", FP), (None, OTHER_FP), ("/b", OTHER_FP)]


def test_where_there_is_nothing_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "none", tmp_path / "file", tmp_path):
        assert stats(place, refuse) == [] and forget(place, refuse) == 0
    assert (tmp_path / "file").exists()


def test_what_is_linked_from_elsewhere_is_not_ours_to_forget(tmp_path: Path) -> None:
    taught(tmp_path / "elsewhere", (ONE, None, "run"))
    place = tmp_path / "memory"
    place.mkdir()
    (place / FP).symlink_to(tmp_path / "elsewhere" / FP)
    assert list(vocabularies(place, refuse)) == []
    assert forget(place, refuse) == 0
    assert tables(tmp_path / "elsewhere") == [(None, FP)]


def test_a_table_is_listed_with_its_size_and_its_sources_by_weight(tmp_path: Path) -> None:
    taught(tmp_path, (ONE, None, "chat:1"), (TWO[:30], None, "file:/x"), (TWO[30:38], None, "run"))
    (found,) = stats(tmp_path, refuse)
    assert list(found.sources) == ["chat:1", "file:/x", "run"]
    assert sum(found.sources.values()) == found.entries
    assert found.occupancy == found.entries / found.capacity
    assert found.bytes == Path(found.path).stat().st_size
    assert found.last_use is not None


def test_entries_whose_source_has_lost_its_name_have_a_number(tmp_path: Path) -> None:
    taught(tmp_path, (ONE, None, "chat:1"), (TWO, None, "run"))
    Sources(tmp_path / FP / f"{USER}.sources").remove("run")
    (found,) = stats(tmp_path, refuse)
    lost = set(found.sources) - {"chat:1"}
    assert len(lost) == 1 and lost.pop().startswith("#")


def test_telling_makes_no_files_and_counts_as_no_use(tmp_path: Path) -> None:
    taught(tmp_path, (ONE, None, "run"))
    before = stats(tmp_path, refuse), sorted(tmp_path.rglob("*"))
    assert (stats(tmp_path, refuse), sorted(tmp_path.rglob("*"))) == before


def test_a_workspace_inside_a_repository_is_forgotten_with_it_only_by_its_own_name(tmp_path: Path) -> None:
    """Both have a table if a user named the inner one; the outer name leaves the inner table."""
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    place, inner = tmp_path / "memory", str(root / "inner")
    taught(place, (ONE, str(root), "run"), (TWO, inner, "run"))
    assert forget(place, refuse, workspace=str(root)) == 1
    assert tables(place) == [(inner, FP)]
    assert forget(place, refuse, workspace=inner) == 1
    taught(place, (ONE, str(root), "run"), (TWO, inner, "run"))
    assert forget(place, refuse, workspace=inner) == 1
    assert tables(place) == [(str(root), FP)]


def test_a_workspace_is_forgotten_under_every_vocabulary(tmp_path: Path) -> None:
    for fp in (FP, OTHER_FP):
        taught(tmp_path, (ONE, "/w", "run"), (ONE, None, "run"), fp=fp)
    assert forget(tmp_path, refuse, workspace="/w") == 2
    assert tables(tmp_path) == [(None, FP), (None, OTHER_FP)]
    assert forget(tmp_path, refuse) == 2
    assert tables(tmp_path) == []


def test_a_source_is_forgotten_everywhere_or_in_one_workspace(tmp_path: Path) -> None:
    taught(tmp_path, *((ONE, where, "chat:1") for where in ("/w", None)), (TWO, "/w", "chat:2"))
    in_one = {table.workspace: table.sources["chat:1"] for table in stats(tmp_path, refuse)}
    assert forget(tmp_path, refuse, workspace="/w", source="chat:1") == in_one["/w"]
    assert [set(table.sources) for table in stats(tmp_path, refuse)] == [{"chat:1"}, {"chat:2"}]
    assert forget(tmp_path, refuse, source="chat:1") == in_one[None]
    assert forget(tmp_path, refuse, source="never heard of") == 0
    assert {name for table in stats(tmp_path, refuse) for name in table.sources} == {"chat:2"}


def test_nothing_of_what_was_forgotten_is_left_on_the_disk(tmp_path: Path) -> None:
    """Names of sources are paths and sessions: they go with the table."""
    taught(tmp_path, (ONE, "/secret/place", "file:/secret/place/x"))
    assert any(b"/secret/place" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    forget(tmp_path, refuse, workspace="/secret/place")
    assert not any(b"/secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_names_of_sources_are_forgotten_though_no_table_is_left(tmp_path: Path) -> None:
    taught(tmp_path, (ONE, None, "run"))
    for left in (f"{USER}.sources", f"{name_of('/w')}.sources", f".{USER}.sources.x_1"):
        (tmp_path / FP / left).write_text('\n"file:/secret"')
    (tmp_path / FP / f"{USER}.ngm").unlink()
    assert forget(tmp_path, refuse) == 2 and stats(tmp_path, refuse) == []
    assert [path.name for path in (tmp_path / FP).iterdir()] == ["lock"]


def test_entries_whose_name_was_lost_are_forgotten_with_their_source(tmp_path: Path) -> None:
    """A process that is killed between two writes loses a name at most."""
    taught(tmp_path, (ONE, None, "chat:1"))
    Sources(tmp_path / FP / f"{USER}.sources").remove("chat:1")
    assert forget(tmp_path, refuse, source="chat:1") > 100
    assert stats(tmp_path, refuse)[0].entries == 0


def test_no_path_is_not_the_directory_one_is_in(tmp_path: Path) -> None:
    for workspace in ("", "\0"):
        with pytest.raises(InvalidOptions):
            forget(tmp_path, refuse, workspace=workspace)

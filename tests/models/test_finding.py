"""From a name to a model, over whole homes: what the list shows is loaded, and the disk is read once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.config import Config, ModelConfig
from localspec.errors import ModelAmbiguous
from localspec.models import index
from localspec.models.index import read_disk
from localspec.models.library import Sections, places_of
from localspec.models.model import Format, place_of
from localspec.protocol.options import Options
from tests.models import directories
from tests.models.disk import FLAT, LM_STUDIO, Home
from tests.models.finding import find_model, shown_name
from tests.models.test_disk import home, small

__all__ = ["home"]


def check_all_names(model_dirs: tuple[str, ...]) -> int:
    """Check that names lead to their models, or to others of the same name; return the number checked."""
    models = read_disk(model_dirs).models
    by_place = {place_of(Path(model.path)): model for model in models}
    asked = 0
    for model in models:
        if model.problem is not None:
            continue
        wanted: Format = "mlx" if model.format == "mlx" else "gguf"
        assert find_model(model.names[0], model_dirs, format=wanted) == Path(model.path), model.names
        for place in (model.path, *model.also):
            assert shown_name(Path(place), model_dirs) == model.names[0]
        for name in model.names[1:]:
            asked += 1
            try:
                found = find_model(name, model_dirs, format=wanted)
            except ModelAmbiguous as error:
                assert model.names[0] in error.message or "more" in error.message
            else:
                same = by_place[place_of(found)]
                assert same is model or name.lower() in map(str.lower, same.names)
    return asked


def test_in_all_stores_every_name_leads_to_its_model(home: Home) -> None:
    own = home.file(Path("models") / "my-coder.gguf", small("own")).parent
    home.hub("org/Toy-7B-GGUF", {f"toy-7b-{each}.gguf": small(each) for each in ("q4_0", "q8_0")})
    home.file(FLAT / "org_Toy-2B-it-GGUF_toy-2b-it-Q8_0.gguf", small("flat"))
    home.file(LM_STUDIO / "me" / "toy-7b" / "Toy-7B-Instruct-Q8_0.gguf", small("instruct"))
    directories.write(home.root / LM_STUDIO / "me", name="Toy-7B-4bit")
    for tag in ("8b", "latest"):
        home.ollama("toy3.1", tag, small("ollama's"))
    home.ollama("missing", "7b", None)
    library = read_disk((str(own),))
    stores = ["model_dirs", "huggingface", "llama.cpp", "lmstudio", "ollama"]
    assert [store.name for store in library.stores] == stores
    assert list(dict.fromkeys(model.store for model in library.models[2:])) == stores
    assert len({model.names[0] for model in library.models}) == len(library.models) == 10
    assert check_all_names((str(own),)) > 10


def test_what_is_in_no_store_is_called_as_its_file_is(home: Home) -> None:
    path = home.file(Path("elsewhere") / "Toy-7B-Q4_0.gguf", small())
    assert shown_name(path) == "Toy-7B-Q4_0" and shown_name(path, (str(path.parent),)) == "toy:7b"


def test_a_tag_of_ollamas_is_no_name_of_another_model(home: Home) -> None:
    other = home.file(FLAT / "Qwen3-8B.gguf", small("other"))
    home.ollama("qwen3", "8b", small("ollama's"))
    names = [model.names[0] for model in read_disk().models[2:]]
    assert names == ["qwen3:8b-2", "qwen3:8b"]
    assert find_model("qwen3:8b-2") == other
    for name in ("qwen3:8b", "QWEN3:8B"):
        assert find_model(name).name.startswith("sha256-")


def test_bytes_that_are_no_text_are_found_by_the_name_and_path_that_are_shown(home: Home) -> None:
    path = home.root / FLAT / os.fsdecode(b"caf\xe9-7b.gguf")
    path.parent.mkdir(parents=True)
    path.write_bytes(small())
    model = read_disk().models[2]
    assert (model.problem, model.id) == (None, "caf\ufffd-7b")
    for name in (*model.names, model.path, str(path)):
        assert find_model(name) == path


@pytest.fixture
def scans(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The times that a store was read; nothing that was found gets old."""
    root = home.root / LM_STUDIO
    home.file(LM_STUDIO / "me" / "toy" / "toy-7b.gguf", small())
    read = list[str]()
    scandir = os.scandir

    def counted(path: str) -> os._ScandirIterator[str]:
        if Path(path) == root:
            read.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    monkeypatch.setattr(index, "FRESH_S", float("inf"))
    yield read
    index._recent.until = 0.0


def test_a_request_reads_the_disk_once(scans: list[str]) -> None:
    names = ["toy:7b", "toy", "nothing", "budnled", "TOY-7B", "toy:7", "other", "bundled"]
    sections = Sections(Config(models={name: ModelConfig() for name in names}))
    sections.merge_options(Options(model="toy:7b"))
    sections.engine("toy:7b")
    assert len(places_of("toy:7b", ())) == 1 and len(sections.find_unresolved()) == 3
    assert len(scans) == 1

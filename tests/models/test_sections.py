"""The sections that hold for a request, their order, and the names of models in their headings."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.config import parse_config
from localspec.errors import ModelAmbiguous, ModelInvalid, ModelNotFound
from localspec.models import index
from localspec.models.catalogue import bundled_model
from localspec.models.library import Sections, places_of
from localspec.protocol.options import Options
from tests.mlx_pair import in_both_formats
from tests.models.ggufs import TARGET, small


def sections(text: str) -> Sections:
    return Sections(parse_config(text, where="here"))


ALL = """
[options]
model = "bundled"
draft = "configured"
k = 1
seed = 1
top_k = 1
min_p = 0.1
[models."stdlib-6m"]
k = 2
seed = 2
top_k = 2
"""


def test_a_request_goes_before_its_model_and_that_before_the_rest() -> None:
    found = sections(ALL)
    merged = found.merge_options(Options(k=5, temperature=0.5))
    assert (merged.k, merged.seed, merged.top_k, merged.min_p) == (5, 2, 2, 0.1)
    assert found.merge_options(Options()).k == 2
    assert found.merge_options(Options(model="other")).k == 1


@pytest.mark.parametrize(
    "heading", ["bundled", "stdlib-6m", str(TARGET), f"{TARGET.parent}/../stdlib-6m/{TARGET.name}"]
)
@pytest.mark.parametrize("name", ["bundled", "stdlib-6m", str(TARGET)])
def test_a_model_is_one_by_all_of_its_names(heading: str, name: str) -> None:
    found = sections(f'[models."{heading}"]\nn_ctx = 64\nk = 2')
    assert found.merge_options(Options(model=name)).k == 2
    assert found.engine(name).n_ctx == 64
    for other in ("stdlib-1m", str(bundled_model("stdlib-1m"))):
        assert found.merge_options(Options(model=other)).k is None
        assert found.engine(other).n_ctx == 0


def test_a_model_of_a_configured_directory_is_found_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FRESH_S", 0.0)
    found = sections(f'model_dirs = ["{tmp_path}"]\n[models."mine"]\nn_ctx = 64')
    path = tmp_path / "mine.gguf"
    assert found.engine("mine").n_ctx == 64
    assert found.engine(str(path)).n_ctx == 0
    path.write_bytes(small())
    assert found.engine(str(path)).n_ctx == 64


def test_a_draft_stays_with_the_model_that_it_was_named_beside() -> None:
    options, model = 'model = "a"\ndraft = "of-a"', 'draft = "of-b"'
    found = sections(f'[options]\n{options}\n[models."b"]\n{model}')
    of = {name: found.merge_options(Options(model=name)).draft for name in ("a", "b", "c")}
    assert of == {"a": "of-a", "b": "of-b", "c": None}
    assert found.merge_options(Options(model="b", draft="mine")).draft == "mine"


def test_sections_that_hold_for_no_model_are_named_with_the_reason(tmp_path: Path) -> None:
    for name in ("toy-1b", "toy-7b", "other-7b-q4_0", "other-7b-q8_0"):
        (tmp_path / f"{name}.gguf").write_bytes(small())
    (tmp_path / "empty.gguf").write_bytes(b"")
    names = ("bundled", "budnled", "/nowhere.gguf", "toy", "toy:7b", "other", "empty")
    sections_of = "".join(f'[models."{name}"]\nk = 1\n' for name in names)
    found = sections(f'model_dirs = ["{tmp_path}"]\n{sections_of}')
    assert {name: type(error) for name, error in found.find_unresolved()} == {
        "budnled": ModelNotFound,
        "/nowhere.gguf": ModelNotFound,
        "toy": ModelAmbiguous,
        "empty": ModelInvalid,
    }


def test_a_section_of_a_family_and_size_is_for_all_of_it(tmp_path: Path) -> None:
    """Also after another quantisation came, which may be the preferred one."""
    for name in ("Toy-7B-Q8_0", "Toy-7B-Q4_0", "Toy-7B-Base-Q4_0", "Toy-1B-Q8_0"):
        (tmp_path / f"{name}.gguf").write_bytes(small())
    found = sections(f'model_dirs = ["{tmp_path}"]\n[models."toy:7b"]\nn_ctx = 64')
    for name in ("Toy-7B-Q8_0", "toy-7b-q4_0", "toy:7b-base", str(tmp_path / "Toy-7B-Q8_0.gguf"), "toy:7b"):
        assert found.engine(name).n_ctx == 64, name
    assert found.engine("toy:1b").n_ctx == 0


def test_a_name_for_both_formats_has_two_places(tmp_path: Path) -> None:
    gguf, mlx = map(str, in_both_formats(tmp_path, "twin", "stdlib-6m"))
    assert places_of("twin", (str(tmp_path),)) == {gguf, mlx}
    assert places_of(mlx, ()) == {mlx}
    assert places_of("bundled", ()) == {str(TARGET)}
    with pytest.raises(ModelNotFound):
        places_of("nothing", ())

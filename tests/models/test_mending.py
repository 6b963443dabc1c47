"""The commands that repair or remove a damaged model, by the store that has it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from localspec.models.disk import read_disk
from localspec.models.stores.mending import kept, mended, removed
from localspec.protocol.messages import ModelDescription
from tests.models.disk import FLAT, LM_STUDIO, MODEL_DIR, Home, mlx_files
from tests.models.test_disk import home, small

__all__ = ["home"]

CUT = small()[:-1]


def only(home: Home) -> ModelDescription:
    """The one model of this home."""
    (model,) = read_disk((str(home.root / MODEL_DIR),)).models[2:]
    return model


Q8, Q8_FILE = "`localspec models pull org/Toy-7B-GGUF:Q8_0`", "toy-7b-q8_0.gguf"
MLX = "`localspec models pull org/Toy-4bit --mlx`"
AGAIN, REPLACE = "then download it again:", "Replace it by a complete copy, or delete it: `rm {}`."
REMOVE = "Remove it: `hf cache rm hf://models/org"
IN_LM_STUDIO = LM_STUDIO / "me" / "toy" / "toy.gguf"


@pytest.mark.parametrize(
    ("store", "content", "remedy"),
    [
        ("file", (Path(MODEL_DIR) / "my toy.gguf", CUT), REPLACE),
        ("file", (FLAT / "toy.gguf", CUT), REPLACE),
        ("file", (IN_LM_STUDIO, CUT), REPLACE),
        ("jan", ("toy", CUT), REPLACE),
        ("hub", ("org/Toy-7B-GGUF", {Q8_FILE: CUT}), f"{REMOVE}/Toy-7B-GGUF/{Q8_FILE}`; {AGAIN} {Q8}."),
        ("hub", ("org/Toy-7B-GGUF", {Q8_FILE: None}), f"{REMOVE}/Toy-7B-GGUF/{Q8_FILE}`; {AGAIN} {Q8}."),
        (
            "hub",
            ("org/Toy-4bit", mlx_files() | {"model.safetensors": b"cut"}),
            f"{REMOVE}/Toy-4bit`; {AGAIN} {MLX}.",
        ),
        (
            "ollama",
            ("toy", "7b", CUT),
            "Remove it: `ollama rm toy:7b`; then `ollama pull toy:7b`, or create it again.",
        ),
        ("ollama", ("toy", "7b", None), "Pull it again: `ollama pull toy:7b`."),
    ],
)
def test_what_is_damaged_is_to_come_again_from_its_store(
    home: Home, store: str, content: tuple[Any, ...], remedy: str
) -> None:
    path = getattr(home, store)(*content)
    assert only(home).remedy == remedy.format(shlex.quote(str(path)))


def test_all_parts_of_a_split_model_go_and_nothing_that_begins_like_it(home: Home) -> None:
    path = home.file(FLAT / "toy-00002-of-00002.gguf", CUT)
    other = home.file(FLAT / "toy-instruct-00001-of-00002.gguf", CUT)
    model = next(each for each in read_disk().models if "toy-0000" in each.path)
    *_, command = mended(model).removesuffix("`.").split("`")
    subprocess.run(command.replace("rm", "rm -f", 1), shell=True, check=True)
    assert other.exists() and not path.exists()


def test_of_a_directory_nothing_deletes_what_else_is_in_it(home: Home) -> None:
    for name, content in mlx_files({"architectures": ["nobody"]}).items():
        home.file(Path(MODEL_DIR) / name, content[:-1])
    assert f"the model's files in {home.root / MODEL_DIR}" in mended(only(home)) and "rm " not in mended(
        only(home)
    )


@pytest.mark.parametrize("store", ["ollama", "huggingface", "llama.cpp", "model_dirs"])
def test_no_name_is_a_command_of_the_shell(store: str) -> None:
    name = "a b;touch x"
    path = f"/snapshots/models--org--{name}/snapshots/a/{name}.gguf"
    model = ModelDescription(id=name, path=path, format="gguf", backend="", size=1, store=store)
    for told in (mended(model), removed(model)):
        words = [word for command in told.split("`")[1::2] for word in shlex.split(command)]
        assert words and all(name in word for word in words if ";" in word)


@pytest.mark.parametrize(
    ("store", "path", "owner", "command"),
    [
        ("bundled", "/x/stdlib-6m.gguf", "it comes with localspec", "is removed with it"),
        ("model_dirs", "/x/toy.gguf", "it is in one of your model_dirs", "Remove it: `rm /x/toy.gguf`"),
        ("ollama", "/x/sha256-0", "it is in Ollama", "`ollama rm toy:7b`"),
        ("lmstudio", "/x/toy.gguf", "it is in LM Studio", "Remove it in LM Studio."),
        ("llama.cpp", "/x/toy.gguf", "it is in llama.cpp", "`rm /x/toy.gguf`"),
        (
            "huggingface",
            "/x/models--org--Toy/snapshots/a/Q4_0/toy.gguf",
            "it is in Hugging Face",
            "`hf cache rm hf://models/org/Toy/Q4_0/toy.gguf`",
        ),
        (None, "/x/toy.gguf", "it is in no known store", "`rm /x/toy.gguf`"),
    ],
)
def test_who_has_a_model_and_what_removes_it(store: str | None, path: str, owner: str, command: str) -> None:
    model = ModelDescription(id="toy:7b", path=path, format="gguf", backend="", size=1, store=store)
    assert kept(model) == f"{owner}: {path}" and command in removed(model)

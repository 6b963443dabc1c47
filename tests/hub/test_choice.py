"""The choice of a model's files: by name, or by the free memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from localspec.errors import InvalidOptions, ModelInvalid, ModelNotFound, ModelTooLarge
from localspec.hub.choice import (
    MAX_FILE,
    Choice,
    Listing,
    Wanted,
    choose,
    needs,
    parse_listing,
    parse_name,
)
from localspec.hub.records import HubFile

REPO = "org/Model-7B-GGUF"
GB = 1_000_000_000


def listing(*names: str, repo: str = REPO, **sizes: int) -> Listing:
    files = [HubFile(name, 1 * GB, "0" * 64) for name in names]
    files += [HubFile(f"model-{label}.gguf", size * GB, "0" * 64) for label, size in sizes.items()]
    return Listing(repo, "c" * 40, tuple(files))


QUANTISED = listing(
    "README.md", "mmproj-F16.gguf", "imatrix.gguf", q2_k=3, q4_k_m=5, q5_k_m=6, q8_0=8, f16=16
)


def names(choice: Choice) -> list[str]:
    return list(choice.names)


def chosen(found: Listing, free: int = 100 * GB, *, mlx: bool = True, **wanted: Any) -> Choice:
    return choose(found, Wanted(found.repo, **wanted), free, mlx=mlx)


def test_the_balanced_one_is_chosen_where_it_fits() -> None:
    choice = chosen(QUANTISED)
    assert names(choice) == ["model-q4_k_m.gguf"]
    assert (choice.name, choice.quantisation, choice.model.format) == (f"{REPO}:Q4_K_M", "Q4_K_M", "gguf")
    assert choice.why == f"Q4_K_M takes {needs(5 * GB) / GB:.1f} GB of memory, 100.0 GB are free"


def test_a_head_beside_a_model_is_no_quantisation_of_it() -> None:
    found = listing("mtp-Model-7B-Q4_K_M.gguf", "Model-7B-MTP-Q4_K_M.gguf")
    assert names(chosen(found)) == names(chosen(found, quantisation="Q4_K_M")) == ["Model-7B-MTP-Q4_K_M.gguf"]


@pytest.mark.parametrize(("free", "label"), [(needs(5 * GB), "Q4_K_M"), (needs(5 * GB) - 1, "Q2_K")])
def test_a_smaller_one_where_memory_is_short_and_why(free: int, label: str) -> None:
    choice = chosen(QUANTISED, free)
    assert choice.quantisation == label
    took, left = f"{needs(5 * GB) / GB:.1f} GB", f"{free / GB:.1f} GB"
    why = f"Q4_K_M takes {took}" if label == "Q4_K_M" else f"Q2_K, as Q4_K_M would take {took}"
    assert choice.why == f"{why} of memory, {left} are free"


def test_where_nothing_fits_the_least_is_named() -> None:
    with pytest.raises(
        ModelTooLarge, match="Q2_K would take 3.5 GB of memory, and 1.0 GB are free"
    ) as raised:
        chosen(QUANTISED, free=1 * GB)
    assert f"name it: {REPO}:Q2_K" in raised.value.remedy


@pytest.mark.parametrize("asked", ["Q8_0", "q8_0", "q8-0"])
def test_what_is_named_is_taken_whether_it_fits_or_not(asked: str) -> None:
    assert names(chosen(QUANTISED, free=1, quantisation=asked)) == ["model-q8_0.gguf"]


def test_what_is_not_there_is_answered_with_what_is() -> None:
    with pytest.raises(ModelNotFound, match="has no Q3_K_M; it has F16, Q2_K, Q4_K_M, Q5_K_M, Q8_0"):
        chosen(QUANTISED, quantisation="Q3_K_M")
    with pytest.raises(ModelNotFound, match="has no q5_k_m.gguf; it has model-f16.gguf, "):
        chosen(QUANTISED, file="q5_k_m.gguf")


def test_of_unknown_labels_the_largest_that_fits() -> None:
    found = listing(iq3_m=4, iq2_xs=3, iq1_s=2)
    assert chosen(found).quantisation == "IQ3_M"
    assert chosen(found, free=needs(3 * GB)).quantisation == "IQ2_XS"


PARTS = tuple(f"q4_k_m/model-0000{number}-of-00003.gguf" for number in (1, 3, 2))


def test_a_split_model_is_all_of_its_parts_in_order() -> None:
    choice = chosen(listing(*PARTS, "model-q8_0.gguf"))
    assert names(choice) == sorted(PARTS) and choice.size == 3 * GB
    assert choice.quantisation == "Q4_K_M", "named by the directory"
    assert names(chosen(listing(*PARTS), file=PARTS[1])) == sorted(PARTS)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (PARTS[:2], "is split into 3 parts, and the hub has not all"),
        (("m-q4_0-00001-of-00002.gguf", "m-q4_0-00002-of-00003.gguf"), "split into"),
    ],
)
def test_parts_that_are_missing_or_of_another_split_are_refused(names: Sequence[str], sentence: str) -> None:
    with pytest.raises(ModelInvalid, match=sentence):
        chosen(listing(*names))


def test_several_of_one_quantisation_are_asked_about() -> None:
    found = listing("base-q4_k_m.gguf", "chat-q4_k_m.gguf")
    for asked in (None, "Q4_K_M"):
        with pytest.raises(
            InvalidOptions, match=r"several files of Q4_K_M: base-q4_k_m.gguf, chat-q4_k_m.gguf"
        ):
            chosen(found, quantisation=asked)
    choice = chosen(found, file="chat-q4_k_m.gguf")
    assert names(choice) == ["chat-q4_k_m.gguf"] and choice.name == f"{REPO}/chat-q4_k_m.gguf"


MLX = ("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
OTHERS = ("modeling_own.py", "pytorch_model.bin", "original/model.safetensors", "README.md", "merges.txt")


def test_for_mlx_what_it_reads_and_no_code() -> None:
    choice = chosen(listing(*MLX, *OTHERS, repo="org/Model-4bit"))
    assert names(choice) == [*MLX, "merges.txt"]
    assert (choice.name, choice.model.format, choice.quantisation) == ("org/Model-4bit", "mlx", None)


def test_a_directory_has_one_quantisation() -> None:
    assert chosen(listing(*MLX, repo="org/Model-4bit"), quantisation="4bit").model.format == "mlx"
    with pytest.raises(ModelNotFound, match="has no quantisation 8bit: it is an MLX directory"):
        chosen(listing(*MLX, repo="org/Model-4bit"), quantisation="8bit")


def test_without_mlx_a_directory_is_refused_unless_it_is_named() -> None:
    with pytest.raises(ModelInvalid, match="MLX, which reads them, is not installed") as raised:
        chosen(listing(*MLX), mlx=False)
    assert "--mlx" in raised.value.remedy
    assert chosen(listing(*MLX), mlx=False, format="mlx").model.format == "mlx"


def test_a_directory_that_does_not_fit_is_refused_unless_it_is_named() -> None:
    with pytest.raises(ModelTooLarge, match="would take"):
        chosen(listing(*MLX), free=1 * GB)
    assert chosen(listing(*MLX), free=1 * GB, format="mlx").model.format == "mlx"


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (listing("README.md"), {}),
        (listing("pytorch_model.bin", "config.json"), {}),
        (listing("mmproj-F16.gguf"), {}),
        (listing(*MLX), {"format": "gguf"}),
        (listing("model-q8_0.gguf"), {"format": "mlx"}),
        (listing("model.safetensors"), {}),
    ],
)
def test_a_repository_without_such_a_model_is_an_error(found: Listing, wanted: dict[str, Any]) -> None:
    with pytest.raises(ModelInvalid):
        chosen(found, **wanted)


def test_gguf_goes_first_where_both_are() -> None:
    both = listing(*MLX, "model-q8_0.gguf")
    assert chosen(both).model.format == "gguf" and chosen(both, format="mlx").model.format == "mlx"


@pytest.mark.parametrize(
    "name",
    ["", "model", "a/b/c", "org/", "/model", "org/model:", "../etc", "org/..", "a--b/c", "https://h/a"],
)
def test_a_text_that_is_no_name_is_an_unknown_model(name: str) -> None:
    with pytest.raises(ModelNotFound) as raised:
        parse_name(name)
    assert raised.value.exit_code == 1 and "ORG/NAME" in raised.value.remedy


def listed(name: str, size: object = 1, digest: str = "f" * 64, commit: str = "c" * 40) -> HubFile:
    """The file of a listing that has it alone."""
    file = {"rfilename": name, "size": size, "blobId": "0" * 40, "lfs": {"sha256": digest}}
    (found,) = parse_listing("org/x", json.dumps({"sha": commit, "siblings": [file]}).encode()).files
    return found


@pytest.mark.parametrize(
    "name",
    [
        *("../x.gguf", "a/../../x.gguf", "/etc/passwd", "a//b", "./x", "a/.", "", "..", "a/", "a\\x"),
        *(
            "C:x",
            "x\0.gguf",
            "x\n.gguf",
            "x\n",
            "x\x1b[2J.gguf",
            "x|y",
            "a" * 256,
            "a/" * 600 + "a",
            "\ud800",
        ),
    ],
)
def test_a_name_that_lies_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="an unsafe path|length <= 1024|surrogate"):
        listed(name)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"size": size} for size in (None, -1, MAX_FILE + 1, 1e300, "1")),
        *({"digest": digest} for digest in ("", "../../../x", "F" * 64, "f" * 63, "f" * 40, "f" * 64 + "\n")),
        *({"commit": commit} for commit in ("", "main", "../" * 13 + "x", "c" * 40 + "\n")),
    ],
)
def test_a_size_checksum_or_commit_that_lies_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Expected|regex"):
        listed("x", **wrong)


@pytest.mark.parametrize(
    "name", ["model.gguf", "Q4_K_M/model-00001-of-00002.gguf", "模型.gguf", "a b.gguf", "...x"]
)
def test_other_names_are_taken(name: str) -> None:
    assert listed(name) == HubFile(name, 1, "f" * 64)

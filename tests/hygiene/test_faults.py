"""Faults of names and imports do not become more."""

from __future__ import annotations

import ast

import pytest

from tests.hygiene.ceilings import FAULTS
from tests.hygiene.faults import CHECKS, find_faults

CASES = [
    ("names bound twice", "X = 1; Y = 2; X: int = 3", ["X"]),
    ("names bound twice", "import a\ndef a(): ...", ["a"]),
    ("names bound twice", "try: import x\nexcept ImportError: x = 1\nif x: y = 1\ny = [x for x in y]", []),
    ("imports of itself", "from b import c", [""]),
    ("inner imports of what is loaded", "import a\ndef f():\n  import c\n  import d", ["3"]),
    ("inner imports", "import a\ndef f():\n  import a, os\n  def g():\n    import d", ["3", "5"]),
    ("constants below functions", "A = 1\ndef f(): ...\nB = 2\nC = f()\nD = C\ne = 1", ["B"]),
    ("participles", "def _left_out(): ...\ndef need(): ...\ndef ended_x(): ...", ["_left_out"]),
    ("participles", "class A:\n  @property\n  def taken(self): ...\n  def unsent(self): ...", ["unsent"]),
    ("class names of several modules", "class A: ...\nclass B: ...", ["A"]),
]
"""sources of a module beside ``a``, and the faults in it"""


@pytest.mark.parametrize("fault", CHECKS)
def test_a_fault_is_below_its_ceiling(fault: str) -> None:
    found = find_faults(fault)
    assert len(found) <= FAULTS[fault], "\n".join(found)


@pytest.mark.parametrize(("fault", "source", "places"), CASES)
def test_a_fault_is_found(fault: str, source: str, places: list[str]) -> None:
    """Module ``a`` loads ``c``; it has ``d`` for its types only."""
    sources = {"a": "import c\nif TYPE_CHECKING: import d\nclass A: ...", "b": source, "c": "", "d": ""}
    found = CHECKS[fault]({name: ast.parse(text) for name, text in sources.items()})
    assert sorted(each.removeprefix("b").lstrip(": ") for each in found) == places

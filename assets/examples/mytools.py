"""Tools for `localspec run --tools`: each public function with a docstring and annotated parameters."""

from pathlib import Path


def read_file(path: str) -> str:
    """Read a text file and return its content."""
    return Path(path).read_text()


def add(a: float, b: float) -> float:
    """Add two numbers and return their sum."""
    return a + b

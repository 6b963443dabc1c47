from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of a module's damaged files; each example overwrites the one before."""
    return tmp_path_factory.mktemp("damaged")

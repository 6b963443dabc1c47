from __future__ import annotations

from tests.daemon.conftest import home, start

__all__ = ["home", "start"]

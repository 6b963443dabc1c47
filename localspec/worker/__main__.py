"""``python -m localspec.worker --fd N``: started by the daemon with one end of a socket pair."""

from __future__ import annotations

from localspec.worker.loop import main

if __name__ == "__main__":
    main()

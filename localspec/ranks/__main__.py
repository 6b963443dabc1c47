"""``python -m localspec.ranks``: a rank that replays, over its stdin and stdout."""

from __future__ import annotations

from localspec.ranks.follower import main

if __name__ == "__main__":
    main()

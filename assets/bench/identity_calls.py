"""Count the look-ups of a model's file for one answer without a daemon.

``python -m assets.bench.identity_calls MODEL.gguf [FLAGS of localspec run]`` answers a short prompt in this
process and prints a JSON object: ``opens`` of the file by Python (by the function that opens it), ``formats``
(looks for a ``config.json`` in it), ``resolutions`` of its path, and ``calls`` of functions of
``localspec.models`` and ``localspec.engine`` that are given its path, by name.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from types import FrameType
from typing import Any

PROMPT = "def f("
CALLERS = ("/localspec/models/", "/localspec/engine/")


class Counts:
    """The counts of calls about one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.opens = Counter[str]()
        self.calls = Counter[str]()
        self.formats = 0
        self.resolutions = 0

    def begin(self) -> None:
        """Count in this process from now on."""
        sys.addaudithook(self._audit)
        isfile, realpath = os.path.isfile, os.path.realpath
        config = os.path.join(self.path, "config.json")

        def counted_isfile(path: Any) -> bool:
            self.formats += os.fspath(path) == config
            return isfile(path)

        def counted_realpath(path: Any, **how: Any) -> Any:
            self.resolutions += os.fspath(path) == self.path
            return realpath(path, **how)

        os.path.isfile, os.path.realpath = counted_isfile, counted_realpath
        sys.setprofile(self._call)

    def end(self) -> dict[str, Any]:
        """Stop counting calls, and return all figures."""
        sys.setprofile(None)
        counts = {"formats": self.formats, "resolutions": self.resolutions}
        return {"opens": dict(self.opens), **counts, "calls": dict(self.calls.most_common())}

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str | bytes) and os.fsdecode(args[0]) == self.path:
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and "/localspec/" not in frame.f_code.co_filename:
                frame = frame.f_back
            self.opens["?" if frame is None else frame.f_code.co_qualname] += 1

    def _call(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event != "call" or not any(part in code.co_filename for part in CALLERS):
            return
        given = (frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount])
        if "<" not in code.co_name and any(self._is_it(each) for each in given):
            self.calls[code.co_qualname] += 1

    def _is_it(self, value: object) -> bool:
        return isinstance(value, str | os.PathLike) and os.fspath(value) == self.path


def main(model: str, *flags: str) -> None:
    """Answer once, then print the counts as the last line of stdout."""
    import localspec.engine.load
    from localspec.cli.main import main as localspec_main

    assert localspec.engine.load  # imported before anything is counted
    counts = Counts(os.path.abspath(model))
    counts.begin()
    sys.argv = ["localspec", "run", "--no-daemon", "--temperature", "0", "--max-tokens", "2", "-m", model]
    sys.argv += [*flags, PROMPT]
    try:
        localspec_main()
    except SystemExit as ended:
        if ended.code:
            raise
    print("\n" + json.dumps(counts.end()))


if __name__ == "__main__":
    main(*sys.argv[1:])

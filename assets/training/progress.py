"""A progress line on stderr."""

import sys
import time

SECONDS_ON_TERMINAL = 0.2
SECONDS_IN_LOG = 10.0  # where stderr is a file, every update is a line of it


class Progress:
    """One line that is rewritten on a terminal, and a line now and then elsewhere."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._started = self._shown = time.monotonic()
        self._live = sys.stderr.isatty()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def due(self) -> bool:
        """True if the last text is old enough for another one."""
        interval = SECONDS_ON_TERMINAL if self._live else SECONDS_IN_LOG
        return time.monotonic() - self._shown >= interval

    def show(self, text: str) -> None:
        """Show `text`; ask `due` first."""
        self._shown = time.monotonic()
        self._write(text, end="" if self._live else "\n")

    def finish(self, text: str) -> None:
        """Show the final `text` with the time it took."""
        self._write(f"{text} in {self.seconds:.1f} s", end="\n")

    def _write(self, text: str, *, end: str) -> None:
        erase = "\r\x1b[K" if self._live else ""
        print(f"{erase}{self._label}: {text}", end=end, file=sys.stderr, flush=True)

"""Reading one request from an engine in the same thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from localspec.engine.sequence import Event, Sequence
from localspec.errors import EngineError, LocalspecError
from localspec.interrupt import delayed
from localspec.protocol.events import Delta
from localspec.protocol.results import Result


class Runner(Protocol):
    """The part of an engine that a stream needs."""

    def step(self) -> bool: ...
    def cancel(self, id: int) -> None: ...


class Stream:
    """The chunks of an answer, to iterate over; :attr:`result` is set when they end.

    Reading the stream runs the engine. Closing it, or dropping it before its end, cancels the request; so
    does Ctrl-C, which raises KeyboardInterrupt after the step under way.
    """

    def __init__(self, engine: Runner, sequence: Sequence) -> None:
        self._engine, self._sequence = engine, sequence
        self._result: Result | None = None
        self._ended = False

    @property
    def result(self) -> Result:
        """The result of the request, after the last chunk was read."""
        if self._result is None:
            raise LocalspecError(
                "the stream has not ended: it has no result yet", "Read it to its end, or call finish()."
            )
        return self._result

    def __iter__(self) -> Iterator[Delta]:
        return (event for event in self.events() if isinstance(event, Delta))

    def events(self) -> Iterator[Event]:
        """Iterate over all events of the request, chunks included."""
        while (event := self._next()) is not None:
            yield event

    def finish(self) -> Result:
        """Read the rest and return the result; raises the error that ended the request."""
        while self._next() is not None:
            pass
        return self.result

    def cancel(self) -> None:
        """End the request; its result has the finish reason ``cancelled`` and the text so far."""
        self._engine.cancel(self._sequence.id)

    def close(self) -> None:
        """Cancel the request if it has not ended, and drop it."""
        if not self._ended:
            self._ended = True
            self.cancel()
            with delayed():
                self._engine.step()

    def __del__(self) -> None:
        # Anywhere, also within another request's step: the next step drops the request.
        if not self._ended:
            self.cancel()

    def _next(self) -> Event | None:
        """The next event of the request, None after its end; raises the error that ended it."""
        while not self._ended and not self._sequence.events:
            try:
                with delayed():
                    goes_on = self._engine.step()
            except BaseException:
                self.close()
                raise
            if not goes_on and not self._sequence.events:
                self._ended = True
                raise EngineError("the engine ended without a result for this request; this is a defect")
        if self._ended:
            return None
        event = self._sequence.events.popleft()
        self._ended = isinstance(event, (Result, LocalspecError))
        if isinstance(event, LocalspecError):
            raise event
        if isinstance(event, Result):
            self._result = event
        return event

"""Reading one request from an engine in the same thread."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Protocol, cast

from localspec.engine.events import Event
from localspec.engine.sequence import Sequence
from localspec.errors import EngineError, LocalspecError
from localspec.interrupt import delayed
from localspec.protocol.events import Delta
from localspec.protocol.results import Result


class Runner(Protocol):
    """The part of an engine that a stream needs."""

    def step(self) -> bool:
        """Advance the requests by a step; return False if none is left."""

    def cancel(self, id: int) -> None:
        """End a request at the next step."""


class Stream:
    """The chunks of an answer, to iterate over; :attr:`result` is set when they end.

    Reading the stream runs the engine. Closing it, or dropping it before its end, cancels the request; so
    does Ctrl-C, which raises KeyboardInterrupt after the step under way.
    """

    def __init__(self, engine: Runner, sequence: Sequence) -> None:
        self._engine, self._sequence = engine, sequence
        self._result: Result | None = None
        self._events = self._run()
        next(self._events)  # begun, because closing a generator that was never begun does nothing

    @property
    def result(self) -> Result:
        """The result of the request, after the last chunk was read."""
        if self._result is None:
            raise LocalspecError(
                "the stream has not ended: it has no result yet", "Read it to its end, or call finish()."
            )
        return self._result

    def __iter__(self) -> Iterator[Delta]:
        return (event for event in self._events if isinstance(event, Delta))

    def events(self) -> Iterator[Event]:
        """Iterate over all events of the request, chunks included."""
        return self._events

    def finish(self) -> Result:
        """Read the rest and return the result; raises the error that ended the request."""
        for _ in self._events:
            pass
        return self.result

    def cancel(self) -> None:
        """End the request; its result has the finish reason ``cancelled`` and the text so far."""
        self._engine.cancel(self._sequence.id)

    def close(self) -> None:
        """Cancel the request if it has not ended, and drop it."""
        self._events.close()

    def _run(self) -> Generator[Event, None, None]:
        """Yield the events, after a first value that is no event."""
        sequence = self._sequence
        try:
            yield cast(Event, None)
            while True:
                while sequence.events:
                    event = sequence.events.popleft()
                    if isinstance(event, LocalspecError):
                        raise event
                    if isinstance(event, Result):
                        self._result = event
                        yield event
                        return
                    yield event
                with delayed():
                    goes_on = self._engine.step()
                if not goes_on and not sequence.events:
                    raise EngineError("the engine ended without a result for this request; this is a defect")
        finally:
            if self._result is None and sequence.error is None:
                self._engine.cancel(sequence.id)
                with delayed():
                    self._engine.step()

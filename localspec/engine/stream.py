"""Reading one request from an engine in the same thread."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Protocol, cast

from localspec.engine.events import Event
from localspec.engine.sequence import Sequence
from localspec.errors import EngineError, LocalspecError
from localspec.protocol.events import Delta
from localspec.protocol.results import Result


class Runner(Protocol):
    """What runs the request: an engine."""

    def step(self) -> bool:
        """Advance all requests; False when there is nothing to do."""

    def cancel(self, id: int) -> None:
        """End a request at the next step."""


class Stream:
    """Iterate over the chunks of an answer; :attr:`result` is there when they end.

    Reading it is what runs the engine. Closing it, or leaving its loop early and dropping it,
    cancels the request.
    """

    def __init__(self, engine: Runner, sequence: Sequence) -> None:
        self._engine, self._sequence = engine, sequence
        self._result: Result | None = None
        self._events = self._run()
        next(self._events)  # a generator that was never begun does nothing when it is closed

    @property
    def result(self) -> Result:
        """The end of the request, once every chunk was read."""
        if self._result is None:
            raise LocalspecError("the stream has not ended", "Read it to its end, or call finish().")
        return self._result

    def __iter__(self) -> Iterator[Delta]:
        return (event for event in self._events if isinstance(event, Delta))

    def events(self) -> Iterator[Event]:
        """Everything that is told about the request, chunks included."""
        return self._events

    def finish(self) -> Result:
        """Read the rest; returns the result. Raises the error that ended the request."""
        for _ in self._events:
            pass
        return self.result

    def cancel(self) -> None:
        """End the request; its result says ``cancelled`` and has the text so far."""
        self._engine.cancel(self._sequence.id)

    def close(self) -> None:
        """Cancel the request if it has not ended, and forget it."""
        self._events.close()

    def _run(self) -> Generator[Event, None, None]:
        """Yield the events, after a first value that is none."""
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
                if not self._engine.step() and not sequence.events:
                    raise EngineError("the engine does not know the request any more", "Ask again.")
        finally:
            if self._result is None and sequence.error is None:
                self._engine.cancel(sequence.id)
                self._engine.step()

"""The subscriptions of all connections to live events."""

from __future__ import annotations

from localspec.daemon.relay.outbox import Outbox
from localspec.protocol import jsonrpc
from localspec.protocol.events import LiveEvent, RoundEvent


class Subscription:
    """The kinds of live events that one connection has subscribed to; none at first."""

    def __init__(self, outbox: Outbox) -> None:
        self.kinds: frozenset[str] = frozenset()
        self._outbox = outbox

    def send(self, event: LiveEvent) -> None:
        """Send ``event`` if its kind is subscribed to; a round is dropped for a slow client."""
        if event.__struct_config__.tag not in self.kinds:
            return
        frame = jsonrpc.notification("event", event)
        if isinstance(event, RoundEvent):
            self._outbox.live(frame)
        else:
            self._outbox.put(frame)


class Events:
    """Events for all clients. Rounds hold token ids, which are text: they go to their own client only."""

    def __init__(self) -> None:
        self.subscriptions: set[Subscription] = set()

    def publish(self, event: LiveEvent) -> None:
        """Send ``event`` to every subscriber of its kind."""
        for subscription in self.subscriptions:
            subscription.send(event)

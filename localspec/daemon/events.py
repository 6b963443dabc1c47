"""Who wants to hear of what: the subscriptions of all connections."""

from __future__ import annotations

from localspec.daemon.outbox import Outbox
from localspec.protocol import jsonrpc
from localspec.protocol.events import LiveEvent, RoundEvent


class Subscription:
    """The kinds of events that one connection wants; none at first."""

    def __init__(self, outbox: Outbox) -> None:
        self.kinds: frozenset[str] = frozenset()
        self._outbox = outbox

    def tell(self, event: LiveEvent) -> None:
        """Send it, if it is wanted."""
        if event.__struct_config__.tag not in self.kinds:
            return
        frame = jsonrpc.notification("event", event)
        if isinstance(event, RoundEvent):
            self._outbox.live(frame)
        else:
            self._outbox.put(frame)


class Events:
    """What all clients may know is told here. Token ids are text: rounds go to their own client only."""

    def __init__(self) -> None:
        self.subscriptions: set[Subscription] = set()

    def publish(self, event: LiveEvent) -> None:
        """Send it to all who want it."""
        for subscription in self.subscriptions:
            subscription.tell(event)

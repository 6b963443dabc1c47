"""The daemon's client: start the daemon if need be, request text, stream the answer.

::

    async with await connect() as client:
        async for delta in client.generate("def fib(n):", raw=True):
            print(delta.text, end="")
"""

from localspec.client.client import Client, Deadlines, Following, connect
from localspec.client.wire import Event, Stream, Subscription

__all__ = ["Client", "Deadlines", "Event", "Following", "Stream", "Subscription", "connect"]

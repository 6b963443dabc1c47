"""Who asks without the token, where ``http.without_token`` lets them: any program, any user of this machine.

They reach the models that are listed, and the one that is configured, and no other file. Nothing is learnt
from them, and the n-gram memory, which knows what others wrote, does not draft for them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from localspec.errors import Unauthorized
from localspec.http.gate import TOKEN_REMEDY

OWNERS = ("model", "draft", "workspace", "verify", "threshold")
"""options that name files, or may let a draft into a text"""
PROPOSERS = ("prompt-lookup", "draft", "none")
"""who may draft, the first if nothing is said"""


def confine(body: msgspec.Struct) -> None:
    """Leave of a request what an unauthenticated client may ask, but for its model. Raises
    :class:`Unauthorized`."""
    for place in (getattr(body, "options", None), body):
        if place is None or not hasattr(place, "localspec"):
            continue
        own: dict[str, Any] = place.localspec or {}
        if refused := [option for option in OWNERS if own.get(option) is not None]:
            raise Unauthorized(f"localspec.{refused[0]} is for who shows the token", TOKEN_REMEDY)
        proposer = own.get("proposer") or PROPOSERS[0]
        if proposer not in PROPOSERS:
            told = f"without the token localspec.proposer is one of {', '.join(PROPOSERS)}"
            raise Unauthorized(told, TOKEN_REMEDY)
        place.localspec = {**own, "proposer": proposer, "remember": False}

"""Limits of unauthenticated clients, which ``http.without_token`` permits.

That is any program of any user of this machine. They can use the listed models and the configured one, and no
other file. Nothing is learnt from their requests, and the n-gram memory, which holds texts of others, does
not draft for them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from localspec.errors import Unauthorized
from localspec.http.gate import TOKEN_REMEDY
from localspec.protocol.proposer_kinds import KINDS, LOOKUP, NONE

OWNERS = ("model", "draft", "workspace", "verify", "threshold")
"""options that name files, or may let a draft change a text"""
PROPOSERS = (*(kind.name for kind in KINDS if kind.unauthenticated), NONE)
"""proposers that these clients may choose; :data:`LOOKUP` is the default"""


def confine(body: msgspec.Struct) -> None:
    """Restrict a request's options to those permitted without the token; its model is checked elsewhere.

    Raises :class:`Unauthorized`.
    """
    for place in (getattr(body, "options", None), body):
        if place is None or not hasattr(place, "localspec"):
            continue
        own: dict[str, Any] = place.localspec or {}
        if refused := [option for option in OWNERS if own.get(option) is not None]:
            raise Unauthorized(
                f"the option localspec.{refused[0]} is accepted only with the HTTP token", TOKEN_REMEDY
            )
        proposer = own.get("proposer") or LOOKUP.name
        if proposer not in PROPOSERS:
            message = f"without the HTTP token, localspec.proposer may only be one of {', '.join(PROPOSERS)}"
            raise Unauthorized(message, TOKEN_REMEDY)
        place.localspec = {**own, "proposer": proposer, "remember": False}

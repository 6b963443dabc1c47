"""Who asks without the token, where ``http.without_token`` lets them: any program, any user of this machine.

They reach the models that are listed, and no other file; nothing is learnt from them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from localspec.client import Client
from localspec.errors import Unauthorized
from localspec.http.gate import TOKEN_REMEDY
from localspec.http.models import LATEST, model_named, model_of

OWNERS = ("model", "draft", "workspace")
"""options that name files"""


async def confine(client: Client, body: msgspec.Struct) -> None:
    """Leave of a request what a stranger may ask. Raises :class:`Unauthorized` and :class:`ModelNotFound`."""
    name = model_of(getattr(body, "model", None))
    if name is not None:
        await model_named(client, name.removesuffix(LATEST))
    for place in (getattr(body, "options", None), body):
        if place is None or not hasattr(place, "localspec"):
            continue
        own: dict[str, Any] = place.localspec or {}
        if refused := [option for option in OWNERS if option in own]:
            raise Unauthorized(f"localspec.{refused[0]} is for who shows the token", TOKEN_REMEDY)
        place.localspec = {**own, "remember": False}

"""The base of all parameters of the wire's methods."""

from __future__ import annotations

import msgspec


class Params(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parameters: an unknown field is an error."""

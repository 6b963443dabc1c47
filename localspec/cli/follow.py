"""``localspec follow``: this machine as a node of another one."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from localspec.cli import output
from localspec.errors import InvalidOptions
from localspec.ranks import follower, nodes


def follow(*, listen: Annotated[str, Parameter(allow_leading_hyphen=True)] = "") -> None:
    """Hold a share of an MLX model for another machine.

    Parameters
    ----------
    listen
        HOST:PORT of this machine in a private network, for connections without ssh.
    """
    if not listen:
        if output.can_ask() or output.is_terminal():
            raise InvalidOptions(
                "`localspec follow` speaks with the daemon of another machine, which starts it by ssh",
                "Name this machine in `nodes` there, or add --listen HOST:PORT.",
            )
        follower.main()
    nodes.listen(listen, _show)


def _show(node: str) -> None:
    output.write(
        f"Listening. On the other machine:\n\n  localspec config set nodes '[\"{node}\"]'\n\n"
        "Both speak without encryption: use this in a private network only.\n"
    )

"""The start of a chat, without its flags: importing their parser would delay the chat."""

from __future__ import annotations

import gc
import os
from functools import partial
from pathlib import Path

from localspec.agent.loop import servers_in
from localspec.cli import answer
from localspec.client import Client
from localspec.config import environment_options
from localspec.errors import ExitCode, InvalidOptions
from localspec.hub.default import missing
from localspec.protocol.options import Options
from localspec.tui.app import ChatApp


def begin(
    options: Options | None = None,
    *,
    session: str | None = None,
    go_on: bool = False,
    private: bool = False,
    yes: bool = False,
    tools: tuple[Path, ...] = (),
) -> int:
    """Chat until the user leaves, by ``options`` or the environment's; the model may call ``tools``. Raises
    :class:`InvalidOptions` without a terminal that can show it, and :class:`SessionNotFound`."""
    gc.freeze()
    gc.enable()
    other = [f"{name} is not one" for fd, name in enumerate(("stdin", "stdout")) if not os.isatty(fd)]
    if (kind := os.environ.get("TERM", "")) in ("dumb", "unknown"):  # no cursor
        other.append(f"TERM={kind} cannot show a full screen")
    if other:
        raise InvalidOptions(f"a chat needs a terminal, and {other[0]}", "For one answer: `localspec run`.")
    if go_on or session is not None:

        async def find_session(client: Client) -> str:
            if session is not None:
                return (await client.session(session)).session
            return await answer.last_session(client, "Start a chat first: `localspec chat`.")

        session = answer.remote(find_session)
    given = environment_options() if options is None else options
    app = ChatApp(
        given,
        settle=answer.from_here,
        missing=partial(missing, given, yes=yes),
        session=session,
        private=private,
        servers=[server for file in tools for server in servers_in(file)],
    )
    for size in ("COLUMNS", "LINES"):
        os.environ.pop(size, None)  # the toolkit would use them in place of the window's size
    app.run()
    return app.return_code or ExitCode.OK

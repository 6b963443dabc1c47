"""Commands of the server besides completion: prime, forget, restart, choose a model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.uris import to_fs_path

from localspec.config import load_config
from localspec.errors import DaemonUnavailable, InvalidOptions, LocalspecError, ModelNotFound
from localspec.home import workspace_of
from localspec.lsp.completions import ACCEPTED
from localspec.lsp.server import EditorServer
from localspec.protocol.messages import StreamProgress
from localspec.wording import count_noun

INFO = types.MessageType.Info
CONFIGURED = "as configured"


async def accept_item(server: EditorServer, arguments: list[Any]) -> None:
    """Record that an item was accepted whole; the editor calls this after it has inserted it."""
    for id in arguments[:1]:
        server.suggestions.accept(str(id))


async def prime_workspace(server: EditorServer, arguments: list[Any]) -> dict[str, int] | None:
    """Learn the texts of the workspace; a cancelled run keeps what it has learnt."""
    roots = _roots(server, arguments)
    client = await server.link.client(at_once=True)
    stream = client.prime(*roots)
    work = server.work(f"Learning {', '.join(roots)}", stream.stop)
    try:
        async for event in stream.events():
            if isinstance(event, StreamProgress):
                work.report(event.stage, event.fraction)
        primed = await stream.result()
    finally:
        stream.stop()
        work.end()
    server.say(INFO, f"Learnt {count_noun(primed.tokens, 'token')} of {count_noun(primed.files, 'file')}.")
    return {"files": primed.files, "skipped": primed.skipped, "tokens": primed.tokens}


async def forget_workspace(server: EditorServer, arguments: list[Any]) -> int | None:
    """Forget what was learnt there, once the user confirms; returns the number of tables removed."""
    # The workspace of a directory: the git repository around it, or else the directory itself.
    roots = [str(workspace_of(Path(root)) or root) for root in _roots(server, arguments)]
    question = f"Forget all that localspec has learnt in {', '.join(roots)}?"
    if await _ask_user(server, question, "Forget", "Keep") != "Forget":
        return None
    client = await server.link.client(at_once=True)
    forgotten = [await client.forget(workspace=root) for root in roots]
    tables = sum(each.forgotten for each in forgotten)
    server.say(INFO, f"Forgot {count_noun(tables, 'table')}.")
    return tables


async def restart_daemon(server: EditorServer, arguments: list[Any]) -> None:
    load_config()  # raises first: with a broken config.toml no new daemon could start
    with contextlib.suppress(DaemonUnavailable):  # it has ended already
        # This includes a daemon that is just being started, or was found a moment ago.
        running = await server.link.client(at_once=True)
        await running.shutdown()
    client = await server.link.client(at_once=True)
    server.renew()
    server.say(INFO, f"The daemon has started again, localspec {client.welcome.server.version}.")


async def choose_model(server: EditorServer, arguments: list[Any]) -> str | None:
    """Set the model of completions; without a name the user chooses. An empty name is the configured one."""
    client = await server.link.client(at_once=True)
    usable = [model for model in await client.models() if model.fim and model.problem is None]
    question = "Which model should write completions?"
    names = [model.names[0] if model.names else model.id for model in usable]
    name = str(arguments[0]) if arguments else await _ask_user(server, question, *names, CONFIGURED)
    if name is None:
        return None
    name = "" if name == CONFIGURED else name
    if name and not any(name in (model.id, model.path, *model.names) for model in usable):
        pull = "Download a code model trained to fill in the middle: `localspec models pull REPO`."
        remedy = f"Choose one of these: {', '.join(names)}." if names else pull
        raise ModelNotFound(f"no fill-in-the-middle model is named {name}", remedy)
    server.choose(name or None)
    server.say(INFO, f"Completions now come from {name or 'the configured model'}.")
    return name


Command = Callable[[EditorServer, list[Any]], Awaitable[Any]]
COMMANDS: dict[str, Command] = {
    ACCEPTED: accept_item,
    "localspec.primeWorkspace": prime_workspace,
    "localspec.forgetWorkspace": forget_workspace,
    "localspec.restartDaemon": restart_daemon,
    "localspec.chooseModel": choose_model,
}


def report_failures(command: Command) -> Callable[..., Awaitable[Any]]:
    """Return a command that shows each failure, as the user has asked for it."""

    async def run(ls: EditorServer, *arguments: Any) -> Any:
        try:
            return await command(ls, list(arguments))
        except LocalspecError as error:
            ls.complain(error)

    return run


def _roots(server: EditorServer, arguments: list[Any]) -> list[str]:
    workspace = server.workspace
    uris = [folder.uri for folder in workspace.folders.values()] or [workspace.root_uri or ""]
    roots = [str(each) for each in arguments] or [path for uri in uris if (path := to_fs_path(uri))]
    if not roots:
        remedy = "Open one, or pass a directory as the command's argument."
        raise InvalidOptions("the editor has no directory open", remedy)
    return roots


async def _ask_user(server: EditorServer, question: str, *answers: str) -> str | None:
    actions = [types.MessageActionItem(answer) for answer in answers]
    params = types.ShowMessageRequestParams(INFO, question, actions)
    try:
        chosen = await asyncio.wrap_future(server.window_show_message_request(params))
    except JsonRpcException:
        return None  # this editor has no such dialog
    return None if chosen is None else chosen.title

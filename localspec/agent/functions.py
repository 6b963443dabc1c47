"""A program that offers the functions of a Python file as tools, by MCP.

``python -m localspec.agent.functions FILE``: each public function of the file with a docstring and annotated
parameters. One that crashes or hangs costs its own call: the client starts the program again.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from localspec._version import __version__
from localspec.protocol.jsonrpc import Call, decode, result

MODULE = "__tools__"
KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Function(NamedTuple):
    run: Callable[..., Any]
    parameters: type[msgspec.Struct]
    tool: dict[str, Any]


def main(path: str) -> None:
    """Serve the functions of a file until the end of stdin; what the file prints goes to stderr."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    functions = functions_of(path)
    for line in incoming:
        call = decode(line)
        if isinstance(call, Call) and call.id is not None:
            outgoing.write(result(call.id, answer_request(call, functions)) + "\n")
            outgoing.flush()


def functions_of(path: str) -> dict[str, Function]:
    """The functions of a file that are tools; raises its own errors. One whose parameters have no JSON schema
    has the reason in its name: the client leaves such a tool out, and shows the name."""
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[MODULE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Function] = {}
    for name, function in vars(module).items():
        is_own = inspect.isfunction(function) and function.__module__ == MODULE
        if not is_own or name.startswith("_") or not function.__doc__:
            continue
        try:
            parameters = inspect.signature(function, eval_str=True).parameters.values()
            if all(each.annotation is not each.empty and each.kind in KINDS for each in parameters):
                found[name] = _describe(name, function, parameters)
        except Exception as error:  # of the user's annotations
            reason = str(error).rpartition("\n")[2]
            tool = {"name": f"{name} ({reason})", "inputSchema": None}
            found[name] = Function(function, msgspec.Struct, tool)
    return found


def _describe(name: str, function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> Function:
    fields: list[Any] = [
        (p.name, p.annotation, p.default)[: 2 + (p.default is not p.empty)] for p in parameters
    ]
    struct = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    _, parts = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    schema = {**parts.pop(name), **({"$defs": parts} if parts else {})}
    tool = {"name": name, "description": inspect.getdoc(function), "inputSchema": schema}
    return Function(function, struct, tool)


def answer_request(call: Call, functions: dict[str, Function]) -> dict[str, Any]:
    """The result of a request of localspec; that of a ping is empty."""
    match call.method, msgspec.json.decode(call.params):
        case "initialize", {"protocolVersion": version}:
            about = {"name": "localspec", "version": __version__}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list", _:
            return {"tools": [function.tool for function in functions.values()]}
        case "tools/call", {"name": name, "arguments": arguments}:
            return outcome(functions[name], arguments)
    return {}


def outcome(function: Function, arguments: dict[str, Any]) -> dict[str, Any]:
    """The value of a function, as JSON unless it is a text, or its exception."""
    try:
        given = msgspec.convert(arguments, function.parameters, strict=False)
        value = function.run(**{name: getattr(given, name) for name in given.__struct_fields__})
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    except Exception as error:  # of the user's code: the model reads it
        return {"content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}], "isError": True}
    return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    main(sys.argv[1])

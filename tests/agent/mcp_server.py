"""An MCP server with one tool, ``echo``, and with the fault that its argument names."""

from __future__ import annotations

import json
import sys
from typing import Any

FAULT = sys.argv[1]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def tools() -> list[dict[str, Any]]:
    names = [f"tool{n}" for n in range(10_000)] if FAULT == "many" else sys.argv[2:] or ["echo"]
    return [{"name": name, "description": "Say it again.", "inputSchema": SCHEMA} for name in names]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
    if method == "tools/list":
        odd = [{"name": 1}, {"name": "empty", "inputSchema": None}] if FAULT == "odd" else []
        return {"tools": 1 if FAULT == "wrong" else [*odd, *tools()]}
    text = params.get("arguments", {}).get("text", "")
    repeated = {"large": 2_000_000, "huge": 5_000_000}.get(text, 1)
    return {"content": [{"type": "text", "text": text * repeated}, {"type": "image", "data": ""}]}


late = b""
"""results that are sent before the next one"""
for line in sys.stdin:
    request = json.loads(line)
    if FAULT == "dies" or request.get("params", {}).get("arguments", {}).get("text") == "die":
        sys.exit("first line\nno licence")
    if "id" in request and "method" in request:
        print("a line that is no message", flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "ping"}), flush=True)
        result = answer(request["method"], request.get("params", {}))
        message = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        damaged = message.replace("latin", "\xe9").replace('"NaN', 'NaN, "')
        late += damaged.encode("latin-1") + b"\n"
        if '"late"' not in line:
            sys.stdout.buffer.write(late)
            sys.stdout.flush()
            late = b""

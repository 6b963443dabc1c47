"""A stand-in for llama-server: answers in three dialects with its arguments, or ends at once."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send(200, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        timings = {"predicted_n": 3, "predicted_ms": 4.0, "draft_n": 2, "draft_n_accepted": 1}
        if self.path == "/completion":
            events = [{"content": "a"}, {"content": "b"}, {"content": "", "timings": timings}]
        elif self.path == "/infill":
            events = [{"content": body["input_prefix"] + "|" + body["input_suffix"], "timings": timings}]
        else:
            last = body["messages"][-1]["content"]
            pieces = [{"choices": [{"delta": {"content": text}}]} for text in ("to: ", last)]
            events = [*pieces, {"choices": [], "timings": timings}]
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self._send(200, lines.encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    print(*sys.argv[1:], flush=True)
    if "--fail" in sys.argv:
        sys.exit(3)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answers).serve_forever()

"""``llama-server`` as llama.cpp's own tests start it: its flags, as a daemon with its HTTP server.

Flags for loading and for requests become settings; all others are left out. The bundled pair
stands in for every model. Each server has a home of its own under ``LOCALSPEC_PEERS_HOME``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

HOMES = "LOCALSPEC_PEERS_HOME"


def arguments() -> argparse.Namespace:
    """Those flags that mean something here."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--temp", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--ctx-size", type=int)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--n-predict", type=int, default=-1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--api-key")
    parser.add_argument("--cors-origins")
    parser.add_argument("--kv-unified", action="store_true")
    return parser.parse_known_args()[0]


def settings(said: argparse.Namespace) -> str:
    """``config.toml``: there ``--ctx-size`` is that of all sequences together, unless they share it."""
    sequences = 1 if said.kv_unified else said.parallel
    tables = {
        "http": {"enabled": True, "port": said.port, "any_model": True},
        "daemon": {"port": 0},
        "engine": {"parallel": said.parallel, "threads": said.threads},
        "options": {"temperature": said.temp, "seed": said.seed},
    }
    if said.ctx_size:
        tables["engine"]["n_ctx"] = said.ctx_size // sequences
    if said.n_predict >= 0:
        tables["options"]["max_tokens"] = said.n_predict
    if not said.api_key:
        tables["http"]["without_token"] = ["llama.cpp", "openai"]
    return "".join(
        f"[{name}]\n"
        + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items() if value is not None)
        for name, table in tables.items()
    )


def main() -> None:
    """Become the daemon."""
    said = arguments()
    home = Path(tempfile.mkdtemp(dir=os.environ[HOMES]))
    (home / "config").mkdir()
    (home / "config" / "config.toml").write_text(settings(said))
    if said.api_key:
        (home / "data").mkdir(mode=0o700)
        token = home / "data" / "http-token"
        token.touch(mode=0o600)
        token.write_text(said.api_key)
    os.environ["LOCALSPEC_HOME"] = str(home)
    os.execv(sys.executable, (sys.executable, "-m", "localspec.daemon"))


if __name__ == "__main__":
    main()

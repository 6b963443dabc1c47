"""``llama-server`` as llama.cpp's own tests start it: its flags, as a daemon with its HTTP server.

Flags for loading and for requests become settings; all others are left out. The bundled pair, or the file
``LOCALSPEC_PEERS_MODEL``, stands in for every model; one with the chat template of the flags is a copy of it.
Each server has a home of its own under ``LOCALSPEC_PEERS_HOME``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HOMES, MODEL = "LOCALSPEC_PEERS_HOME", "LOCALSPEC_PEERS_MODEL"
COPY = (sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--force", "--chat-template")
BUNDLED = Path(__file__).parents[2] / "assets/models/stdlib-6m/stdlib-6m.gguf"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    numbers = {"port": 8080, "seed": None, "ctx-size": None, "parallel": 1, "n-predict": -1, "threads": 0}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--temp", type=float)
    parser.add_argument("--api-key")
    parser.add_argument("--kv-unified", action="store_true")
    parser.add_argument("--chat-template")
    parser.add_argument("--chat-template-file", type=Path)
    return parser.parse_known_args()[0]


def model(said: argparse.Namespace, home: Path) -> Path | None:
    """The model, if it is not the bundled pair; names of llama.cpp's own templates are left out."""
    file = os.environ.get(MODEL)
    template = said.chat_template_file.read_text() if said.chat_template_file else said.chat_template
    if template is None or " " not in template:
        return None if file is None else Path(file)
    copy = home / "templated.gguf"
    subprocess.run((*COPY, template, file or BUNDLED, copy), check=True)
    return copy


def settings(said: argparse.Namespace, model: Path | None) -> str:
    """``config.toml``: there ``--ctx-size`` is that of all sequences together, unless they share it."""
    sequences = 1 if said.kv_unified else said.parallel
    tables = {
        "http": {"enabled": True, "port": said.port, "any_model": True},
        "engine": {"parallel": said.parallel, "threads": said.threads},
        "options": {"temperature": said.temp, "seed": said.seed, "model": model and str(model)},
    }
    if said.ctx_size:
        tables["engine"]["n_ctx"] = said.ctx_size // sequences
    if said.n_predict >= 0:
        tables["options"]["max_tokens"] = said.n_predict
    if not said.api_key:
        tables["http"]["without_token"] = ["anthropic", "llama.cpp", "openai"]
    return "".join(
        f"[{name}]\n"
        + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items() if value is not None)
        for name, table in tables.items()
    )


def main() -> None:
    said = arguments()
    home = Path(tempfile.mkdtemp(dir=os.environ[HOMES]))
    (home / "config").mkdir()
    (home / "config" / "config.toml").write_text(settings(said, model(said, home)))
    if said.api_key:
        (home / "data").mkdir(mode=0o700)
        token = home / "data" / "http-token"
        token.touch(mode=0o600)
        token.write_text(said.api_key)
    os.environ["LOCALSPEC_HOME"] = str(home)
    os.execv(sys.executable, (sys.executable, "-m", "localspec.daemon"))


if __name__ == "__main__":
    main()

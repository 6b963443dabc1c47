"""A stand-in for macOS's launchctl, as far as localspec uses it: it loads an agent, and starts and ends it.

Its exit codes are the real one's: 113 for what is not loaded, 5 for what is loaded twice.
"""

from __future__ import annotations

import json
import os
import plistlib
import subprocess
import sys
from pathlib import Path

import psutil

STATE = Path(os.environ["HOME"]) / "launchd.json"
NOT_LOADED, TWICE = 113, 5


def main(verb: str, *words: str) -> int:
    domain = f"gui/{os.getuid()}"
    loaded = json.loads(STATE.read_text()) if STATE.exists() else None
    if verb == "enable" or words == (domain,):
        return 0
    if verb == "bootstrap":
        assert words[0] == domain
        if loaded is not None:
            return TWICE
        plist = plistlib.loads(Path(words[1]).read_bytes())
        keep({"plist": plist, "pid": launch(plist)})
        return 0
    if loaded is None:
        print("Could not find service", file=sys.stderr)
        return NOT_LOADED
    assert words == (f"{domain}/{loaded['plist']['Label']}",)
    return on_loaded(verb, loaded)


def on_loaded(verb: str, loaded: dict) -> int:  # type: ignore[type-arg]
    alive = psutil.pid_exists(loaded["pid"])
    if verb == "kickstart" and not alive:
        keep({**loaded, "pid": launch(loaded["plist"])})
    elif verb == "bootout":
        if alive:
            psutil.Process(loaded["pid"]).terminate()
        STATE.unlink()
    elif verb == "print":
        pid = f"\n\tpid = {loaded['pid']}" if alive else ""
        print(f"localspec = {{\n\tstate = {'running' if alive else 'not running'}{pid}\n}}")
    return 0


def launch(plist: dict) -> int:  # type: ignore[type-arg]
    with open(plist["StandardErrorPath"], "ab") as log:
        return subprocess.Popen(
            plist["ProgramArguments"],
            env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **plist["EnvironmentVariables"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=plist["WorkingDirectory"],
            start_new_session=True,
        ).pid


def keep(loaded: dict) -> None:  # type: ignore[type-arg]
    STATE.write_text(json.dumps(loaded))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

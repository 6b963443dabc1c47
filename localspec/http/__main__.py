"""``python -m localspec.http``: the door's own process, started by the daemon; it ends with its stdin.

One line is printed: its address once it listens, or why it does not. Exits 69 if what it needs is not
installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING

from localspec import home
from localspec.config import WITHOUT_TOKEN, Config, load_config
from localspec.daemon.access import loopback, token
from localspec.daemon.access.admission import Admission, Listening
from localspec.daemon.http_server import lacking
from localspec.daemon.log import OneLine
from localspec.errors import INSTALL_HTTP, ExitCode, LocalspecError

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger("localspec.http")

ANOTHER_PORT = "Run `localspec config set http.port N`, with N = 0 for any that is free."
CLOSE_S = 2
IDLE_S = 60
"""longer than clients keep a connection (5 s in httpx): else it may be closed while it is being used again"""
STDIN = 0


def main() -> int:
    """Serve until there is no more stdin; returns the exit code."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # what is no HTTP is told to who has sent it
    try:
        asyncio.run(_serve(load_config()))
    except ImportError as error:
        packages = " and ".join(lacking()) or error.name
        told = f"the HTTP door lacks {packages}. {INSTALL_HTTP} Then start the daemon again."
        return _closed(told, ExitCode.UNAVAILABLE)
    except LocalspecError as error:
        return _closed(f"{error.message}. {error.remedy}", error.exit_code)
    except OSError as error:
        told = f"the HTTP door cannot be opened: {error.strerror}. {ANOTHER_PORT}"
        return _closed(told, ExitCode.ERROR)
    return ExitCode.OK


def _closed(sentence: str, code: int) -> int:
    """Say why it is not open, to the log and to the daemon."""
    log.error("%s", sentence)
    _say(sentence)
    return code


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _serve(config: Config) -> None:
    import uvicorn

    from localspec.http.app import create
    from localspec.http.patience import PLACES, impatient

    token.read_or_create(home.http_token_path())
    app = create(
        _token,
        config.http.without_token,
        most=max(1, config.daemon.max_connections // 2),
        origins=config.http.origins,
    )
    if config.http.without_token:
        log.warning("%s: %s", WITHOUT_TOKEN, ", ".join(config.http.without_token))
    admission = Admission(PLACES, "that had not shown the token")
    listening = Listening.of(loopback.listen(config.http.port), admission)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            date_header=False,
            http=impatient(admission),
            lifespan="off",
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_S,
            timeout_keep_alive=IDLE_S,
            ws="none",
        )
    )
    _ends_with_stdin(server)
    _say(f"http://{loopback.address(listening)}")
    try:
        await server.serve(sockets=[listening])
    finally:
        admission.close()


def _token() -> str | None:
    """What it is now: a new one holds at once."""
    with contextlib.suppress(OSError):
        return token.read(home.http_token_path())
    return None


def _ends_with_stdin(server: uvicorn.Server) -> None:
    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(STDIN, 1024):
                pass
        server.should_exit = True

    threading.Thread(target=watch, name="stdin", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())

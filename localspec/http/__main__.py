"""``python -m localspec.http``: the HTTP server's own process, started by the daemon; it ends with its stdin.

Prints one line: its address once it listens, or the error that prevents it, as JSON. Exits 69 if a package
that it needs is not installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

from localspec import home
from localspec.config import WITHOUT_TOKEN, Config, load_config
from localspec.daemon.access import loopback, token
from localspec.daemon.http_server import lacking
from localspec.daemon.log import OneLine
from localspec.errors import INSTALL_HTTP, DaemonUnavailable, ExitCode, LocalspecError

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger("localspec.http")

ANOTHER_PORT = "Run `localspec config set http.port N` (0: any free port), then `localspec daemon restart`."
CLOSE_S = 2
IDLE_S = 60
"""longer than clients keep a connection (5 s in httpx), so that none is closed while it is used again"""
STDIN = 0


def main() -> int:
    """Serve until stdin ends; return the exit code."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # malformed HTTP is answered, not logged
    port = 0
    try:
        config = load_config()
        port = config.http.port
        asyncio.run(_serve(config))
    except ImportError as error:
        packages = " and ".join(lacking()) or error.name
        remedy = f"{INSTALL_HTTP} Then start the daemon again."
        return _closed(DaemonUnavailable(f"the HTTP server lacks {packages}", remedy), ExitCode.UNAVAILABLE)
    except LocalspecError as error:
        return _closed(error, error.exit_code)
    except OSError as error:
        return _closed(DaemonUnavailable(_no_port(port, error), ANOTHER_PORT), ExitCode.ERROR)
    return ExitCode.OK


def _no_port(port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is used by another program"
    return f"port {port} cannot be opened: {error.strerror}"


def _closed(error: LocalspecError, code: int) -> int:
    """Report the reason why it does not listen to the daemon, which logs it; return ``code``."""
    _print_line(msgspec.json.encode(error.as_dict()).decode())
    return code


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _serve(config: Config) -> None:
    import uvicorn

    from localspec.http.app import create
    from localspec.http.patience import CONNECTIONS, Impatient

    token.read_or_create(home.http_token_path())
    app = create(
        _token,
        config.http.without_token,
        most=max(1, config.daemon.max_connections // 2),
        origins=config.http.origins,
    )
    if config.http.without_token:
        log.warning("%s: %s", WITHOUT_TOKEN, ", ".join(config.http.without_token))
    listening = loopback.listen(config.http.port)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            date_header=False,
            http=Impatient,
            lifespan="off",
            limit_concurrency=CONNECTIONS,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_S,
            timeout_keep_alive=IDLE_S,
            ws="none",
        )
    )
    _ends_with_stdin(server)
    _print_line(f"http://{loopback.address(listening)}")
    await server.serve(sockets=[listening])


def _token() -> str | None:
    """Read the current token, so that a new one holds at once; None if it cannot be read."""
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

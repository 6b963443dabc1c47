"""``python -m localspec.daemon``: run the daemon in the foreground, logging to stderr or to its file. Exits 0
after a requested stop, and for a client or a service if another daemon is listening already; with 69 if that
is so for a user, if it cannot become the daemon, or if ``--http`` is given and that server cannot listen."""

from __future__ import annotations

import sys
from functools import partial

from localspec.daemon import server
from localspec.http.server import serve_http

main = partial(server.main, serve_http)

if __name__ == "__main__":
    sys.exit(main())

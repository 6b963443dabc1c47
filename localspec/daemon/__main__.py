"""``python -m localspec.daemon``: run the daemon in the foreground, logging to stderr or to its file.

Exits 0 after a requested stop. If another daemon is listening already, exits 0 for a client or a service,
with 69 for a user; also with 69 if it cannot become the daemon, or ``--http`` is given and the HTTP server
cannot listen.
"""

from __future__ import annotations

import sys
from functools import partial

from localspec.daemon import server
from localspec.http.server import serve_http

main = partial(server.main, serve_http)

if __name__ == "__main__":
    sys.exit(main())

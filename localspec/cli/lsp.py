"""``localspec lsp``: the language server for editors."""

from __future__ import annotations

import sys

from localspec.errors import InvalidOptions

REMEDY = "Let an editor start it: see plugins/lsp/README.md of localspec's source."


def lsp() -> int:
    """Serve completions to an editor over stdin and stdout, as a language server."""
    if sys.stdin is not None and sys.stdin.isatty():
        raise InvalidOptions("`localspec lsp` is for editors: stdin is a terminal", REMEDY)
    from localspec.lsp.serve import serve

    return serve()

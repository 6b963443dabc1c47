"""``localspec lsp``: the language server for editors."""

from __future__ import annotations


def lsp() -> int:
    """Serve completions to an editor over stdin and stdout, as a language server."""
    from localspec.lsp.serve import serve

    return serve()

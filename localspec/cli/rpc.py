"""``localspec rpc …``: llama.cpp's RPC, by which other machines hold layers of a GGUF model."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from localspec.cli import output
from localspec.cli.output import examples
from localspec.ranks import rpc

app = App(name="rpc", help_epilogue=examples("localspec rpc serve 192.168.1.7:50052"))


@app.command(help_epilogue=examples("localspec rpc serve 192.168.1.7:50052"))
def serve(address: Annotated[str, Parameter(allow_leading_hyphen=True)], /) -> None:
    """Hold layers of a GGUF model for another machine, one at a time, until Ctrl-C.

    Parameters
    ----------
    address
        HOST:PORT of this machine in a private network, or 127.0.0.1:PORT behind a tunnel.
    """
    rpc.serve(address, _show)


def _show(address: str, tunnel: str) -> None:
    output.write(
        f"Serving. On the other machine:\n\n  localspec config set rpc '[\"{address}\"]'\n\n"
        "There is no authentication and no encryption: what reaches this port can use it,\n"
        "and crash this process. A tunnel is safe: serve 127.0.0.1, and run on the other\n"
        f"machine:\n\n  {tunnel}\n\n"
    )

"""``localspec rpc …``: llama.cpp's RPC, by which other machines hold layers of a GGUF model."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from localspec.cli import output
from localspec.cli.output import examples
from localspec.errors import ExitCode, InvalidOptions
from localspec.wording import MB, size

PACKAGE = "llama-cpp-python"
MAX_SOURCE = 500 * MB
NEEDED = ("llama_cpp/__init__.py", "vendor/llama.cpp/ggml/")

app = App(
    name="rpc",
    help="Serve this machine's memory to a GGUF model of another one, over llama.cpp's RPC.",
    help_epilogue=examples("localspec rpc build", "localspec rpc serve 192.168.1.7:50052"),
)


@app.command(help_epilogue=examples("localspec rpc build --source llama_cpp_python-0.3.36.tar.gz"))
def build(*, source: Path | None = None) -> int:
    """Compile llama.cpp's RPC library for the installed version, by a C++ compiler: wheels do not have it.

    Parameters
    ----------
    source
        The source distribution of llama-cpp-python, a file or unpacked; otherwise it is downloaded from your
        package index.
    """
    from localspec.backends.llama_cpp import native, rpc
    from localspec.hub.wheels import download

    with tempfile.TemporaryDirectory() as place, output.progressing("downloading the source") as progress:
        if source is None:
            source = Path(place, "source.tar.gz")
            show = lambda n: progress(f"downloading the source, {size(n)}", 0.0)  # noqa: E731
            download(PACKAGE, native.version(), source, MAX_SOURCE, show, ending=".tar.gz")
        progress("compiling", 0.5)
        built = rpc.build(source if source.is_dir() else _unpacked(source, Path(place)))
    output.write(f"Built {built}.\n")
    return ExitCode.OK


def _unpacked(archive: Path, place: Path) -> Path:
    """The directory of the needed files of a source distribution; raises :class:`InvalidOptions`."""
    try:
        with tarfile.open(archive) as members:
            for member in members:
                if member.name.partition("/")[2].startswith(NEEDED):
                    members.extract(member, place / "source", filter="data")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InvalidOptions(f"{archive} cannot be unpacked: {error}", "Give the .tar.gz file.") from None
    return next((place / "source").glob("*"), place)


@app.command(help_epilogue=examples("localspec rpc serve 192.168.1.7:50052"))
def serve(address: Annotated[str, Parameter(allow_leading_hyphen=True)], /) -> None:
    """Hold layers of a GGUF model for another machine, one at a time, until Ctrl-C.

    Parameters
    ----------
    address
        HOST:PORT of this machine in a private network, or 127.0.0.1:PORT behind a tunnel.
    """
    from localspec.ranks import rpc

    rpc.serve(address, _show)


def _show(address: str, tunnel: str) -> None:
    output.write(
        f"Serving. On the other machine:\n\n  localspec config set rpc '[\"{address}\"]'\n\n"
        "There is no authentication and no encryption: what reaches this port can use it,\n"
        "and crash this process. A tunnel is safe: serve 127.0.0.1, and run on the other\n"
        f"machine:\n\n  {tunnel}\n\n"
    )

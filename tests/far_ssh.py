"""A command ``ssh`` that reaches a network namespace of this machine over TCP, without sshd."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = """#!{python}
import socket, subprocess
with socket.create_server(("{here}", 0)) as server:
    far = "exec 3<>/dev/tcp/{here}/%d; exec {python} -m localspec follow <&3 >&3" % server.getsockname()[1]
    around = ("env", "SSH_CONNECTION={here} 0 {there} 0", *{variables})
    subprocess.Popen(["nsenter", "-t", "{process}", "-n", "-m", *around, "bash", "-c", far])
    connection, _ = server.accept()
subprocess.Popen(["cat"], stdin=connection)
subprocess.run(["cat"], stdout=connection)
"""


def write_ssh(folder: Path, process: str, here: str, there: str, *variables: str) -> None:
    """Write an ``ssh`` to the namespaces of a ``process``: its address is ``there``, this machine's ``here``.
    The command gets these variables, each as NAME=VALUE."""
    text = PROGRAM.format(python=sys.executable, here=here, there=there, process=process, variables=variables)
    (folder / "ssh").write_text(text)
    (folder / "ssh").chmod(0o755)

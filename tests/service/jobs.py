"""Jobs to render: a plain one, and one whose paths hold what files of services have a meaning for."""

from __future__ import annotations

import re

from localspec.service.service import Job

JOB = Job(
    ("/usr/bin/python3", "-m", "localspec.daemon", "--log"),
    {"LOCALSPEC_HOME": "/home/ada/local spec", "OLLAMA_MODELS": "/models/100%"},
    "/home/ada/local spec/state/daemon.log",
)
STRANGE = "a b  %h %% $HOME ${HOME} \"q\" 'p' back\\slash\\n \\x41 ;semi #hash é 日本語 🦊 <&>"
"""a directory's name"""


def words(text: str) -> list[str]:
    """The words of a line of a unit, as systemd reads the quoted ones."""
    quoted = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    return [re.sub(r"\\(.)", r"\1", word).replace("%%", "%") for word in quoted]

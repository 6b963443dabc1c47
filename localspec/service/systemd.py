"""A unit of the user's systemd.

No socket activation: a daemon listens at two addresses, one of which changes when it is taken, and writes
them to a file; clients start it. A second way to start it would have to agree with all of that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from localspec import home
from localspec.errors import ExitCode
from localspec.service.job import Job
from localspec.service.manager import Manager, Running, call, is_usable

UNIT = "localspec.service"
SYSTEMCTL = ("systemctl", "--user")
STOP_S = 20
UNSAFE = "\\\"'"
"""characters that systemd allows in arguments, but not in the path of a program"""
BY_SHELL = ("/bin/sh", "-c", 'exec "$0" "$@"')

TEMPLATE = f"""\
# Written by `localspec service install`; changes of yours belong into `systemctl --user edit {UNIT}`.
[Unit]
Description=localspec: local models, speculating
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
ExecStart=:{{command}}
{{environment}}\
WorkingDirectory=/
UMask=0077
Restart=on-failure
RestartSec=2
# A broken configuration does not mend itself.
RestartPreventExitStatus={ExitCode.USAGE:d}
# The daemon ends its workers, when their answers are done; one that the kernel kills for memory costs no more
# than its own requests.
KillMode=mixed
TimeoutStopSec={STOP_S}
OOMPolicy=continue
# What a user's manager can forbid everywhere. Namespaces of its own (ProtectSystem, PrivateTmp) it cannot
# make on every machine, and code that is compiled for a GPU needs memory that is written and executed.
NoNewPrivileges=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def unit(job: Job) -> str:
    """The unit's file. ``ExecStart=:`` keeps dollar signs as they are."""
    refused = any(character in UNSAFE for character in job.command[0])
    command = (*BY_SHELL, *job.command) if refused else job.command
    return TEMPLATE.format(
        command=" ".join(map(quoted, command)),
        environment="".join(
            f"Environment={quoted(f'{name}={value}')}\n" for name, value in job.environment.items()
        ),
    )


def quoted(text: str) -> str:
    """A word in systemd's syntax: C-like quotes, and doubled percent signs."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


class Systemd(Manager):
    """The user's systemd, called by ``systemctl --user``."""

    name = "systemd"
    start_command = (*SYSTEMCTL, "start", UNIT)

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        config = environ.get("XDG_CONFIG_HOME") or str(home.of_user() / ".config")
        self.path = Path(config) / "systemd" / "user" / UNIT

    def render(self, job: Job) -> bytes:
        return unit(job).encode()

    def environment(self, content: bytes) -> dict[str, str]:
        words = re.findall(r'^Environment="((?:[^"\\]|\\.)*)"$', content.decode(errors="replace"), re.M)
        plain = (re.sub(r"\\(.)", r"\1", word).replace("%%", "%") for word in words)
        return {name: value for name, _, value in (word.partition("=") for word in plain)}

    def is_there(self) -> bool:
        return is_usable((*SYSTEMCTL, "show", "--property=Version"))

    def register(self) -> None:
        call((*SYSTEMCTL, "daemon-reload"))
        call((*SYSTEMCTL, "enable", UNIT))

    def start(self) -> None:
        # Earlier crashes no longer count; a unit that never failed cannot be reset.
        is_usable((*SYSTEMCTL, "reset-failed", UNIT))
        call(self.start_command)

    def remove(self) -> None:
        call((*SYSTEMCTL, "disable", "--now", UNIT))
        self.path.unlink(missing_ok=True)
        call((*SYSTEMCTL, "daemon-reload"))

    def enabled(self) -> bool:
        return is_usable((*SYSTEMCTL, "is-enabled", "--quiet", UNIT))

    def running(self) -> Running:
        shown = call((*SYSTEMCTL, "show", UNIT, "--property=ActiveState,SubState,MainPID,Result"))
        facts = dict(line.partition("=")[::2] for line in shown.splitlines())
        state = f"{facts.get('ActiveState', 'unknown')} ({facts.get('SubState', 'unknown')})"
        if facts.get("Result", "success") != "success":
            state += f", last ended with {facts['Result']}"
        return Running(state, int(facts.get("MainPID") or 0) or None)

"""The real daemon, with echo workers: ``python echo_daemon.py [--ready-fd N]``."""

from __future__ import annotations

import sys
from pathlib import Path

from localspec.daemon.__main__ import main

WORKER = (sys.executable, str(Path(__file__).with_name("echo_worker.py")))

if __name__ == "__main__":
    sys.exit(main(worker_command=WORKER))

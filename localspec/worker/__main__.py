"""``python -m localspec.worker --fd N``: started by the daemon with one end of a socket pair."""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import socket
import sys

from localspec.worker.channel import Channel
from localspec.worker.loop import serve

PR_SET_PDEATHSIG = 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="localspec.worker")
    parser.add_argument("--fd", type=int, required=True, help="inherited socket to the daemon")
    arguments = parser.parse_args()
    # Its stderr is the daemon's log.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with socket.socket(fileno=arguments.fd) as sock:
        if not serve(Channel(sock)):
            # A thread still tokenizes a text. An exit that waits for it lasts until the daemon kills this
            # process, and one that frees the vocabulary meanwhile crashes.
            logging.shutdown()
            os._exit(0)


if __name__ == "__main__":
    main()

"""The real daemon, with echo workers: ``python echo_daemon.py [--ready-fd N]``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from localspec.daemon.__main__ import main
from localspec.daemon.workers.pool import Program, choose_pair
from localspec.daemon.workers.worker import Key
from localspec.errors import LocalspecError
from localspec.models.model import Model
from localspec.models.pair import Drafter, Pair, Room
from localspec.protocol.messages import ModelDescription


def echo_pair(key: Key, model_dirs: tuple[str, ...], room: Room) -> Pair:
    """The pair that the daemon would choose, or a target where there is none, described by the request."""
    try:
        pair = choose_pair(key, model_dirs, room)
    except LocalspecError:
        pair = Pair(Model(Path(f"/nowhere/{key.model}"), "gguf", stamp=()), Drafter(), "")
    known = ModelDescription(
        id=key.model,
        path="",
        format=pair.target.format,
        backend="toy" if key.backend == "auto" else key.backend,
        size=0,
        names=(key.model,),
    )
    return replace(pair, target=replace(pair.target, known=known))


WORKER = Program((sys.executable, str(Path(__file__).with_name("echo_worker.py"))), echo_pair)

if __name__ == "__main__":
    sys.exit(main(worker=WORKER))

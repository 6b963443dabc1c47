"""One machine against two, whose network gets slower: measured, and as simulated from one alone.

    python -m assets.bench.ranks --model DIR --draft DIR [--added 0 0.5 5]

The second rank runs in a network namespace of this machine (Linux, as root), behind a relay that holds each
packet for half of the ``--added`` milliseconds, so that these are added there and back. ``localspec bench``
measures. Both ranks share the cores of this machine, and spin while they wait: two machines do not.

The simulation knows the costs on one machine, the link, the model's layers and features, and the answers with
what the draft model would have drafted. It gives the costs on two, and plays the answers at these.

    python -m assets.bench.ranks --other

simulates machines that are not here, by the recorded answers and the published costs of ``played.py``.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from assets.bench.played import ANSWERS, MACHINES, row
from assets.bench.record import drafted, log_of
from assets.bench.simulate import GREEDY, CostLine, Log, Play, read_logs, simulate
from localspec.bench.run import WIDTHS, answer, load_cases, rest
from localspec.config import change
from localspec.engine.load import load_engine, open_backend
from localspec.engine.round import LONGEST_K
from localspec.models.directory import ModelDirectory, number_of
from localspec.models.model import model_at
from localspec.models.pair import choose
from localspec.protocol.options import AUTO, Options
from localspec.protocol.requests import EngineConfig, TextPrompt
from localspec.ranks.peer import greet
from tests.far_ssh import write_ssh

HERE, THERE = "10.9.40.1", "10.9.40.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
WORKLOAD = "code"
"""cases of raw text, which answers of any model continue"""

# The network.


def tunnel(name: str, address: str) -> int:
    """Open a network device of this namespace, whose packets are read and written here."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    subprocess.run(["ip", "addr", "add", f"{address}/24", "dev", name], check=True)
    subprocess.run(["ip", "link", "set", name, "mtu", "9000", "up"], check=True)
    return device


def relay(process: int, held_s: float) -> None:
    """Carry packets between this namespace and that of a process, each after ``held_s``, for ever."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))  # the ranks spin on all cores
    near = tunnel("hcost0", HERE)
    with open(f"/proc/{process}/ns/net") as other:
        if ctypes.CDLL(None, use_errno=True).setns(other.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    far = tunnel("hcost1", THERE)
    held = deque[tuple[float, int, bytes]]()
    print("ready", flush=True)
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        for device in select.select([near, far], [], [], wait)[0]:
            packet = os.read(device, 1 << 16)
            held.append((time.monotonic() + held_s, far if device == near else near, packet))
        while held and held[0][0] <= time.monotonic():
            os.write(*held.popleft()[1:])


@contextmanager
def started(*command: str, until: str) -> Iterator[str]:
    """Run a command; yield its first line of output with the word ``until``, and end it at last."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(line for line in process.stdout if until in line)
        finally:
            process.kill()


@contextmanager
def node(added_ms: float) -> Iterator[None]:
    """The other end of a link with so much added latency, which ``ssh`` reaches by any name."""
    with started("unshare", "-n", "sh", "-c", "ip link set lo up; echo $$; exec sleep 600", until="") as line:
        process = line.strip()
        write_ssh(Path(os.environ["LOCALSPEC_HOME"]), process, HERE, THERE)
        carry = (sys.executable, "-m", "assets.bench.ranks", "--relay", process, str(added_ms / 2000))
        with started(*carry, until="ready"):
            yield


# The simulation.

MEMORY_RATE = 2e9
"""bytes per second between two namespaces of one machine"""


class Link(NamedTuple):
    """The seconds of a small frame to a node and back, and the bytes per second to it."""

    latency_s: float
    rate: float


class Shape(NamedTuple):
    """The number of a model's layers, which each sum twice, and of the features that are summed per token."""

    layers: int
    features: int

    def sums_s(self, link: Link, width: int) -> float:
        """The seconds that a forward of ``width`` tokens on two machines waits for its sums.

        Each machine sends one half of the numbers, of two bytes, and then the other.
        """
        return 4 * self.layers * (link.latency_s / 2 + width * self.features / link.rate)


def over(alone: Mapping[int, float], share: float, sums_s: Mapping[int, float]) -> dict[int, float]:
    """Seconds of a round on all machines by its width: this ``share`` of the seconds on one, and the sums."""
    return {width: share * seconds + sums_s[width] for width, seconds in alone.items()}


def played(logs: Sequence[Log], costs: Mapping[int, float], step_s: float) -> Play:
    """The answers at these costs, drafted by ``auto`` with a draft model of ``step_s`` a token."""
    cost, plays = CostLine(costs), list[Play]()
    for log in logs:
        plays += simulate([log], AUTO, k=LONGEST_K, cost=cost, draft_share=step_s / costs[1])
    return sum(plays, Play())


def share_of(directory: ModelDirectory, features: int, ranks: int) -> float:
    """The share of a model's work that is left to each rank: the layers are shared, the logits are not."""
    logits = directory.n_tokens * features / directory.parameters
    return logits + (1 - logits) / ranks


def recorded(model: str, draft: str, tokens: int) -> tuple[list[Log], float]:
    """The plain answers with their drafts, and the seconds of a draft model's step."""
    logs, config = list[Log](), EngineConfig(n_ctx=1024)
    pair = choose(model, draft, ())
    assert pair.draft is not None
    with load_engine(pair, config=config) as engine:
        rest(engine)
        plain = Options(proposer="none", temperature=0.0, max_tokens=tokens, remember=False)
        texts = [case.prompts[0] for case in load_cases((WORKLOAD,))]
        logs = [log_of(WORKLOAD, text, 0, answer(engine, TextPrompt(text), plain)[0]) for text in texts]
    backend = open_backend(pair.draft, config, drafts=True)
    logs = [drafted(backend, log, GREEDY) for log in logs]
    with load_engine(choose(draft, "none", ()), config=config) as engine:
        rest(engine)
        return logs, engine.learning.costs.seconds(1)


# The tables.


def measured(nodes: Sequence[str], given: argparse.Namespace) -> dict[str, Any]:
    """The results of ``localspec bench`` on this machine and these nodes."""
    change(("engine", "nodes"), nodes)
    pair = ("--model", given.model, "--draft", given.draft, "--workload", WORKLOAD)
    command = (sys.executable, "-m", "localspec", "bench", *pair, "--json")
    limits = ("--tokens", str(given.tokens), "--runs", "2")
    done = subprocess.run([*command, *limits], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def figures(results: Mapping[str, Any]) -> tuple[dict[int, float], float, float, float]:
    """Costs by width, and tokens a second, plain and of `auto`, and its draft tokens a round."""
    costs = {int(width): s for width, s in results["rounds_s"].items()}
    runs = results["runs"]
    plain, auto = (median(sum(run[kind]) / 2 for run in runs) for kind in ("plain", "speculative"))
    return costs, plain, auto, sum(run["drafted"] for run in runs) / sum(run["rounds"] for run in runs)


def line(*names: object, costs: Mapping[int, float], rates: Sequence[float]) -> str:
    """Milliseconds by width, then tokens a second and draft tokens a round."""
    rounds = (f"{1000 * costs[width]:.1f}" for width in WIDTHS)
    return row(*names, *rounds, f"{rates[0]:.1f}", f"{rates[1]:.1f}", f"{rates[2]:.1f}")


def simulated(logs: Sequence[Log], costs: Mapping[int, float], step_s: float) -> tuple[float, float, float]:
    """Tokens a second, plain and of `auto`, and its draft tokens a round."""
    found = played(logs, costs, step_s)
    return 1 / costs[1], (found.tokens - len(logs)) / found.seconds, found.drafted / found.rounds


def here(given: argparse.Namespace) -> None:
    directory = model_at(Path(given.model)).header
    assert isinstance(directory, ModelDirectory)
    shape = Shape(*(number_of(directory.config, key) or 0 for key in ("num_hidden_layers", "hidden_size")))
    logs, step_s = recorded(given.model, given.draft, given.tokens)
    print(row("machines", "added ms", "there and back", "", *WIDTHS, "plain", "auto", "drafts a round"))
    print(row(*["---"] * (len(WIDTHS) + 7)))
    for added in given.added:
        with node(added):
            with closing(greet(THERE)) as peer:
                link = Link(peer.measure_latency(), MEMORY_RATE)
            alone, *rates = figures(measured((), given))
            shared = measured((THERE,), given)
        print(line(1, "", "", "measured", costs=alone, rates=rates))
        print(line(1, "", "", "simulated", costs=alone, rates=simulated(logs, alone, step_s)))
        costs, *rates = figures(shared)
        took = f"{1000 * link.latency_s:.2f} ms"
        print(line(2, added, took, "measured", costs=costs, rates=rates))
        sums = {width: shape.sums_s(link, width) for width in WIDTHS}
        costs = over(alone, share_of(directory, shape.features, 2), sums)
        print(
            line(2, added, took, "simulated", costs=costs, rates=simulated(logs, costs, step_s)), flush=True
        )


OTHER = (
    ("7B of 4 bits, 20 ms a token", MACHINES[1].costs, Shape(28, 3584), 0.020),
    ("70B of 4 bits, 110 ms a token", MACHINES[3].costs, Shape(80, 8192), 0.110),
)
LINKS: tuple[tuple[str, Link | None], ...] = (
    ("one machine", None),
    ("Thunderbolt", Link(0.0001, 2e9)),
    ("wired, 1 Gbit/s", Link(0.0004, 110e6)),
    ("wireless", Link(0.004, 30e6)),
)
STEP = 0.1
"""the time of a draft model's step, as a share of a token's on one machine"""


def other() -> None:
    logs = [log for log in read_logs(ANSWERS) if log.workload in ("edit", "code", "chat")]
    print(row("model on one machine", "network", "plain", "auto", "drafts a round"))
    print(row(*["---"] * 5))
    for name, ratios, shape, token_s in OTHER:
        alone = {width: ratio * token_s for width, ratio in ratios.items()}

        def rates(link: Link | None) -> tuple[float, float, float]:
            sums = {width: shape.sums_s(link, width) if link else 0.0 for width in alone}  # noqa: B023
            return simulated(logs, over(alone, 0.5 if link else 1.0, sums), STEP * token_s)  # noqa: B023

        for network, link in LINKS:
            plain, auto, drafts = rates(link)
            print(row(name, network, f"{plain:.1f}", f"{auto:.1f}", f"{drafts:.1f}"), flush=True)
        even = (f"{1000 * break_even(rates, kind):.2f} ms" for kind in (0, 1))
        print(row(name, "as fast as one machine at", *even, ""), flush=True)


def break_even(rates: Callable[[Link | None], Sequence[float]], kind: int) -> float:
    """The latency, at 10 Gbit/s, with which two machines are as fast as one; ``kind``: 0 plain, 1 `auto`."""
    low, high, one = 0.0, 0.02, rates(None)[kind]
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if rates(Link(middle, 1.1e9))[kind] > one else (low, middle)
    return low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--draft")
    parser.add_argument("--added", type=float, nargs="+", default=[0.0, 0.5, 5.0])
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--other", action="store_true")
    parser.add_argument("--relay", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.relay:
        relay(int(given.relay[0]), float(given.relay[1]))
    elif given.other:
        other()
    else:
        with tempfile.TemporaryDirectory(prefix="localspec-ranks-") as home:
            os.environ |= {"LOCALSPEC_HOME": home, "PATH": f"{home}:{os.environ['PATH']}"}
            here(given)


if __name__ == "__main__":
    main()

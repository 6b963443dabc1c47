"""Facts in words, the same in a terminal's line and in the chat.

Bytes are in readable units: decimal, as disks and hubs count them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from localspec.protocol.messages import Pairing, Placement
from localspec.protocol.options import GRAMMAR
from localspec.protocol.requests import Result, Stats

KB, MB, GB = 10**3, 10**6, 10**9


def size(n_bytes: float) -> str:
    """``4.7 GB``, ``13.3 MB``, ``262.1 kB``."""
    for unit, name in ((GB, "GB"), (MB, "MB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:.1f} {name}"
    return f"{n_bytes / KB:.1f} kB"


CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""characters that control the terminal or change the order of those shown"""
BREAKS = re.compile(r"[\t\n\u2028\u2029]")
SHOWN_REASONS = 2
LOADING, WARMING = "loading ", "warming up "


def count_noun(number: int, thing: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def describe_shortening(result: Result) -> str:
    """A remark on an answer whose prompt did not fit the context; empty if it did."""
    n = result.stats.truncated_messages
    return f"the context is full: the prompt is without {count_noun(n, 'old message')}" if n else ""


def underway(what: str, fraction: float | None) -> tuple[str, float | None]:
    """Work and the share done; a model that is loaded in full does not answer yet: it is warming up."""
    if fraction is not None and fraction >= 1 and what.startswith(LOADING):
        return WARMING + what.removeprefix(LOADING), None
    return what, fraction


def printable(text: str) -> str:
    """``text`` with replacements for what cannot be encoded, such as bytes of a file name that are not text,
    and for control characters."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.encode(errors="replace").decode())


def one_line(text: str) -> str:
    """``text`` as :func:`printable` returns it, without line ends and tabs."""
    return BREAKS.sub("\N{REPLACEMENT CHARACTER}", printable(text))


def describe_missing_template(model: str) -> str:
    return f"{model} is a base model without a chat template: it continues the text, and answers no questions"


def stats_lines(result: Result, loaded_s: float = 0.0) -> str:
    """A request's statistics in two lines: tokens and times, and speculation; ``loaded_s``: seconds that it
    waited for its model."""
    stats = result.stats
    if result.text and not result.completion_tokens:
        return "answered from the cache of earlier completions"
    took = [f"{count_noun(result.completion_tokens, 'token')} ({result.finish_reason.replace('_', ' ')})"]
    if stats.decode_tokens_per_s:
        took.append(f"{stats.decode_tokens_per_s:.1f} tok/s")
    if stats.time_saved_s is not None and (stats.drafted or GRAMMAR.name in stats.proposers):
        how = "faster" if stats.time_saved_s >= 0 else "slower"
        took.append(f"{duration(abs(stats.time_saved_s))} {how} than without drafts")
    if loaded_s:
        took.append(f"model loaded in {duration(loaded_s)}")
    if stats.ttft_s is not None:
        took.append(f"first token after {duration(stats.ttft_s)}")
    return f"{' · '.join(took)}\n{' · '.join(_speculation(stats, result.completion_tokens))}"


def _speculation(stats: Stats, tokens: int) -> Iterator[str]:
    if stats.tokens_per_round is not None:
        yield f"{stats.tokens_per_round:.2f} tokens per round"
    drafts = {name: share for name, share in stats.proposers.items() if share.drafted}
    forced = drafts.pop(GRAMMAR.name, None)
    used = [f"{name} {share.accepted}/{share.drafted}" for name, share in drafts.items()]
    if forced is not None:
        yield f"{count_noun(forced.accepted, 'token')} forced by the grammar"
    if used:
        yield f"{' + '.join(used)} drafted tokens accepted ({stats.acceptance_rate or 0:.0%})"
    yield from _silence(stats)
    if stats.exactness == "exact":
        yield "exact"
    elif stats.exactness:
        yield f"near-ties possible in {stats.rounded_tokens} of {count_noun(tokens, 'token')}"


def _silence(stats: Stats) -> Iterator[str]:
    reasons = {why: n for why, n in stats.choices.items() if why not in stats.proposers}
    silent = sum(reasons.values())
    if not stats.drafted:
        why = stats.speculation_off_reason
        yield f"no speculation ({why})" if why else "no speculation"
    elif stats.speculation_off_reason:
        yield stats.speculation_off_reason
    elif silent * 2 > stats.rounds:
        most = sorted(reasons, key=lambda why: -reasons[why])[:SHOWN_REASONS]
        others = silent - sum(reasons[why] for why in most)
        causes = ", ".join(f"{why} ({reasons[why]})" for why in most) + f", other ({others})" * bool(others)
        yield f"no draft in {silent} of {stats.rounds} rounds: {causes}"


def pairing_sentence(pairing: Pairing) -> str:
    """The target, its draft model or proposer, and the reason of the pairing."""
    if pairing.proposer == "none":
        return f"{pairing.target} answers without drafts"
    if pairing.proposer != "auto":
        return f"{pairing.target} answers, {pairing.proposer} drafts"
    drafts = f", {pairing.draft} drafts" if pairing.draft else ""
    reason = f" ({pairing.reason})" if pairing.reason else ""
    return f"{pairing.target} answers{drafts}{reason}"


def describe_placement(placement: Placement) -> str:
    """``6 of 7 layers on NVIDIA H200``, ``all layers on NVIDIA H200, the experts of 3 on the CPU``."""
    number = "all" if placement.layers == placement.of else f"{placement.layers} of {placement.of}"
    experts = f", the experts of {placement.cpu_experts} on the CPU" if placement.cpu_experts else ""
    return f"{number} layers on {', '.join(dict.fromkeys(placement.devices))}{experts}"


def duration(seconds: float) -> str:
    """``80 ms``, ``1.2 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def describe_time(then: float, now: float) -> str:
    """A past time in words: ``5 min ago``, ``yesterday``, ``2026-05-17``; both in seconds since 1970."""
    past, today = now - then, datetime.fromtimestamp(now).date()
    day = datetime.fromtimestamp(then).date()
    if past < 60:
        return "just now"
    if past < 3600:
        return f"{int(past) // 60} min ago"
    if day == today:
        return f"{int(past) // 3600} h ago"
    return "yesterday" if day == today - timedelta(days=1) else day.isoformat()

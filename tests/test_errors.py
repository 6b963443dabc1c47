"""One tree of errors, the same in the documentation, on the wire and for the shell."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module

import pytest

from localspec import errors
from localspec.errors import ExitCode, LocalspecError, from_dict

DOCUMENTED = {
    *("not_initialized", "unauthorized", "version_skew", "model_not_found", "model_invalid"),
    *("model_ambiguous", "model_too_large", "tokenizer_mismatch", "fim_unsupported", "backend_unavailable"),
    *("engine_crashed", "engine_busy", "queue_full", "out_of_memory", "disk_full", "session_not_found"),
    *("too_many_files", "daemon_unavailable", "newer_format", "node_lost"),
    *("message_not_found", "gone", "memory_corrupt", "shutting_down", "service_unavailable"),
    *("internal", "invalid_options", "context_exceeded"),
    *("hub_unavailable", "hub_denied", "hub_busy", "download_broken", "not_pulled"),
}
EXITS = {
    "invalid_options": ExitCode.USAGE,
    "backend_unavailable": ExitCode.UNAVAILABLE,
    "daemon_unavailable": ExitCode.UNAVAILABLE,
    "shutting_down": ExitCode.UNAVAILABLE,
    "service_unavailable": ExitCode.UNAVAILABLE,
    "queue_full": ExitCode.BUSY,
    "engine_busy": ExitCode.BUSY,
    "hub_unavailable": ExitCode.UNAVAILABLE,
    "hub_busy": ExitCode.BUSY,
    "too_many_files": ExitCode.BUSY,
}


def family(root: type[LocalspecError]) -> list[type[LocalspecError]]:
    children = [kind for kind in root.__subclasses__() if kind.__module__ == errors.__name__]
    return [root, *(kind for child in children for kind in family(child))]


ALL = family(LocalspecError)


def test_every_code_is_documented_and_every_documented_code_exists() -> None:
    assert {kind.code for kind in ALL} == DOCUMENTED


def test_no_two_classes_have_one_code() -> None:
    import_module("localspec.http.app")  # has errors of its own
    kinds = [kind for kind in errors._tree(LocalspecError) if kind.__module__.startswith("localspec.")]
    codes = Counter(kind.code for kind in kinds if "code" in vars(kind))
    assert len(codes) > len(DOCUMENTED) and codes.most_common(1)[0][1] == 1, codes


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_has_a_remedy_and_an_exit_code_and_can_be_rebuilt(kind: type[LocalspecError]) -> None:
    assert re.fullmatch(r"[A-Z].{9,}\.", kind.default_remedy)
    assert kind("it happened").remedy == kind.default_remedy
    assert kind.exit_code == EXITS.get(kind.code, ExitCode.ERROR)
    rebuilt = from_dict(kind("it happened", "do this").as_dict())
    assert type(rebuilt) is (kind if "code" in vars(kind) else LocalspecError)
    assert (rebuilt.code, rebuilt.message, rebuilt.remedy) == (kind.code, "it happened", "do this")


def test_exit_codes_are_the_documented_numbers() -> None:
    numbers = dict(OK=0, ERROR=1, USAGE=2, UNAVAILABLE=69, BUSY=75, INTERRUPTED=130)
    assert {code.name: int(code) for code in ExitCode} == numbers


@pytest.mark.parametrize("data", [{}, {"code": "from_the_future"}])
def test_an_unknown_code_gives_the_root(data: dict[str, str]) -> None:
    rebuilt = from_dict(data)
    assert type(rebuilt) is LocalspecError
    assert rebuilt.message == "unknown error"
    assert rebuilt.remedy == LocalspecError.default_remedy

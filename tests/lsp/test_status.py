"""The status that the server reports."""

from __future__ import annotations

from localspec.errors import FimUnsupported
from localspec.lsp.status import CompletionStatus, StatusParams, Work
from localspec.protocol.messages import Completions, ModelProgress
from localspec.protocol.requests import Stats
from tests.toys import result_of


def answer(stats: Stats, source: str = "model") -> Completions:
    result = result_of(stats, model="big")
    return Completions((), stats, result, source)  # type: ignore[arg-type]


def status() -> tuple[CompletionStatus, list[StatusParams]]:
    reported: list[StatusParams] = []
    return CompletionStatus(reported.append, lambda title: Work(None, title)), reported


def test_it_is_busy_while_something_is_asked() -> None:
    now, reported = status()
    now.publish()
    now.begin()
    now.begin()
    now.end()
    now.end()
    assert [each.busy for each in reported] == [False, True, False]
    assert {each.message for each in reported} == {"ready"}


def test_the_model_its_drafts_and_the_time_that_was_saved() -> None:
    now, reported = status()
    now.count(answer(Stats(drafted=4, accepted=3)))
    now.publish()
    now.count(answer(Stats(drafted=4, accepted=3, time_saved_s=0.5)))
    now.count(answer(Stats(drafted=2, accepted=2, time_saved_s=1.0, speculation_off_reason="no draft")))
    now.count(answer(Stats(drafted=9, accepted=9), "cache"))
    now.publish()
    now.count(answer(Stats(time_saved_s=-2.0)))
    now.publish()
    assert [each.message for each in reported] == [
        "big · 75% of drafts accepted",
        "big · 80% of drafts accepted · 1.5 s saved · no draft",
        "big · 80% of drafts accepted · 500 ms lost",
    ]


def test_errors_and_off() -> None:
    now, reported = status()
    now.error = FimUnsupported("it cannot")
    now.publish()
    now.publish()
    now.enabled = False
    now.publish()
    assert [(each.kind, each.message) for each in reported] == [
        ("Error", f"it cannot. {FimUnsupported.default_remedy}"),
        ("Inactive", "off"),
    ]
    now.enabled = True
    now.count(answer(Stats()))
    now.publish()
    assert reported[-1].kind == "Normal"


def test_loading() -> None:
    now, reported = status()
    now.begin()
    now.see_load(ModelProgress("big", "weights", 0.5))
    now.end()
    messages = [(each.busy, each.message) for each in reported]
    assert messages == [(True, "ready"), (True, "loading big 50%"), (False, "ready")]

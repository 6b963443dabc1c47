"""The document: written and read, and the figures that follow from its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.bench.contestant import chosen, own_contestants
from localspec.bench.figures import figures_of, noise_of, notices_of, request_speeds, warning_of
from localspec.bench.machine import machine_facts, peak_memory
from localspec.bench.results import (
    CONTROL,
    PLAIN,
    Ceiling,
    Contestant,
    Figure,
    Results,
    Run,
    write_whole,
)
from localspec.errors import InvalidOptions, LocalspecError
from tests.bench.documents import concluded, document, run

# The file.


def test_a_document_survives_its_json() -> None:
    results = document([run(decode_s=2.0)])
    assert msgspec.json.decode(msgspec.json.encode(results), type=Results) == results


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(LocalspecError, match="cannot be written"):
        write_whole(tmp_path / "no" / "such" / "folder", "text")


def test_this_machine_is_described() -> None:
    facts = machine_facts(3)
    assert facts.cpu
    assert facts.cores >= 1
    assert facts.threads == 3
    assert {"localspec", "python", "llama-cpp-python"} <= facts.versions.keys()
    assert peak_memory() > 1_000_000


# Figures.


def figure(results: Results, contestant: str, workload: str = "edit-short") -> Figure:
    (found,) = (f for f in figures_of(results) if (f.contestant, f.workload) == (contestant, workload))
    return found


def test_speed_compares_with_plain_of_the_same_repeat() -> None:
    """The machine was twice as slow in the second repeat: the ratio does not show it."""
    runs = [
        *(run(PLAIN, repeat=0, decode_s=1.0), run("auto", repeat=0, decode_s=0.5)),
        *(run(PLAIN, repeat=1, decode_s=2.0), run("auto", repeat=1, decode_s=1.0)),
    ]
    assert figure(document(runs), "auto").repeats == [2.0, 2.0]
    assert figure(document(runs), "auto").speed == 2.0
    assert figure(document(runs), PLAIN).speed == 1.0


def test_speed_is_the_median_of_the_repeats() -> None:
    runs = [run(PLAIN, repeat=i, decode_s=1.0) for i in range(3)]
    runs += [run("auto", repeat=i, decode_s=s) for i, s in enumerate((0.5, 0.8, 10.0))]
    assert figure(document(runs), "auto").speed == pytest.approx(1.25)


def test_speed_weighs_tokens_not_requests() -> None:
    runs = [
        *(run(PLAIN, case="a", tokens=101, decode_s=10.0), run("auto", case="a", tokens=101, decode_s=5.0)),
        *(run(PLAIN, case="b", tokens=11, decode_s=1.0), run("auto", case="b", tokens=11, decode_s=1.0)),
    ]
    assert figure(document(runs), "auto").speed == pytest.approx(11 / 6)


def test_answers_of_different_lengths_are_compared_by_rate() -> None:
    runs = [run(PLAIN, tokens=101, decode_s=10.0), run("auto", tokens=51, decode_s=2.5)]
    assert figure(document(runs), "auto").speed == pytest.approx(2.0)


def test_worst_and_best_are_of_requests_that_are_long_enough() -> None:
    runs = []
    for case, tokens, seconds in (("short", 10, 9.0), ("slow", 101, 2.0), ("fast", 101, 0.5)):
        runs += [run(PLAIN, case=case, tokens=tokens, decode_s=1.0)]
        runs += [run("auto", case=case, tokens=tokens, decode_s=seconds)]
    found = figure(document(runs), "auto")
    assert (found.low, found.high) == (0.5, 2.0)


def test_a_request_counts_with_the_median_of_its_repeats() -> None:
    plain = [run(PLAIN, repeat=i, decode_s=1.0) for i in range(3)]
    ours = [run("auto", repeat=i, decode_s=s) for i, s in enumerate((1.0, 0.5, 0.25))]
    assert list(request_speeds(ours, plain).values()) == [2.0]


def test_acceptance_is_weighted_by_tokens() -> None:
    runs = [
        *(run(PLAIN, case="a"), run(PLAIN, case="b")),
        run("auto", case="a", drafted=90, accepted=90),
        run("auto", case="b", drafted=10, accepted=0),
    ]
    assert figure(document(runs), "auto").acceptance == 0.9
    assert figure(document(runs), PLAIN).acceptance is None


def test_tokens_per_round_are_weighted_by_rounds() -> None:
    runs = [
        *(run(PLAIN, case="a"), run(PLAIN, case="b")),
        run("auto", case="a", rounds=30, tokens_per_round=1.0),
        run("auto", case="b", rounds=10, tokens_per_round=3.0),
    ]
    assert figure(document(runs), "auto").tokens_per_round == 1.5


def test_a_share_of_an_oracle_is_a_share_of_its_speed() -> None:
    ceiling = Ceiling("edit-short", "case", 0, None, 101, plain_s=4.0, router_s=1.0, truth_s=0.5)
    results = document([run(PLAIN, decode_s=1.0), run("auto", decode_s=0.5)], ceilings=[ceiling])
    found = figure(results, "auto")
    assert (found.router_share, found.truth_share) == (0.5, 0.25)


def test_requests_are_compared_with_the_same_ones_only() -> None:
    """Not all contestants played the slow one of two: a failure of one, in any repeat, does not matter."""
    runs = [run(PLAIN, case=case, decode_s=s) for case, s in (("fast", 1.0), ("slow", 10.0))]
    runs += [run(PLAIN, repeat=1, case="slow", decode_s=10.0)]
    runs += [run("auto", case="fast", decode_s=0.5), run("auto", repeat=1, case="fast", decode_s=0.1)]
    found = figure(document(runs), "auto")
    assert (found.speed, found.repeats) == (2.0, [2.0])
    assert not [f for f in figures_of(document([*runs, run("late", repeat=7)])) if f.contestant == "late"]


def test_an_oracle_is_asked_what_the_repeat_was_asked() -> None:
    ceilings = [
        Ceiling("edit-short", case, 0, None, 101, plain_s=4.0, router_s=seconds, truth_s=seconds / 2)
        for case, seconds in (("easy", 1.0), ("hard", 4.0))
    ]
    runs = []
    for repeat, cases in enumerate((["easy"], ["hard"])):
        runs += [run(PLAIN, case=case, repeat=repeat) for case in cases]
        runs += [run("auto", case=case, repeat=repeat, decode_s=0.5) for case in cases]
    found = figure(document(runs, ceilings=ceilings), "auto")
    # Twice as fast, where the router is 4 times as fast, and then no faster than plain decoding.
    assert found.router_share == pytest.approx((2 / 4 + 2 / 1) / 2)
    assert found.truth_share == pytest.approx((2 / 8 + 2 / 2) / 2)


def repeats_of(*repeats: dict[str, float]) -> list[Run]:
    """Per repeat the seconds of ``auto`` by case, where plain decoding takes one."""
    runs = []
    for repeat, seconds in enumerate(repeats):
        runs += [run(PLAIN, case=case, repeat=repeat) for case in seconds]
        runs += [
            run("auto", case=case, repeat=repeat, decode_s=s, time_saved_s=1 - s)
            for case, s in seconds.items()
        ]
    return runs


def test_a_repeat_that_was_cut_off_has_no_part_in_medians() -> None:
    """The last one holds only the case that speculation is good at."""
    whole = {"easy": 0.25, "hard": 1.0}
    results = document(repeats_of(whole, whole, {"easy": 0.25}))
    found = figure(results, "auto")
    assert (found.speed, found.repeats, found.requests) == (1.6, [1.6, 1.6], 2)
    assert found.time_saved_s == 0.75
    (interrupted,) = (f for f in figures_of(results) if f.contestant == PLAIN)
    assert interrupted.repeats == [1.0, 1.0]


def test_a_request_of_a_repeat_that_was_cut_off_counts_for_itself() -> None:
    runs = repeats_of({"easy": 0.5, "hard": 1.0}, {"easy": 0.25})
    runs[-1].text_hash = "another"
    found = figure(document(runs), "auto")
    assert found.high == 3.0  # the median of twice and four times
    assert found.diverged == 1


def test_where_no_repeat_is_whole_all_count() -> None:
    found = figure(document(repeats_of({"easy": 0.25}, {"hard": 1.0})), "auto")
    assert (found.repeats, found.requests) == ([4.0, 1.0], 2)


def test_what_is_missing_is_told() -> None:
    assert notices_of(document([])) == []
    results = document([], stopped="ended by an error (no space left)", left_out=["chat / a", "chat / b"])
    results.failures["llama-server plain"] = "it does not answer"
    assert notices_of(results) == [
        "This run was ended by an error (no space left); the missing figures were not measured.",
        "llama-server plain failed and was not measured any further: it does not answer",
        "There was no time for chat / a, chat / b.",
    ]


def test_the_router_may_use_the_contestants_own_draft_model() -> None:
    def ceiling(label: str, seconds: float) -> Ceiling:
        return Ceiling("edit-short", "case", 0, label, 101, plain_s=4.0, router_s=seconds, truth_s=0.5)

    ceilings = [ceiling("draft 0.1", 1.0), ceiling("draft 0.3", 2.0)]
    runs = [run(PLAIN), *(run(name, decode_s=0.5) for name in ("auto", "auto, draft 0.3"))]
    results = document(runs, ceilings=ceilings, contestants=own_contestants(["draft 0.1", "draft 0.3"]))
    assert figure(results, "auto").router_share == 0.5
    assert figure(results, "auto, draft 0.3").router_share == 1.0


def test_another_greedy_text_is_a_divergence_once_per_request() -> None:
    runs = [run(PLAIN, repeat=i, text_hash="a") for i in range(2)]
    runs += [run("auto", repeat=i, text_hash="b") for i in range(2)]
    runs += [run("draft", repeat=i, text_hash="a") for i in range(2)]
    runs += [run("memory", text_hash="c", exact=False)]
    found = {f.contestant: f.diverged for f in figures_of(document(runs))}
    assert found == {PLAIN: 0, "auto": 1, "draft": 0, "memory": 0}


def test_without_plain_decoding_nothing_is_compared() -> None:
    assert figures_of(document([run("auto")])) == []


def test_an_answer_of_one_token_has_no_speed() -> None:
    runs = [run(PLAIN, tokens=1, decode_s=0.0), run("auto", tokens=1, decode_s=0.0)]
    assert runs[0].tokens_per_s is None
    assert figure(document(runs), "auto").speed == 1.0


@pytest.mark.parametrize(("control", "busy"), [(1.0, False), (1.04, False), (1.2, True), (0.9, True)])
def test_a_busy_machine_is_warned_of(control: float, busy: bool) -> None:
    results = concluded(document([run(PLAIN), run(CONTROL, decode_s=1 / control)]))
    assert noise_of(results) == pytest.approx(abs(control - 1))
    assert bool(warning_of(results)) is busy


def test_without_a_control_nothing_is_known_of_noise() -> None:
    results = concluded(document([run(PLAIN)]))
    assert noise_of(results) is None
    assert warning_of(results) == ""


# Contestants.


def names(contestants: list[Contestant]) -> list[str]:
    return [contestant.name for contestant in contestants]


def test_every_draft_model_takes_part() -> None:
    assert names(own_contestants([])) == [PLAIN, CONTROL, "auto", "prompt-lookup", "memory"]
    two = own_contestants(["draft 0.1", "draft 0.3"])
    assert names(two)[-3:] == ["draft", "auto, draft 0.3", "draft, draft 0.3"]
    assert {c.name: c.draft for c in two}["auto"] == "draft 0.1"


def test_plain_takes_part_whoever_is_chosen() -> None:
    assert names(chosen(own_contestants(["draft"]), ["memory"])) == [PLAIN, CONTROL, "memory"]


def test_a_contestant_that_nobody_knows() -> None:
    with pytest.raises(InvalidOptions, match="did you mean 'prompt-lookup'"):
        chosen(own_contestants([]), ["prompt-lokup"])


def test_names_with_commas_are_told_apart() -> None:
    with pytest.raises(InvalidOptions) as caught:
        chosen(own_contestants(["draft 0.1", "draft 0.3"]), ["nope"])
    assert caught.value.remedy.startswith("Choose among: 'auto', 'auto, draft 0.3', 'draft', ")


def test_a_run_survives_its_json() -> None:
    original = run("auto", survival={"memory": [[4, 3], [3, 1]]}, sources={"memory": 4})
    raw: Any = msgspec.json.encode(original)
    assert msgspec.json.decode(raw, type=Run) == original

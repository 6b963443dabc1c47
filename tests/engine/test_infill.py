"""The context of a gap in its prompt, which stays the same from keystroke to keystroke."""

from __future__ import annotations

from functools import partial

from localspec.completion.context import (
    CUT,
    MOST_AFTER,
    MOST_BEFORE,
    Steady,
    fewer_before,
    lines_after,
    lines_before,
    repository,
    shown_path,
    worth_telling,
)
from localspec.engine.fim import SUFFIX_SIZES
from localspec.engine.prompt import PromptEncoder
from localspec.protocol.requests import File, FimPrompt
from localspec.speculation.costs import CostCurve
from tests.engine.test_fim import QWEN, Named

PSM = Named(*QWEN[:3])
SPM = Named("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", first=3)


def lines(first: int, last: int) -> str:
    return "".join(f"line {n}\n" for n in range(first, last))


def parts(vocabulary: Named, tokens: list[int]) -> tuple[str, str]:
    """(prefix, suffix) of a prompt."""
    text = vocabulary.spelt(tokens)
    found = {}
    for name, end in (("prefix", "<|fim_"), ("suffix", "<|fim_")):
        found[name] = text.partition(f"<|fim_{name}|>")[2].partition(end)[0]
    return found["prefix"], found["suffix"]


class TestLines:
    def test_a_short_file_is_in_the_prompt_whole(self) -> None:
        assert lines_before(lines(0, 256) + "x") == lines(0, 256) + "x"
        assert lines_after("x\n" + lines(0, 60)) == "x\n" + lines(0, 60)

    def test_the_window_begins_at_multiples_of_64_lines(self) -> None:
        for count, first in ((257, 64), (320, 64), (321, 128), (1000, 768)):
            assert lines_before(lines(0, count) + "x") == lines(first, count) + "x"

    def test_64_lines_after_the_cursor(self) -> None:
        assert lines_after(lines(0, 100)) == lines(0, 64)

    def test_of_a_file_that_is_one_line_no_more_is_looked_at_than_matters(self) -> None:
        line = "function(a,b){return a+b};" * 40_000
        windows = [lines_before(line[:-n]) for n in range(1000, 0, -100)]
        assert all(MOST_BEFORE - CUT <= len(window) <= MOST_BEFORE for window in windows)
        assert len({window[:100] for window in windows}) == 1
        assert len(lines_after(line)) == MOST_AFTER
        (file,) = worth_telling([File("min.js", line)], "", "")
        assert len(file.text) == MOST_AFTER

    def test_fewer_lines_in_steps(self) -> None:
        window = lines(0, 130) + "x"
        assert fewer_before(window) == lines(64, 130) + "x"
        assert fewer_before(fewer_before(window)) == lines(128, 130) + "x"
        assert fewer_before("x") == "x"


class TestBudget:
    def test_a_budget_that_is_too_small_drops_far_lines_in_steps(self) -> None:
        encoder = PromptEncoder(PSM, 1500)
        noted = []
        for typed in ("", "a", "ab", "abc"):
            tokens = encoder.encode(FimPrompt(lines(0, 200) + typed, ""), 100).tokens
            noted.append(parts(PSM, tokens)[0])
        assert all(each.startswith("line 64\n") for each in noted) and noted[-1].endswith("line 199\nabc")

    def test_a_long_line_is_cut_in_steps_of_tokens(self) -> None:
        encoder = PromptEncoder(PSM, 8192)
        starts = set()
        for typed in range(32):
            text = "".join(f"{n:07} " for n in range(2000)) + "x" * typed
            starts.add(parts(PSM, encoder.encode(FimPrompt(text, ""), 100).tokens)[0][:8])
        assert len(starts) <= 2

    def test_where_the_suffix_comes_first_typing_only_adds_tokens(self) -> None:
        encoder = PromptEncoder(SPM, 4096)
        before = encoder.encode(FimPrompt("def f", lines(0, 64), tidy=True), 64).tokens
        after = encoder.encode(FimPrompt("def foo", lines(0, 64), tidy=True), 64).tokens
        assert after[: len(before) - 1] == before[:-1] and len(after) == len(before) + 2

    def test_where_it_is_read_again_it_is_kept_to_what_is_read_in_50_ms(self) -> None:
        gap = FimPrompt("def f", lines(0, 64), tidy=True)
        for seconds, tokens in ((1e-3, 32), (5e-4, 64), (2e-4, 128), (1.0, 32)):
            encoder = PromptEncoder(PSM, 4096, prefill_s=partial(float, seconds))
            assert len(parts(PSM, encoder.encode(gap, 64).tokens)[1]) == tokens
        raw, encoder = FimPrompt("def f", lines(0, 64)), PromptEncoder(PSM, 4096, prefill_s=lambda: 1.0)
        assert len(parts(PSM, encoder.encode(raw, 64).tokens)[1]) > 400

    def test_a_noisy_clock_does_not_move_the_window(self) -> None:
        steady = Steady(SUFFIX_SIZES)
        assert [steady.at_most(wanted) for wanted in (140, 120, 100, 200, 300)] == [128] * 5
        assert steady.at_most(90) == 64 and steady.at_most(70) == 64
        assert steady.at_most(1e9) == SUFFIX_SIZES[-1] and steady.at_most(0) == SUFFIX_SIZES[0]

    def test_the_engine_knows_what_reading_a_token_takes(self) -> None:
        costs = CostCurve("llama_cpp Q8_0")
        assert costs.prefill_s() > 0
        for _ in range(5):
            costs.observe(1, 0, 0.01)
        narrow = costs.prefill_s()
        assert 0.0001 < narrow < 0.01
        costs.observe(256, 0, 256 * 0.00005)
        assert costs.prefill_s() == 0.00005


class TestOtherFiles:
    def test_the_most_important_is_nearest_and_the_least_is_dropped_first(self) -> None:
        extra = tuple(File(f"{n}.py", f"{n} = {n}\n" * 20) for n in range(8))
        noted = PSM.spelt(PromptEncoder(PSM, 900).encode(FimPrompt("p", "s", extra=extra), 64).tokens)
        assert noted.index("# 1.py") < noted.index("# 0.py") < noted.index("p<|fim_suffix|>")
        assert "# 7.py" not in noted and "# 2.py" in noted

    def test_pieces_that_do_not_fit_any_more_go_in_large_steps(self) -> None:
        texts = [File(f"{n}.py", f"{n} = {n}\n" * 20) for n in range(40)]
        for room, seconds in ((1200, 1e-4), (8192, 8 / 1100)):
            encoder = PromptEncoder(PSM, room, prefill_s=partial(float, seconds))
            begins = []
            for n in range(1, 40):
                gap = FimPrompt("p", "s", extra=tuple(reversed(texts[max(0, n - 16) : n])), tidy=True)
                noted = PSM.spelt(encoder.encode(gap, 64).tokens)
                assert f"# {n - 1}.py" in noted
                begins.append(noted.partition(".py")[0])
            changes = sum(one != other for one, other in zip(begins, begins[1:], strict=False))
            assert 5 < changes < 15

    def test_other_files_give_way_to_the_file_itself(self) -> None:
        gap = FimPrompt(lines(0, 60), lines(60, 80), extra=(File("x.py", "x\n" * 90),))
        noted = PSM.spelt(PromptEncoder(PSM, 800).encode(gap, 64).tokens)
        assert "line 0\n" in noted and "line 79" in noted and "x.py" not in noted

    def test_a_piece_like_a_more_important_one_is_dropped(self) -> None:
        same = "".join(f"value_{n} = {n}\n" for n in range(40))
        extra = (File("a.py", same), File("b.py", same + "more = 1\n"), File("c.py", "other = 2\n"))
        assert [file.path for file in worth_telling(extra, "", "")] == ["a.py", "c.py"]

    def test_a_piece_of_what_is_at_the_cursor_is_dropped(self) -> None:
        here, there = lines(0, 40), lines(100, 140)
        extra = (File("same.py", here), File("far.py", there), File("empty.py", " \n"))
        half = len(here) // 2
        assert [file.path for file in worth_telling(extra, here[:half], here[half:])] == ["far.py"]

    def test_at_most_16_pieces_of_64_lines(self) -> None:
        extra = tuple(File(f"{n}.py", lines(n * 1000, n * 1000 + 100)) for n in range(20))
        noted = worth_telling(extra, "", "")
        assert len(noted) == 16 and noted[3].text == lines(3000, 3064)


def test_paths_are_those_within_the_repository() -> None:
    assert shown_path("/w/repo/a/b.py", "/w/repo") == "a/b.py"
    assert shown_path("/w/other/b.py", "/w/repo") == shown_path("/w/other/b.py", None) == "b.py"
    assert shown_path("a/b.py", "/w/repo") == "a/b.py" and shown_path(None, None) == "untitled"
    assert repository("/w/repo/") == "repo" and repository(None) == "project"

"""The one JSON object that `run --json` and the wire's answers are."""

from __future__ import annotations

import json

import msgspec

from localspec.protocol.requests import ProposerStats, Result, Stats, Token

DOCUMENTED = """
{
  "text": "def é",
  "finish_reason": "stop",
  "model": "stdlib-6m",
  "draft": "stdlib-1m",
  "backend": "llama_cpp",
  "prompt_tokens": 5,
  "cached_tokens": 4,
  "completion_tokens": 9,
  "stats": {
    "rounds": 3,
    "drafted": 8,
    "accepted": 6,
    "acceptance_rate": 0.75,
    "tokens_per_round": 3.0,
    "proposers": {"draft": {"drafted": 8, "accepted": 6, "seconds": 0.25}},
    "k_histogram": {"0": 1, "4": 2},
    "exactness": "near-ties",
    "rounded_tokens": 7,
    "truncated_messages": 2,
    "untemplated": false,
    "speculation_off_reason": null,
    "choices": {"draft": 2, "no draft found": 1},
    "time_saved_s": 1.5,
    "queued_s": 0.0625,
    "ttft_s": 0.5,
    "decode_tokens_per_s": 20.0
  }
}
"""


RESULT = msgspec.json.decode(DOCUMENTED, type=Result)


def test_a_result_is_the_documented_object_in_its_order() -> None:
    documented = json.loads(DOCUMENTED)
    assert json.dumps(json.loads(msgspec.json.encode(RESULT))) == json.dumps(documented)
    assert set(documented["stats"]) == set(Stats.__struct_fields__)
    assert (RESULT.text, RESULT.stats.k_histogram) == ("def é", {0: 1, 4: 2})
    assert RESULT.stats.proposers == {"draft": ProposerStats(drafted=8, accepted=6, seconds=0.25)}


def test_what_is_unknown_is_null_and_not_left_out() -> None:
    sent = msgspec.to_builtins(Stats())
    assert set(sent) == set(Stats.__struct_fields__)
    unknown = {name for name, value in sent.items() if value is None}
    assert unknown == {
        *("acceptance_rate", "tokens_per_round", "exactness"),
        *("speculation_off_reason", "time_saved_s", "ttft_s", "decode_tokens_per_s"),
    }


def test_a_token_has_a_logprob_only_if_asked_for() -> None:
    assert msgspec.to_builtins(Token(7, "target", 1)) == {"id": 7, "source": "target", "chars": 1}
    assert msgspec.to_builtins(Token(7, "draft", 0, -0.5)) == {
        "id": 7,
        "source": "draft",
        "chars": 0,
        "logprob": -0.5,
    }

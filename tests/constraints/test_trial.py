"""Trials of grammars that the library alone would not survive."""

from __future__ import annotations

import json

import pytest

from localspec.child import Child
from localspec.constraints import trial
from tests.toy import ToyVocabulary

CHAIN = "\n".join(f'r{i}: "w{i}" r{(i + 1) % 5000}' for i in range(5000))
COMMON = " & ".join(f"/(.|\\n)*w{i}(.|\\n)*/" for i in range(100))
MULTIPLES = {"allOf": [{"type": "integer", "multipleOf": n} for n in (9973, 9974, 9975)]}
HOSTILE = {
    "a chain of rules that uses up the stack": f"start: r0\n{CHAIN}",
    "the common part of many expressions": f"start: T\nT: {COMMON}",
    "multiples of several numbers": f"start: %json {json.dumps(MULTIPLES)}",
    "10,000 properties": f"start: %json {json.dumps({'properties': {f'n{i}': {} for i in range(10_000)}})}",
}
SMALL = 'start: "a" <[256]> <|im_end|>'


class Named(ToyVocabulary):
    def text_of(self, token: int) -> bytes:
        return b"<|im_end|>" if token in self.special_tokens else super().text_of(token)


@pytest.mark.parametrize("grammar", HOSTILE.values(), ids=HOSTILE)
def test_a_grammar_that_takes_too_much_ends_its_trial_alone(grammar: str) -> None:
    child, tokens = Child(trial.__name__), trial.name_tokens(Named())
    assert child.do((tokens, grammar, 0.2)) is None
    assert child.do((tokens, SMALL, 5.0)) == child.do((tokens, "start: foo", 5.0)) == b""
    child.close()

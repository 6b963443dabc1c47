"""mlx-lm itself: its plain generation, and its speculation with a draft model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import mlx.core as mx

from localspec.backends.mlx import native
from localspec.backends.mlx.lm import generate_step, make_prompt_cache, speculative_generate_step
from localspec.backends.mlx.vocabulary import MlxVocabulary
from localspec.bench.references.answer import Answer, Question, timed
from localspec.models.directory import read_directory
from localspec.protocol.engine_config import EngineConfig

DEFAULT_TOKENS = 2
"""``num_draft_tokens`` as the library sets it; its server's is 3"""


class MlxLm:
    """See :class:`.answer.Reference`. With ``draft`` it speculates, ``k`` tokens a round.

    Prompt chunks are those of localspec's backend. A draft is verified by comparing it with the target's
    own choices, without a check of near-ties; models whose cache cannot be trimmed are refused. Samples come
    from MLX's own generator. Raises what :class:`MlxBackend` does.
    """

    def __init__(
        self,
        path: Path,
        config: EngineConfig | None = None,
        *,
        draft: Path | None = None,
        k: int = DEFAULT_TOKENS,
    ) -> None:
        self.name = "mlx-lm" if draft is None else f"mlx-lm draft k={k}"
        self._chunk, self._k = (config or EngineConfig()).prefill_chunk, k
        directory = read_directory(path)
        self._model = native.load_model(directory)
        self._draft = None if draft is None else native.load_model(read_directory(draft))
        size = self._model(mx.array([[0]]), cache=make_prompt_cache(self._model)).shape[-1]
        self._vocabulary = MlxVocabulary(directory, size)
        self._accepted = self._rounds = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fresh(self) -> None:
        """Do nothing: every answer has a cache of its own."""

    def answer(self, question: Question) -> Answer:
        self._accepted = self._rounds = 0
        mx.random.seed(question.seed)
        answer = timed(self._tokens(question), question, self._vocabulary)
        # Only the last round may have drafted less.
        return answer._replace(drafted=self._rounds * self._k, accepted=self._accepted)

    def _tokens(self, question: Question) -> Iterator[int]:
        """The answer's tokens and one more, as both generators end at their own limit."""
        prompt, sampler = mx.array(list(question.tokens)), _sampler(question.temperature)
        common: dict[str, Any] = {"prefill_step_size": self._chunk, "sampler": sampler}
        most = question.max_tokens + 1
        if self._draft is None:
            for token, _ in generate_step(prompt, self._model, max_tokens=most, **common):
                yield int(token)
            return
        begins = True
        for token, _, drafted in speculative_generate_step(
            prompt, self._model, self._draft, num_draft_tokens=self._k, max_tokens=most, **common
        ):
            self._accepted += bool(drafted)
            self._rounds += begins
            begins = not drafted  # a round ends with a token of the target's own
            yield int(token)

    def close(self) -> None:
        self._model = self._draft = None
        mx.clear_cache()


def _sampler(temperature: float) -> Any:
    """A sampler of the whole distribution, from log probabilities; None: the most probable token."""
    if not temperature:
        return None
    return lambda logprobs: mx.random.categorical(logprobs / temperature)

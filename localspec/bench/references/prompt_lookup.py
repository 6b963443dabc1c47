"""llama-cpp-python's prompt lookup: ``Llama(draft_model=LlamaPromptLookupDecoding(…))``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary
from localspec.bench.references.answer import Answer, Question, timed
from localspec.bench.references.sizes import Sizes, sizes_of
from localspec.protocol.engine_config import EngineConfig

DEFAULT_TOKENS, DEFAULT_NGRAM = 10, 2
"""``num_pred_tokens`` and ``max_ngram_size`` as the library sets them; it advises 2 tokens on a CPU"""


class LlamaPromptLookup:
    """See :class:`.answer.Reference`; ``k`` is ``num_pred_tokens``, ``ngram`` is ``max_ngram_size``.

    A draft is verified by comparing it with the target's own choices. ``logits_all=True``, without
    which the library fails as soon as prompt and output pass 512 tokens, makes it keep every row:
    n_ctx x vocabulary x 4 bytes. Drafts are cut by nothing but the context, so the last one may reach
    past ``max_tokens``. Its wide forwards round differently from 1-wide ones, without a check: at
    a near-tie its greedy text may differ from plain decoding.
    """

    def __init__(
        self,
        path: Path,
        config: EngineConfig | None = None,
        *,
        k: int = DEFAULT_TOKENS,
        ngram: int = DEFAULT_NGRAM,
    ) -> None:
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        self.name = f"llama-cpp-python lookup n={ngram} k={k}"
        self._drafter = _Counting(LlamaPromptLookupDecoding(max_ngram_size=ngram, num_pred_tokens=k))
        self._llama = _open(path, sizes_of(path, config or EngineConfig()), self._drafter)
        self._vocabulary = LlamaVocabulary(self._llama.model)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fresh(self) -> None:
        """Do nothing: :meth:`answer` resets the context."""

    def answer(self, question: Question) -> Answer:
        self._llama.reset()
        self._llama.set_seed(question.seed % 2**32)
        self._drafter.rounds = self._drafter.drafted = 0
        answer = timed(self._tokens(question), question, self._vocabulary)
        # An answer below the limit was ended by a token, which was drafted or decoded as well.
        emitted = len(answer.tokens) + (len(answer.tokens) < question.max_tokens)
        # The first token is the prompt's, and every round gives one that was not drafted.
        accepted = max(emitted - 1 - self._drafter.rounds, 0)
        return answer._replace(drafted=self._drafter.drafted, accepted=accepted)

    def _tokens(self, question: Question) -> Any:
        """The library's endless stream of tokens, from the whole distribution."""
        return self._llama.generate(
            list(question.tokens), temp=question.temperature, top_k=0, top_p=1.0, min_p=0.0
        )

    def close(self) -> None:
        self._llama.close()


def _open(path: Path, sizes: Sizes, drafter: Any) -> Any:
    """The library's own model."""
    import llama_cpp

    return llama_cpp.Llama(
        str(path),
        n_ctx=sizes.n_ctx,
        n_threads=sizes.threads,
        n_threads_batch=sizes.threads,
        n_gpu_layers=sizes.gpu_layers,
        # As in localspec's backend and llama-server; this library's own default is off.
        flash_attn=True,
        logits_all=True,
        draft_model=drafter,
        verbose=False,
    )


class _Counting:
    """A draft model of llama-cpp-python's kind that counts what it offers."""

    def __init__(self, drafter: Any) -> None:
        self._drafter = drafter
        self.rounds = self.drafted = 0

    def __call__(self, tokens: Any, /, **options: Any) -> Any:
        draft = self._drafter(tokens, **options)
        self.rounds += 1
        self.drafted += len(draft)
        return draft

"""Plain llama.cpp: its low-level calls in the smallest loop, to compare localspec's rounds with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import llama_cpp.llama_cpp as lib
import numpy as np

from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary
from localspec.bench.references.answer import Answer, Question, timed
from localspec.errors import EngineError
from localspec.models.gguf import read_header
from localspec.protocol.engine_config import EngineConfig


class RawLoop:
    """See :class:`.answer.Reference`. Context, threads and prompt chunks are those of localspec's
    backend.

    Greedy answers are bit for bit those of its plain decoding: the same forwards, one token each.
    Samples are drawn by llama.cpp's own chain. Raises what :class:`LlamaCppBackend` does.
    """

    name = "llama.cpp"

    def __init__(self, path: Path, config: EngineConfig | None = None) -> None:
        config = config or EngineConfig()
        read_header(path)
        self._chunk = config.prefill_chunk
        self._model = native.load_model(str(path), config, None)
        self._context: Any = None
        try:
            n_ctx, _ = native.sizes(self._model, config)
            self._context = native.new_context(self._model, config, n_ctx=n_ctx, n_sequences=1)
            self._memory = lib.llama_get_memory(self._context)
            self._batch = lib.llama_batch_init(self._chunk, 0, 1)
            self._vocabulary = LlamaVocabulary(self._model)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fresh(self) -> None:
        """Do nothing: every answer begins with an empty cache."""

    def answer(self, question: Question) -> Answer:
        chain = _sampler(question)
        try:
            return timed(self._tokens(question, chain), question, self._vocabulary)
        finally:
            if chain is not None:
                lib.llama_sampler_free(chain)

    def _tokens(self, question: Question, chain: Any) -> Iterator[int]:
        """The model's tokens, an endless stream."""
        lib.llama_memory_seq_rm(self._memory, 0, 0, -1)
        length = len(question.tokens)
        for start in range(0, length, self._chunk):
            self._forward(question.tokens[start : start + self._chunk], start)
        for position in itertools.count(length):
            token = self._choose(chain)
            yield token
            self._forward((token,), position)

    def _forward(self, tokens: Sequence[int], position: int) -> None:
        """Append ``tokens``; the last one's logits can be read afterwards."""
        batch = self._batch
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i == len(tokens) - 1
        batch.n_tokens = len(tokens)
        code = lib.llama_decode(self._context, batch)
        if code:
            raise EngineError(f"llama_decode failed with code {code}: {native.last_error('no reason given')}")

    def _choose(self, chain: Any) -> int:
        if chain is not None:
            return int(lib.llama_sampler_sample(chain, self._context, -1))
        logits = lib.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, (self._vocabulary.size,)).argmax())

    def close(self) -> None:
        if self._context:
            lib.llama_batch_free(self._batch)
            lib.llama_free(self._context)
            self._context = None
        if self._model:
            lib.llama_model_free(self._model)
            self._model = None


def _sampler(question: Question) -> Any:
    """llama.cpp's sampler for a temperature; None for greedy decoding, which needs none."""
    if not question.temperature:
        return None
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_temp(question.temperature))
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(question.seed % 2**32))
    return chain

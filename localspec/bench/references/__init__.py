"""The references: other decoders of the same model, on the same machine, with the same prompt tokens."""

from localspec.bench.references.answer import Answer, Question, Reference, question_of
from localspec.bench.references.llama_server import LlamaServer, find_llama_server
from localspec.bench.references.prompt_lookup import LlamaPromptLookup
from localspec.bench.references.raw_loop import RawLoop
from localspec.bench.references.setting import SETTINGS, Setting, draft_simple, ngram_mod, ngram_simple

__all__ = [
    "SETTINGS",
    "Answer",
    "LlamaPromptLookup",
    "LlamaServer",
    "Question",
    "RawLoop",
    "Reference",
    "Setting",
    "draft_simple",
    "find_llama_server",
    "ngram_mod",
    "ngram_simple",
    "question_of",
]

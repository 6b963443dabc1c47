"""Every error that a user or a client can get, with a stable code and a remedy.

The codes are the same on the wire, in the CLI's JSON and here.
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import ClassVar

_INSTALL = (
    "Install it from a checkout of localspec, as localspec was installed: `make %s`, "
    "`pipx install --force '%s'` or `uv tool install --force '%s'`."
)
INSTALL_HTTP = _INSTALL % ("install", ".[http]", ".[http]")
INSTALL_MLX = _INSTALL % ("dev", ".[mlx]", ".[mlx]")
"""the remedy wherever mlx-lm is missing"""
AGENT_CONTEXT = 16_000
"""tokens: the first request of programs with tools has 10 to 40 kB of messages and 18 to 28 kB of tools"""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""errors of a disk that has no room, or none for this user, or none for a file of that size"""


class ExitCode(IntEnum):
    """Exit codes of the ``localspec`` command."""

    OK = 0
    ERROR = 1
    USAGE = 2
    UNAVAILABLE = 69
    BUSY = 75
    INTERRUPTED = 130


class LocalspecError(Exception):
    """Root of all errors: ``code`` is stable, ``message`` says what happened, ``remedy`` what to do."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[ExitCode] = ExitCode.ERROR
    default_remedy: ClassVar[str] = (
        "Report this message, with the output of `localspec doctor` and, of a daemon, of "
        "`localspec daemon logs`."
    )

    def __init__(self, message: str, remedy: str | None = None, **details: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = self.default_remedy if remedy is None else remedy
        self.details = details
        """values of the message by name, for programs"""

    def as_dict(self) -> dict[str, str]:
        """The error's shape on the wire and in ``--json``."""
        return {**self.details, "code": self.code, "message": self.message, "remedy": self.remedy}


class InvalidOptions(LocalspecError):
    code = "invalid_options"
    exit_code = ExitCode.USAGE
    default_remedy = "Correct it, or leave it out."


class ContextExceeded(LocalspecError):
    """``details`` may have ``prompt_tokens``, the least number of them where the message says "at least", and
    ``n_ctx``."""

    code = "context_exceeded"
    default_remedy = "Shorten the prompt, or enlarge the context: `localspec config set n_ctx N`."


class DaemonError(LocalspecError):
    pass


class NotInitialized(DaemonError):
    code = "not_initialized"
    default_remedy = "Send `initialize` first on every connection."


class Unauthorized(DaemonError):
    code = "unauthorized"
    default_remedy = "Send the token that `localspec daemon token` prints."


class VersionSkew(DaemonError):
    code = "version_skew"
    default_remedy = "Run `localspec daemon restart`, then try again."


class DaemonUnavailable(DaemonError):
    code = "daemon_unavailable"
    exit_code = ExitCode.UNAVAILABLE
    default_remedy = "Run `localspec daemon start`, or add --no-daemon."


class ServiceUnavailable(DaemonError):
    code = "service_unavailable"
    exit_code = ExitCode.UNAVAILABLE
    default_remedy = (
        "See `localspec daemon logs`; without a service, commands start the daemon by themselves."
    )


class QueueFull(DaemonError):
    code = "queue_full"
    exit_code = ExitCode.BUSY
    default_remedy = "Wait for running requests to end, then try again."


class SessionNotFound(DaemonError):
    code = "session_not_found"
    default_remedy = "Continue the last one with -c; `localspec run --stats` prints the id of a session."


class MessageNotFound(DaemonError):
    code = "message_not_found"
    default_remedy = "Read the session again: its messages have changed."


class Gone(DaemonError):
    code = "gone"
    default_remedy = "Read a chat's answer with `session/get`; send any other request again."


class ShuttingDown(DaemonError):
    code = "shutting_down"
    exit_code = ExitCode.UNAVAILABLE
    default_remedy = "Try again in a moment."


class ModelError(LocalspecError):
    pass


class ModelNotFound(ModelError):
    code = "model_not_found"
    default_remedy = (
        "See `localspec models list`, or give the path of a GGUF file or an MLX directory. "
        "`localspec config show` has the model that is used without -m."
    )


class ModelAmbiguous(ModelError):
    code = "model_ambiguous"
    default_remedy = "Write more of the name: `localspec models list` shows them in full."


class ModelInvalid(ModelError):
    code = "model_invalid"
    default_remedy = "Give a complete GGUF file or MLX directory; `-m bundled` always works."


class ModelTooLarge(ModelError):
    code = "model_too_large"
    default_remedy = "Use a smaller model or quantisation, or a smaller n_ctx."


class TokenizerMismatch(ModelError):
    code = "tokenizer_mismatch"
    default_remedy = "Choose a draft model of the target's family, or `--draft none`."


class FimUnsupported(ModelError):
    code = "fim_unsupported"
    default_remedy = "Use a code model trained to fill in the middle, such as `-m bundled`."


class NotPulled(ModelError):
    code = "not_pulled"
    default_remedy = "Remove it with the program that downloaded it, or delete the file."


class BackendUnavailable(ModelError):
    code = "backend_unavailable"
    exit_code = ExitCode.UNAVAILABLE
    default_remedy = "Choose another backend with --backend."


class HubError(LocalspecError):
    pass


class HubUnavailable(HubError):
    code = "hub_unavailable"
    exit_code = ExitCode.UNAVAILABLE
    default_remedy = "Check the network, and HF_ENDPOINT if it is set, then try again."


class HubDenied(HubError):
    code = "hub_denied"
    default_remedy = (
        "Accept the repository's terms on its page if there are any, then log in: `hf auth login`, or set "
        "HF_TOKEN."
    )


class HubBusy(HubError):
    code = "hub_busy"
    exit_code = ExitCode.BUSY
    default_remedy = "Try again in some minutes."


class EngineError(LocalspecError):
    pass


class EngineCrashed(EngineError):
    code = "engine_crashed"
    default_remedy = "Send the request again: the model is loaded anew."


class NodeLost(EngineCrashed):
    code = "node_lost"
    default_remedy = (
        "Make sure that machine runs and is reached, then send the request again: all nodes are asked "
        "anew. To go on without nodes: `localspec config set nodes --unset`."
    )


class EngineBusy(EngineError):
    code = "engine_busy"
    exit_code = ExitCode.BUSY
    default_remedy = "Wait for running requests to end, then try again."


class OutOfMemory(EngineError):
    code = "out_of_memory"
    default_remedy = "Use a smaller model, quantisation or n_ctx."


class TooManyFiles(LocalspecError):
    code = "too_many_files"
    exit_code = ExitCode.BUSY
    default_remedy = "Raise the limit (`ulimit -n 8192`), then run `localspec daemon restart`."


class StorageError(LocalspecError):
    pass


class DiskFull(StorageError):
    code = "disk_full"
    default_remedy = "Free some disk space, then try again."


class DownloadBroken(StorageError):
    code = "download_broken"
    default_remedy = (
        "The broken file was removed; try again, and if it fails again, choose another repository."
    )


class MemoryCorrupt(StorageError):
    code = "memory_corrupt"
    default_remedy = "No action is needed: the file was set aside, and a new one is started."


class NewerFormat(MemoryCorrupt):
    """A sound file of a later version, which must be left in place for it; every version keeps the prelude,
    and the range of its crc."""

    code = "newer_format"
    default_remedy = (
        "Update localspec. Or run `localspec memory forget --all`, which deletes all tables of the n-gram"
        " memory."
    )


def of_system(error: OSError, what: str) -> LocalspecError | None:
    """The typed error if ``what`` failed because the disk is full or too many files are open; None for other
    reasons."""
    if error.errno in FULL:
        place = f" in {error.filename}" if error.filename else ""
        return DiskFull(f"{what}: no space left{place}")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyFiles(f"{what}: too many files are open")
    return None


def _tree(root: type[LocalspecError]) -> list[type[LocalspecError]]:
    return [root, *(c for sub in root.__subclasses__() for c in _tree(sub))]


def from_dict(data: dict[str, str]) -> LocalspecError:
    """Rebuild the typed error that :meth:`LocalspecError.as_dict` described. An unknown code, which a later
    version sends, gives the root, with the message and the remedy as sent."""
    kinds = {c.code: c for c in _tree(LocalspecError) if "code" in vars(c)}
    details = dict(data)
    kind = kinds.get(details.pop("code", "internal"), LocalspecError)
    return kind(details.pop("message", "unknown error"), details.pop("remedy", None), **details)

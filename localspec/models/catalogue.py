"""Which models there are: the bundled pair, and the GGUF files of the configured directories."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from localspec.errors import ModelError, ModelNotFound
from localspec.models.fingerprint import gguf_tokens, vocab_fp
from localspec.models.gguf import GgufHeader, read_header
from localspec.protocol.messages import ModelDescription

BUNDLED = "bundled"
BUNDLED_TARGET = "stdlib-6m"
BUNDLED_DRAFT = "stdlib-1m"


def bundled_dir() -> Path:
    """The bundled pair: ``assets/models`` of a checkout, or the copy inside the installed package."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent / "assets" / "models"
    return checkout if checkout.is_dir() else package / "_models"


def bundled_model(name: str) -> Path:
    """The GGUF file of one of the bundled pair."""
    return bundled_dir() / name / f"{name}.gguf"


def model_files(model_dirs: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """(id, file) of every model, the bundled pair first; an id is the file's name without its ending."""
    for name in (BUNDLED_TARGET, BUNDLED_DRAFT):
        yield name, bundled_model(name)
    for directory in model_dirs:
        folder = _path(directory)
        for path in sorted(folder.rglob("*.gguf")) if os.path.isdir(folder) else ():
            yield path.stem, path


def find_model(name: str, model_dirs: Iterable[str] = ()) -> Path:
    """The file that ``name`` means: ``bundled``, a path, or an id of :func:`model_files`.

    Raises :class:`ModelNotFound`, naming the nearest id.
    """
    if name == BUNDLED:
        return bundled_model(BUNDLED_TARGET)
    path = _path(name)
    if path.suffix == ".gguf" or "/" in name or os.path.exists(path):
        if not os.path.exists(path):
            raise ModelNotFound(f"there is no file {path}")
        return path.resolve()
    files: dict[str, Path] = {}
    for known, file in model_files(model_dirs):
        files.setdefault(known, file)  # the first: no file in a directory takes a bundled model's place
    if name in files:
        return files[name]
    near = difflib.get_close_matches(name, [BUNDLED, *files], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ModelNotFound(f"there is no model named {name!r}{hint}")


def _path(name: str) -> Path:
    return Path(os.path.expanduser(name))


def _text(name: str | Path) -> str:
    """A name to show: bytes that are no UTF-8 are replaced, as JSON cannot hold them."""
    return os.fsencode(name).decode("utf-8", "replace")


def model_name(path: Path) -> str:
    """What a model file is called."""
    return path.stem


def describe(name: str, path: Path) -> ModelDescription:
    """Read a model file's header; a problem is told in the description, never raised."""
    try:
        header = read_header(path)
    except ModelError as error:
        return ModelDescription(
            id=_text(name),
            path=_text(path),
            format="gguf",
            backend="llama_cpp",
            size=os.path.getsize(path) if os.path.isfile(path) else 0,
            problem=_text(error.message),
        )
    tokens = gguf_tokens(header)
    context = header.of_architecture("context_length")
    return ModelDescription(
        id=_text(name),
        path=_text(path),
        format="gguf",
        backend="llama_cpp",
        architecture=header.architecture,
        parameters=header.parameters,
        quantisation=header.quantisation,
        size=header.file_size,
        context=context if type(context) is int else None,
        vocab_fp=vocab_fp(tokens) if tokens else None,
        fim=has_fim(header),
    )


def has_fim(header: GgufHeader) -> bool:
    """Whether the file names its fill-in-the-middle tokens, by id or by their usual texts."""
    if "tokenizer.ggml.fim_pre_token_id" in header.metadata:
        return True
    tokens = header.metadata.get("tokenizer.ggml.tokens") or ()
    return any(text in tokens for text in ("<|fim_prefix|>", "<fim_prefix>", "<PRE>", "<｜fim▁begin｜>"))


def list_models(model_dirs: tuple[str, ...] = ()) -> list[ModelDescription]:
    """Every model, described; reading headers only."""
    return [describe(name, path) for name, path in model_files(model_dirs)]

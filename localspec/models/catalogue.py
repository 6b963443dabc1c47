"""Which models there are: the bundled pair, and the GGUF files and model directories of the configured
directories."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from localspec.errors import ModelError, ModelInvalid, ModelNotFound
from localspec.models.directory import is_directory_model, read_directory
from localspec.models.fingerprint import directory_tokens, gguf_tokens, vocab_fp
from localspec.models.gguf import GgufHeader, read_header
from localspec.protocol.messages import ModelDescription

BUNDLED = "bundled"
BUNDLED_TARGET = "stdlib-6m"
BUNDLED_DRAFT = "stdlib-1m"

Format = Literal["gguf", "mlx"]

FORMATS: tuple[Format, ...] = ("gguf", "mlx")
BACKENDS: dict[Format, str] = {"gguf": "llama_cpp", "mlx": "mlx"}

FIM_PREFIXES = (
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>"),
    *("<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
)
"""what families call the token before the text before a gap (llama.cpp's src/llama-vocab.cpp)"""


def bundled_dir() -> Path:
    """The bundled pair: ``assets/models`` of a checkout, or the copy inside the installed package."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent / "assets" / "models"
    return checkout if checkout.is_dir() else package / "_models"


def bundled_model(name: str, format: Format = "gguf") -> Path:
    """One of the bundled pair: its GGUF file, or its directory for MLX."""
    folder = bundled_dir() / name
    return folder if format == "mlx" else folder / f"{name}.gguf"


def model_files(model_dirs: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """(id, path) of every model, the bundled pair first, in each place GGUF files before directories.

    An id is the directory's name, or the file's without its ending; models of two formats may share it.
    """
    for format in FORMATS:
        for name in (BUNDLED_TARGET, BUNDLED_DRAFT):
            yield name, bundled_model(name, format)
    for directory in model_dirs:
        folder = _path(directory)
        if os.path.isdir(folder):
            for path in (*_gguf_files(folder), *_model_directories(folder)):
                yield model_name(path), path


def _gguf_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.gguf") if not is_directory_model(path))


def _model_directories(folder: Path) -> list[Path]:
    """The directories with a configuration and weights, at any depth."""
    found = (config.parent for config in folder.rglob("config.json") if is_directory_model(config.parent))
    return sorted(path for path in found if any(path.glob("*.safetensors")))


def find_model(name: str, model_dirs: Iterable[str] = (), *, format: Format | None = None) -> Path:
    """The file or directory that ``name`` means: ``bundled``, a path, or an id of :func:`model_files`.

    Of an id that stands for models of both formats, ``format`` chooses, or else it is the GGUF file.
    Raises :class:`ModelNotFound`, naming the nearest id, and :class:`ModelInvalid` for a directory
    that is no model's.
    """
    if name == BUNDLED:
        return bundled_model(BUNDLED_TARGET, format or "gguf")
    path = _path(name)
    is_directory = os.path.isdir(path)
    if path.suffix == ".gguf" or "/" in name or (os.path.exists(path) and not is_directory):
        return _at(path)
    found: dict[str, dict[Format, Path]] = {}
    for known, file in model_files(model_dirs):
        # The first: nothing in a directory takes a bundled model's place.
        found.setdefault(known, {}).setdefault(format_of(file), file)
    if name in found:
        both = found[name]
        return both.get(format or "gguf") or next(iter(both.values()))
    if is_directory:  # last: a folder that happens to be here takes no model's place either
        return _at(path)
    near = difflib.get_close_matches(name, [BUNDLED, *found], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ModelNotFound(f"there is no model named {name!r}{hint}")


def _at(path: Path) -> Path:
    """The model at a path, which is there and may be one."""
    if not os.path.exists(path):
        raise ModelNotFound(f"there is no file {path}")
    if os.path.isdir(path) and not is_directory_model(path):
        raise ModelInvalid(
            f"{path} is a directory without a config.json",
            "Give the path of a GGUF file, or of a directory with config.json and *.safetensors.",
        )
    return path.resolve()


def _path(name: str) -> Path:
    return Path(os.path.expanduser(name))


def _text(name: str | Path) -> str:
    """A name to show: bytes that are no UTF-8 are replaced, as JSON cannot hold them."""
    return os.fsencode(name).decode("utf-8", "replace")


def place_of(path: Path) -> str:
    """Where a model lies on the disk, alike for all ways to name it, and as JSON can hold it."""
    return _text(path.resolve())


def model_name(path: Path) -> str:
    """What a model's file or directory is called."""
    return path.name if is_directory_model(path) else path.stem


def format_of(path: Path) -> Format:
    """Which format a model's file or directory has."""
    return "mlx" if is_directory_model(path) else "gguf"


def describe(name: str, path: Path) -> ModelDescription:
    """Read a model's headers; a problem is told in the description, never raised."""
    format = format_of(path)
    try:
        return _describe_directory(name, path) if format == "mlx" else _describe_file(name, path)
    except ModelError as error:
        return ModelDescription(
            id=_text(name),
            path=_text(path),
            format=format,
            backend=BACKENDS[format],
            size=weights_size(path),
            problem=_text(error.message),
        )


def weights_size(path: Path) -> int:
    """The bytes of a model's file, broken or not, or of its directory's weight files."""
    files = path.glob("*.safetensors") if os.path.isdir(path) else (path,)
    return sum(os.path.getsize(file) for file in files if os.path.isfile(file))


def _describe_file(name: str, path: Path) -> ModelDescription:
    """Raises :class:`ModelError`."""
    header = read_header(path)
    tokens = gguf_tokens(header)
    return ModelDescription(
        id=_text(name),
        path=_text(path),
        format="gguf",
        backend=BACKENDS["gguf"],
        architecture=header.architecture,
        parameters=header.parameters,
        quantisation=header.quantisation,
        size=header.file_size,
        context=_context(header),
        vocab_fp=vocab_fp(tokens) if tokens else None,
        fim=has_fim(header, name),
    )


def _describe_directory(name: str, path: Path) -> ModelDescription:
    """Raises :class:`ModelError`."""
    model = read_directory(path)
    tokens = directory_tokens(path)
    return ModelDescription(
        id=_text(name),
        path=_text(path),
        format="mlx",
        backend=BACKENDS["mlx"],
        architecture=model.architecture,
        parameters=model.parameters,
        quantisation=model.quantisation,
        size=model.size,
        context=model.context,
        vocab_fp=vocab_fp(tokens) if tokens else None,
        fim=fills_gaps(tokens),
    )


def real_tokens(path: Path) -> list[tuple[int, bytes]]:
    """(id, bytes) of a model's real tokens, alike in both formats; raises :class:`ModelError`."""
    return directory_tokens(path) if format_of(path) == "mlx" else gguf_tokens(read_header(path))


def trained_context(path: Path) -> int | None:
    """How many tokens a model was trained for, if it says so; raises :class:`ModelError`."""
    if format_of(path) == "mlx":
        return read_directory(path).context
    return _context(read_header(path))


def _context(header: GgufHeader) -> int | None:
    context = header.of_architecture("context_length")
    return context if type(context) is int else None


def has_fim(header: GgufHeader, name: str = "") -> bool:
    """Whether the file names its fill-in-the-middle tokens, by id or by their usual texts; those of Codestral
    other models have too, untrained."""
    if "tokenizer.ggml.fim_pre_token_id" in header.metadata:
        return True
    tokens = header.metadata.get("tokenizer.ggml.tokens") or ()
    texts = (*FIM_PREFIXES, *(("[PREFIX]",) if "codestral" in name.lower() else ()))
    return any(text in tokens for text in texts)


def fills_gaps(tokens: Iterable[tuple[int, bytes]]) -> bool:
    """Whether a vocabulary has a fill-in-the-middle token, by its usual text."""
    texts = {each.encode() for text in FIM_PREFIXES for each in (text, text.replace("▁", " "))}
    return any(text in texts for _, text in tokens)


def list_models(model_dirs: tuple[str, ...] = ()) -> list[ModelDescription]:
    """Every model, described; reading headers only."""
    return [describe(name, path) for name, path in model_files(model_dirs)]

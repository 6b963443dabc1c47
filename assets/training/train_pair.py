"""Train the models of a preset on lessons from this Python's standard library.

The preset "cpu" goes on from the bundled stdlib-6m and makes no draft; "smoke" makes a toy pair from nothing.
One command does it all, and goes on where it was when it is started again:

    python -m assets.training.train_pair --preset cpu --out build/pair
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import RecipeError
from .presets import PRESETS

REQUIRED = ("torch", "numpy", "tokenizers", "gguf", "safetensors")
INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the models of a preset; start again to resume.")
    parser.add_argument("--out", type=Path, required=True, help="directory for all outputs")
    parser.add_argument("--preset", choices=PRESETS, default="cpu", help="which recipe (default: cpu)")
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="threads of PyTorch on a CPU (default: all cores)",
    )
    parser.add_argument(
        "--checkpoint-minutes",
        type=float,
        default=5.0,
        help="minutes between checkpoints: the most that a kill can cost (default: 5)",
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile the model: half as fast again after minutes of compiling; needs a C++ compiler",
    )
    return parser.parse_args(arguments)


def check_libraries() -> None:
    """Say how to install what is missing before anything is started."""
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        requirements = Path(__file__).with_name("requirements.txt")
        raise RecipeError(f"Not installed: {', '.join(missing)}. pip install -r {requirements}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = parse_arguments(arguments)
    try:
        check_libraries()
        from .pipeline import Pipeline  # imports torch, which `--help` can do without

        pipeline = Pipeline(
            options.out,
            PRESETS[options.preset],
            threads=options.threads,
            checkpoint_minutes=options.checkpoint_minutes,
            compiled=options.compile,
        )
        pipeline.run()
    except RecipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    print(f"the models are in {options.out / 'models'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Draw the README's picture: one answer, each token coloured by its proposer.

.venv/bin/python assets/pictures/sources.py assets/pictures/sources.svg
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

import localspec
from localspec.models.catalogue import DEFAULT
from localspec.wording import stats_lines

PROMPT = Path(__file__).parent.parent / "examples" / "clear.txt"
COLOURS = {"target": "white", "prompt-lookup": "black on green", "draft": "black on blue"}
COMMAND = (
    'localspec run --temperature 0 --proposer prompt-lookup -k 8 --stats "$(cat assets/examples/clear.txt)"'
)


def main(path: str, model: str) -> None:
    """Answer the prompt and save the picture as SVG."""
    answer = Text()
    with localspec.load(model, proposer="prompt-lookup", k=8) as engine:
        stream = engine.chat([{"role": "user", "content": PROMPT.read_text().rstrip("\n")}], temperature=0.0)
        for chunk in stream:
            at = 0
            for token in chunk.tokens:
                answer.append(chunk.text[at : at + token.chars], COLOURS[token.source])
                at += token.chars
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(Text(f"$ {COMMAND}", "bold"))
    console.print(answer)
    # Counts are the same on every machine; times are not even the same twice.
    untimed = msgspec.structs.replace(
        stream.result.stats, decode_tokens_per_s=None, time_saved_s=None, ttft_s=None
    )
    console.print(Text(stats_lines(msgspec.structs.replace(stream.result, stats=untimed)), "dim"))
    legend = Text("decoded by the target", COLOURS["target"]).append("   ")
    console.print(legend.append("copied by prompt lookup", COLOURS["prompt-lookup"]))
    console.save_svg(path, title="localspec", unique_id="localspec")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", metavar="FILE.svg")
    parser.add_argument("--model", default=DEFAULT)
    given = parser.parse_args()
    main(given.file, given.model)

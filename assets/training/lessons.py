"""The lessons by name: what each stream of a preset is made of."""

import random
from collections.abc import Iterator
from functools import cached_property

from .chat import Example
from .copying import copying_examples
from .corpus import SourceFile, library_files, split_files
from .errors import RecipeError
from .infill import fim_examples
from .library import Entry, library_entries
from .next_edit import next_edit_examples
from .presets import Preset, Stream
from .questions import question_examples
from .renames import rename_examples
from .tools import tool_examples
from .words import common_words


class Lessons:
    """The examples of a preset's streams; what several of them need is made once."""

    def __init__(self, preset: Preset) -> None:
        self._preset = preset

    @cached_property
    def files(self) -> list[SourceFile]:
        """The library's files that may be trained on."""
        return split_files(library_files(self._preset.files), self._preset.hold_back_every)[0]

    @cached_property
    def words(self) -> list[str]:
        """The words that invented names are made of."""
        return common_words(file.text for file in self.files)

    @cached_property
    def entries(self) -> list[Entry]:
        """The names that questions are asked about."""
        entries = library_entries()
        most = self._preset.entries
        return entries if most is None else random.Random(0).sample(entries, most)

    def examples(self, stream: Stream) -> Iterator[Example]:
        """The examples of a stream in the order in which they are packed."""
        seed = f"{self._preset.seed} {stream.name}"
        low, high = stream.lines
        match stream.lesson:
            case "questions":
                for number in range(stream.passes):
                    yield from question_examples(self.entries, self.words, f"{seed} {number}")
            case "copying":
                yield from copying_examples(stream.examples, high, self.words, seed)
            case "renames":
                yield from rename_examples(
                    self.files, (low, high), self.words, passes=stream.passes, seed=seed
                )
            case "middles":
                yield from fim_examples(self.files, stream, seed)
            case "next edits":
                yield from next_edit_examples(
                    self.files, (low, high), self.words, passes=stream.passes, seed=seed
                )
            case "tools":
                plain = question_examples(self.entries, self.words, seed)
                yield from tool_examples(stream.examples, self.words, plain, seed)
            case unknown:
                raise RecipeError(f"No lesson is called {unknown}: correct the stream {stream.name}.")

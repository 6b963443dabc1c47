"""Every number of the recipe: the shapes of the pair, its data and its training."""

from dataclasses import dataclass

ROPE_BASE = 10_000.0
NORM_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The size of one Qwen3 model with tied embeddings."""

    name: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    head_size: int = 64


@dataclass(frozen=True, slots=True)
class Stream:
    """A file of packed rows: examples of one lesson that fit into a window."""

    name: str
    lesson: str  # "questions", "copying", "renames", "middles", "next edits" or "tools"
    window: int  # tokens
    lines: tuple[int, int] = (0, 0)  # of the code; "copying" heeds the upper bound alone
    passes: int = 1  # times the lesson's material is gone through, with other draws
    examples: int = 0  # of "copying" and "tools"
    every: int = 1  # of "middles": one example in so many lines
    around: tuple[int, int] = (900, 500)  # characters before and after a middle, at most
    inside_words: float = 1.0  # share of a line's cuts that may fall into a word


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of training: in every step so many rows of each stream."""

    name: str
    rows: dict[str, int]  # by the stream's name
    steps: int
    peak_rate: float  # learning rate after the warm-up
    warmup: int = 40  # steps
    decays: bool = False  # linearly to LAST_RATE_SHARE of the peak rate over the whole phase


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A model and its phases."""

    shape: ModelShape
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class Preset:
    """A complete recipe."""

    name: str
    target: ModelPlan
    draft: ModelPlan | None  # learns the finished target's distributions; None: not trained yet
    streams: tuple[Stream, ...]
    context: int  # tokens; what the exported models state
    start: str | None = None  # the bundled model whose weights and tokenizer are gone on with
    weights: str | None = (
        None  # a file beside this module: weights to go on with in place of the bundled ones
    )
    vocabulary: int = 8192
    seed: int = 0
    files: int | None = None  # the first so many files of the library; None: all of them
    hold_back_every: int = 50  # every so-manieth file is kept out of training
    entries: int | None = None  # so many of the library's names; None: all of them


STDLIB_6M = ModelShape("stdlib-6m", width=256, layers=6, heads=4, kv_heads=2, feed_forward=704)
STDLIB_1M = ModelShape("stdlib-1m", width=128, layers=2, heads=2, kv_heads=1, feed_forward=384)


# A minute on one core: proves the pipeline, teaches nothing.
SMOKE = Preset(
    name="smoke",
    target=ModelPlan(
        ModelShape("smoke-target", width=64, layers=2, heads=2, kv_heads=1, feed_forward=128),
        phases=(
            Phase("short", {"questions": 2, "copies": 2}, steps=40, peak_rate=3e-3, warmup=10),
            Phase(
                "all",
                {"questions": 1, "renames": 1, "middles": 1, "next-edits": 1, "tools": 1},
                steps=30,
                peak_rate=2e-3,
                decays=True,
            ),
        ),
    ),
    draft=ModelPlan(
        ModelShape("smoke-draft", width=32, layers=1, heads=1, kv_heads=1, feed_forward=64),
        phases=(Phase("all", {"questions": 2, "renames": 1}, steps=20, peak_rate=3e-3, decays=True),),
    ),
    streams=(
        Stream("questions", "questions", window=128),
        Stream("copies", "copying", window=128, lines=(1, 3), examples=300),
        Stream("renames", "renames", window=256, lines=(2, 8)),
        Stream("middles", "middles", window=256, every=40),
        Stream("next-edits", "next edits", window=384, lines=(3, 8)),
        Stream("tools", "tools", window=1024, examples=60),
    ),
    context=1024,
    vocabulary=512,
    files=24,
    hold_back_every=6,
    entries=60,
)

STREAMS = (
    Stream("questions", "questions", window=256),
    Stream("copies-short", "copying", window=256, lines=(1, 5), examples=60_000),
    Stream("copies", "copying", window=256, lines=(1, 12), examples=60_000),
    Stream("renames-short", "renames", window=256, lines=(2, 12), passes=3),
    Stream("middles-short", "middles", window=256, every=6),
    Stream("middles", "middles", window=256, every=2, around=(360, 160)),
    Stream("middles-words", "middles", window=256, every=2, around=(360, 160), inside_words=0.15),
    Stream("questions-again", "questions", window=256),
    Stream("renames", "renames", window=512, lines=(6, 25), passes=3),
    Stream("renames-long", "renames", window=1024, lines=(12, 60), passes=2),
    Stream("next-edits", "next edits", window=512, lines=(3, 14), passes=2),
    Stream("tools", "tools", window=512, examples=20_000),
)
CPU_ROWS = {
    "questions-again": 6,
    "copies": 1,
    "middles-words": 3,
    "renames": 2,
    "renames-long": 1,
    "next-edits": 2,
    "tools": 2,
}

# Two cores without a GPU; phases are added as the figures tell what is lacking.
CPU = Preset(
    name="cpu",
    target=ModelPlan(
        STDLIB_6M,
        phases=(
            Phase("all", CPU_ROWS, steps=3000, peak_rate=1e-3, warmup=100),
            Phase("settle", CPU_ROWS, steps=4000, peak_rate=1e-3, warmup=1, decays=True),
        ),
    ),
    draft=None,
    streams=STREAMS,
    context=4096,
    start="stdlib-6m",
    weights="progress/stdlib-6m.safetensors",
    seed=2,  # rows drawn otherwise than those that these weights have seen
)

PRESETS = {preset.name: preset for preset in (SMOKE, CPU)}

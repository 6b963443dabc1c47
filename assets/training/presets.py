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
class Phase:
    """One training run: `steps` optimizer steps of batch x window tokens each."""

    window: int  # tokens
    batch: int  # windows
    steps: int
    peak_rate: float  # learning rate after the warm-up
    warmup: int = 60  # steps


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A model and its two phases: short windows of everything, then long conversations."""

    shape: ModelShape
    short: Phase
    long: Phase


@dataclass(frozen=True, slots=True)
class Preset:
    """A complete recipe."""

    name: str
    target: ModelPlan
    draft: ModelPlan
    context: int  # tokens; what the exported models state, and the longest conversation's bound
    vocabulary: int = 8192
    seed: int = 0
    files: int | None = None  # the first so many files of the library; None: all of them
    hold_back_every: int = 50  # every so-manieth file is kept out of training
    passes: int = 1  # times the corpus is cut anew, with other spans, wordings and renames
    span_characters: tuple[int, int] = (600, 2400)
    fim_share: float = 0.55
    suffix_first_share: float = 0.0  # of the fill-in-the-middle examples
    conversation_tokens: int = 1900
    conversation_turns: int = 5
    block_characters: tuple[int, int] = (300, 4200)  # code that starts a conversation
    rename_tasks: int = 16


STDLIB_6M = ModelShape("stdlib-6m", width=256, layers=6, heads=4, kv_heads=2, feed_forward=704)
STDLIB_1M = ModelShape("stdlib-1m", width=128, layers=2, heads=2, kv_heads=1, feed_forward=384)

# Seconds on one core: proves the pipeline, teaches nothing.
SMOKE = Preset(
    name="smoke",
    target=ModelPlan(
        ModelShape("smoke-target", width=64, layers=2, heads=2, kv_heads=1, feed_forward=128),
        short=Phase(window=64, batch=4, steps=120, peak_rate=3e-3, warmup=10),
        long=Phase(window=256, batch=2, steps=40, peak_rate=1e-3, warmup=10),
    ),
    draft=ModelPlan(
        ModelShape("smoke-draft", width=32, layers=1, heads=1, kv_heads=1, feed_forward=64),
        short=Phase(window=64, batch=4, steps=60, peak_rate=3e-3, warmup=10),
        long=Phase(window=256, batch=2, steps=20, peak_rate=1e-3, warmup=10),
    ),
    context=1024,
    vocabulary=512,
    files=24,
    hold_back_every=6,
    suffix_first_share=0.5,
    conversation_tokens=480,
    block_characters=(100, 1000),
    rename_tasks=4,
)

# About an hour and a half on two cores: as many tokens as the bundled pair has seen.
CPU = Preset(
    name="cpu",
    target=ModelPlan(
        STDLIB_6M,
        short=Phase(window=512, batch=8, steps=2030, peak_rate=2e-3),
        long=Phase(window=2048, batch=2, steps=1610, peak_rate=1e-3),
    ),
    draft=ModelPlan(
        STDLIB_1M,
        short=Phase(window=512, batch=8, steps=1760, peak_rate=4e-3),
        long=Phase(window=2048, batch=2, steps=830, peak_rate=2e-3),
    ),
    context=2048,
)

# For a GPU: forty times the tokens over eight cuts of the corpus, 8k context, both FIM orders.
GPU = Preset(
    name="gpu",
    target=ModelPlan(
        STDLIB_6M,
        short=Phase(window=1024, batch=32, steps=12_000, peak_rate=2e-3, warmup=400),
        long=Phase(window=8192, batch=4, steps=6_000, peak_rate=1e-3, warmup=200),
    ),
    draft=ModelPlan(
        STDLIB_1M,
        short=Phase(window=1024, batch=32, steps=12_000, peak_rate=4e-3, warmup=400),
        long=Phase(window=8192, batch=4, steps=6_000, peak_rate=2e-3, warmup=200),
    ),
    context=8192,
    passes=8,
    span_characters=(600, 9000),
    suffix_first_share=0.5,
    conversation_tokens=7900,
    conversation_turns=8,
    block_characters=(300, 9000),
    rename_tasks=64,
)

PRESETS = {preset.name: preset for preset in (SMOKE, CPU, GPU)}

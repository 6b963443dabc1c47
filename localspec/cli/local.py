"""An answer from an engine in this process."""

from __future__ import annotations

import time

from msgspec.structs import replace

from localspec.cli.output import warnings_as_notes
from localspec.cli.printer import Printer
from localspec.completion.finishing import finished
from localspec.completion.gap import Gap
from localspec.config import Config
from localspec.engine.engine import Stream
from localspec.engine.load import choose_here, load_engine
from localspec.models.catalogue import BUNDLED
from localspec.models.library import Sections
from localspec.models.pair import Pair
from localspec.protocol.options import Options
from localspec.protocol.requests import Degraded, Delta, EngineConfig, FimPrompt, Progress, Request, Result


def choose_pair(options: Options, config: Config) -> tuple[Options, EngineConfig, Pair]:
    """The options over the configured ones, and the pair that they choose with the settings to load it."""
    sections = Sections(config)
    merged = sections.merge_options(options)
    model, draft, backend = merged.model or BUNDLED, merged.draft or "auto", merged.backend or "auto"
    engine = sections.engine(model)
    return merged, engine, choose_here(model, draft, config.model_dirs, backend=backend, config=engine)


def answer_here(request: Request, config: Config, printer: Printer) -> Result:
    """Load the model in this process, answer, and free it. The text of a gap is not printed while it is
    generated: it ends as an editor's completion."""
    began = time.monotonic()
    gap = Gap.of(request.prompt) if isinstance(request.prompt, FimPrompt) else None
    options, engine_config, pair = choose_pair(request.options, config)
    with (
        warnings_as_notes(),
        load_engine(
            pair,
            config=engine_config,
            progress=lambda stage, fraction: printer.progress(f"loading the {stage} model", fraction),
            memory=True,
        ) as engine,
    ):
        printer.loaded_s = time.monotonic() - began
        sequence = engine.submit(replace(request, options=options))
        stream = Stream(engine, sequence)
        try:
            for event in stream.events():
                if isinstance(event, Delta) and gap is None:
                    printer.delta(event)
                elif isinstance(event, Progress):
                    printer.progress("reading the prompt", event.fraction)
                elif isinstance(event, Degraded):
                    printer.note_degradation(event.source, event.to, event.reason)
        except KeyboardInterrupt:
            stream.close()
            printer.partial = next((event for event in sequence.events if isinstance(event, Result)), None)
            raise
        return stream.result if gap is None else finished(stream.result, gap)

"""From prompts to tokens: raw text, the chat template, fill-in-the-middle.

Control tokens of a chat are made by the template's own text alone, never by names that its contents spell.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, partial
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from localspec.backends.base import NEVER, Vocabulary, any_of
from localspec.completion.gap import Gap
from localspec.completion.stopping import StopRule
from localspec.constraints.constraint import Constraint
from localspec.engine.fim import PREFILL_S, Infill, fim_format
from localspec.errors import ContextExceeded, FimUnsupported, InvalidOptions
from localspec.models.template import CHATMLS, PLAIN, ChatTemplate
from localspec.protocol.requests import ChatPrompt, FimPrompt, Prompt, TextPrompt, TokenPrompt

GUARD = "\ufdd0"
"""stands behind the first character of a name in a content: a noncharacter, which templates leave as it is"""
FOREIGN = "\ufffd"
"""takes the place of a guard that a content brings along"""


class Markup:
    """Guards contents before a template is rendered with them, and encodes what it made of them."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def guarded(self, content: Any) -> Any:
        """A text with a guard in each name of a control token, or a value of JSON with such texts.

        Raises :class:`InvalidOptions` for a value that is nested too deep.
        """
        try:
            return self._guarded(content)
        except RecursionError:
            raise InvalidOptions(
                "the chat template's variables are nested too deep", "Flatten them."
            ) from None

    def encode(self, text: str) -> list[int]:
        """The tokens of a rendering with guarded contents: those of the whole text where nothing is guarded,
        as control tokens part a text for its tokenizer. What stands between two of them is encoded without
        special tokens if it has a guard."""
        if GUARD not in text:
            return self._vocabulary.encode(text, special=True)
        runs = groupby(filter(None, self._names.split(text)), lambda part: GUARD in part)
        texts = (("".join(run).replace(GUARD, ""), not has) for has, run in runs)
        return [token for text, special in texts for token in self._vocabulary.encode(text, special=special)]

    def _guarded(self, content: Any) -> Any:
        if isinstance(content, str):
            return self._beginnings.sub(lambda found: found[0] + GUARD, content.replace(GUARD, FOREIGN))
        if isinstance(content, dict):
            return {self._guarded(key): self._guarded(value) for key, value in content.items()}
        return [self._guarded(each) for each in content] if isinstance(content, list | tuple) else content

    @cached_property
    def _all_names(self) -> list[str]:
        """The names of all control tokens."""
        vocabulary = self._vocabulary
        marks = vocabulary.special_tokens | vocabulary.marks
        names = {vocabulary.text_of(token).decode("utf-8", "replace") for token in marks}
        return sorted(name for name in names if len(name) > 1)

    @cached_property
    def _names(self) -> re.Pattern[str]:
        return re.compile(f"({any_of(self._all_names)})")

    @cached_property
    def _beginnings(self) -> re.Pattern[str]:
        """Finds the first characters of names, also of overlapping ones."""
        rests = groupby(self._all_names, lambda name: name[0])
        found = (f"{re.escape(first)}(?={any_of([name[1:] for name in names])})" for first, names in rests)
        return re.compile("|".join(found) or NEVER)


THOUGHT = re.compile(r"(<((?:seed:)?think(?:ing)?|reasoning|thought)>)\s*\Z")
"""the tag with which some templates begin the answer: it opens a thought"""
ANSWER_SHARE = 4
"""a prompt that must be cut leaves this fraction of the context, 1 / ANSWER_SHARE, for the answer"""


class Encoded(NamedTuple):
    """A prompt's tokens. The answer ends with one of ``end_tokens`` or of the texts ``stop``, or by ``rule``;
    ``dropped`` old messages did not fit."""

    tokens: list[int]
    end_tokens: frozenset[int]
    dropped: int = 0
    stop: tuple[str, ...] = ()
    rule: StopRule | None = None
    early_end: bool = False
    """True if the answer ends where the model is unsure"""
    untemplated: bool = False
    """True if it is a chat without markup: the model has no chat template"""
    constraint: Constraint | None = None


class PromptEncoder:
    """Encodes prompts for one model with ``n_ctx`` tokens of context.

    ``model`` is its name, ``trained_ctx`` the context that it was trained for; ``prefill_s`` returns
    the seconds of prefill per token.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        n_ctx: int,
        *,
        trained_ctx: int | None = None,
        model: str = "",
        prefill_s: Callable[[], float] = lambda: PREFILL_S,
    ) -> None:
        self._vocabulary, self._markup = vocabulary, Markup(vocabulary)
        self._start = [] if vocabulary.bos is None else [vocabulary.bos]
        self._n_ctx, self._trained_ctx = n_ctx, trained_ctx
        self._model, self._prefill_s = model, prefill_s

    @cached_property
    def _template(self) -> ChatTemplate:
        vocabulary = self._vocabulary
        eos = b"" if vocabulary.eos is None else vocabulary.text_of(vocabulary.eos)
        return ChatTemplate(
            PLAIN if self._is_base else vocabulary.chat_template,
            bos=vocabulary.bos_text,
            eos=eos.decode("utf-8", "replace"),
        )

    @cached_property
    def _is_base(self) -> bool:
        """True if the model has no chat template, and no token of ChatML's."""
        vocabulary = self._vocabulary
        return not vocabulary.chat_template and len(vocabulary.encode(CHATMLS, special=True)) > 1

    def encode(
        self, prompt: Prompt, max_tokens: int | None, workspace: str | None = None, *, cut: bool = True
    ) -> Encoded:
        """Return the tokens of ``prompt``; paths in it are relative to ``workspace``. With ``cut``, a chat
        longer than the context loses its oldest turns.

        Raises :class:`ContextExceeded` if it does not fit, :class:`FimUnsupported`, :class:`ModelInvalid`
        (a broken template), :class:`InvalidOptions` (an empty prompt, a token that the model does not have).
        """
        if isinstance(prompt, FimPrompt):
            encoded = self._fim(prompt, max_tokens, workspace)
        elif isinstance(prompt, ChatPrompt):
            encoded = self._chat(prompt, max_tokens, cut=cut)
        else:
            encoded = Encoded(self._plain(prompt), self._vocabulary.end_tokens)
        if not encoded.tokens:
            raise InvalidOptions("the prompt is empty", "Give some text to continue.")
        if len(encoded.tokens) > self._n_ctx:
            raise self._exceeded(len(encoded.tokens))
        return encoded

    def _exceeded(self, number: int, least: str = "") -> ContextExceeded:
        message = f"the prompt has {least}{number} tokens, the context holds {self._n_ctx}"
        details = {"prompt_tokens": str(number), "n_ctx": str(self._n_ctx)}
        if self._trained_ctx is None or self._n_ctx < self._trained_ctx:
            return ContextExceeded(message, **details)
        remedy = f"Shorten the prompt, or choose a model of more than {self._trained_ctx} tokens of context."
        return ContextExceeded(message, remedy, **details)

    def _tokens(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Return the tokens of ``text``. Raises :class:`ContextExceeded` if so many bytes can never fit."""
        # Only for long texts: at its first use ``longest`` reads all tokens of the vocabulary.
        longest = self._vocabulary.longest if len(text) > self._n_ctx else None
        if longest is not None and len(text) > self._n_ctx * longest:
            raise self._exceeded(-(-len(text.encode("utf-8", "replace")) // longest), "at least ")
        return encode(text)

    def _plain(self, prompt: TextPrompt | TokenPrompt) -> list[int]:
        if isinstance(prompt, TextPrompt):
            encode = partial(self._vocabulary.encode, special=True)
            return [*self._start, *self._tokens(prompt.text, encode)]
        size = self._vocabulary.size
        unknown = next((token for token in prompt.tokens if not 0 <= token < size), None)
        if unknown is not None:
            raise InvalidOptions(
                f"the model has no token {unknown}",
                f"Send token ids from 0 to {size - 1}, as `tokenize` returns them.",
            )
        return list(prompt.tokens)

    def _chat(self, prompt: ChatPrompt, max_tokens: int | None, *, cut: bool) -> Encoded:
        """Encode a chat; with ``cut``, one longer than the context loses its oldest turns, but not the
        system prompt."""
        if not prompt.messages:
            raise InvalidOptions("the conversation is empty", "Send at least one message.")
        room = self._n_ctx - self._answer_room(max_tokens)
        system, turns = prompt.messages[:1], prompt.messages[1:]
        if system[0].role != "system":
            system, turns = (), prompt.messages

        @cache
        def render(first: int) -> list[int]:
            return self._render(replace(prompt, messages=(*system, *turns[first:])))

        def fits(first: int) -> bool:
            with suppress(ContextExceeded):
                return len(render(first)) <= room
            return False

        first, starts = 0, [i for i, m in enumerate(turns) if i and m.role == "user"]
        if cut and starts and not fits(0):
            first = starts[bisect_left(starts[:-1], True, key=fits)]
        return Encoded(render(first), self._vocabulary.end_tokens, first, untemplated=self._is_base)

    def _answer_room(self, max_tokens: int | None) -> int:
        share = self._n_ctx // ANSWER_SHARE
        return share if max_tokens is None else min(max_tokens, share)

    def _render(self, prompt: ChatPrompt) -> list[int]:
        *messages, last = prompt.messages
        # The beginning of the answer, if the prompt has one, follows the rendered template's markup.
        begins = prompt.prefilled and not self._is_base
        turns = messages if begins else prompt.messages
        guarded = [replace(turn, content=self._markup.guarded(turn.content)) for turn in turns]
        text = self._template.render(guarded, self._markup.guarded(prompt.variables))
        tokens = self._tokens(self._begun(text, last.content) if begins else text, self._markup.encode)
        return tokens if tokens[:1] == self._start else [*self._start, *tokens]

    def _begun(self, rendered: str, beginning: str) -> str:
        """The rendering with the beginning of the answer. A thought that the template has opened is closed,
        unless the beginning opens it too, or ends it."""
        opened = THOUGHT.search(rendered)
        if opened is None:
            return f"{rendered}{self._markup.guarded(beginning)}"
        tag, close = opened[1], f"</{opened[2]}>"
        upto = rendered[: opened.end(1)]
        thought, end, answer = beginning.partition(close)
        if thought.lstrip().startswith(tag):
            rendered, thought = upto, thought.lstrip().removeprefix(tag)
        elif not end:
            return f"{upto}\n\n{close}\n\n{self._markup.guarded(beginning)}"
        return f"{rendered}{self._markup.guarded(thought)}{end}{self._markup.guarded(answer)}"

    @cached_property
    def _infill(self) -> Infill | None:
        format = fim_format(self._vocabulary, self._model)
        return None if format is None else Infill(format, self._prefill_s)

    def _fim(self, prompt: FimPrompt, max_tokens: int | None, workspace: str | None) -> Encoded:
        if self._infill is None:
            name = self._model or "the model"
            raise FimUnsupported(f"{name} was not trained to fill in the middle")
        room = self._n_ctx - self._answer_room(max_tokens) - len(self._start)
        tokens = self._infill.encode(prompt, room, workspace)
        format = self._infill.format
        rule = StopRule(Gap.of(prompt)) if prompt.tidy else None
        return Encoded(
            [*self._start, *tokens],
            format.end_tokens,
            stop=format.stop,
            rule=rule,
            early_end=prompt.tidy and not prompt.invoked,
        )

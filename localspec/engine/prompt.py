"""From prompts to tokens: raw text, the chat template, fill-in-the-middle.

Control tokens of a chat are made by the template's own text alone, never by names that its contents spell.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, partial
from itertools import groupby, takewhile
from typing import Any, NamedTuple

from msgspec.structs import replace

from localspec.backends.base import NEVER, ModelVocabulary, any_of
from localspec.completion.gap import Gap
from localspec.completion.stopping import StopRule
from localspec.constraints.budget import Budget
from localspec.constraints.constraint import Constraint
from localspec.engine.fim import PREFILL_S, Infill, fim_format
from localspec.errors import ContextExceeded, FimUnsupported, InvalidOptions
from localspec.models.template import CHATML, CHATMLS, PLAIN, ChatTemplate
from localspec.protocol.requests import (
    ChatPrompt,
    FimPrompt,
    Message,
    Prompt,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolCall,
)
from localspec.tools.families import HERMES, Form, ToolFamily, as_json, family_of, find_thought, turns_for
from localspec.tools.grammar import AnswerMarkup

GUARD = "\ufdd0"
"""stands behind the first character of a name in a content: a noncharacter, which templates leave as it is"""
FOREIGN = "\ufffd"
"""takes the place of a guard that a content brings along"""


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """A call's arguments as an object, which every template can print: a cut text becomes one argument."""
    if call.object is not None or not call.arguments:
        return call.object or {}
    return {"arguments": call.arguments}


class Markup:
    """Guards contents before a template is rendered with them, and encodes what it made of them."""

    def __init__(self, vocabulary: ModelVocabulary) -> None:
        self._vocabulary = vocabulary

    def guard(self, content: Any) -> Any:
        """A text with a guard in each name of a control token, or a value of JSON with such texts. Raises
        :class:`InvalidOptions` for a value that is nested too deep."""
        try:
            return self._guard(content)
        except RecursionError:
            message = "the chat template's variables are nested too deep"
            raise InvalidOptions(message, "Flatten them.") from None

    def guarded_chat(self, prompt: ChatPrompt) -> ChatPrompt:
        """``prompt`` with all texts of messages, calls and tools guarded."""
        guard = self.guard

        def call(made: ToolCall) -> ToolCall:
            return ToolCall(guard(made.id), guard(made.name), as_json(guard(arguments_of(made))))

        def message(turn: Message) -> Message:
            content, calls = guard(turn.content), tuple(map(call, turn.tool_calls))
            return Message(turn.role, content, calls, guard(turn.tool_call_id), guard(turn.thinking))

        tools = tuple(Tool(*guard([tool.name, tool.description, tool.parameters])) for tool in prompt.tools)
        messages = tuple(map(message, prompt.messages))
        return replace(prompt, messages=messages, tools=tools, variables=guard(prompt.variables))

    def encode(self, text: str) -> list[int]:
        """The tokens of a rendering with guarded contents: those of the whole text where nothing is guarded,
        as control tokens part a text for its tokenizer. What stands between two of them is encoded without
        special tokens if it has a guard."""
        if GUARD not in text:
            return self._vocabulary.encode(text, special=True)
        runs = groupby(filter(None, self._names.split(text)), lambda part: GUARD in part)
        texts = (("".join(run).replace(GUARD, ""), not has) for has, run in runs)
        return [token for text, special in texts for token in self._vocabulary.encode(text, special=special)]

    def _guard(self, content: Any) -> Any:
        if isinstance(content, str):
            # Half of a surrogate pair is no character.
            content = content.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            return self._beginnings.sub(lambda found: found[0] + GUARD, content.replace(GUARD, FOREIGN))
        if isinstance(content, dict):
            return {self._guard(key): self._guard(value) for key, value in content.items()}
        return [self._guard(each) for each in content] if isinstance(content, list | tuple) else content

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


ANSWER_SHARE = 4
"""a prompt that must be cut leaves this fraction of the context, 1 / ANSWER_SHARE, for the answer"""
LONGEST_TOKEN = 128
"""characters of blanks that are one token of some vocabularies; texts have about four a token"""
MARKUP = 64
"""tokens of markup and earlier text that go with each new message of a chat"""


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
    marked: AnswerMarkup | None = None
    """the markup to expect in a chat's answer; None: none"""
    constraint: Constraint | Budget | None = None
    earlier: int = 0
    """about how many of the first tokens are of a chat's earlier turns, which were learnt at their ends"""


class PromptEncoder:
    """Encodes prompts for one model with ``n_ctx`` tokens of context. ``model`` is its name, ``trained_ctx``
    the context that it was trained for; ``prefill_s`` returns the seconds of prefill per token."""

    def __init__(
        self,
        vocabulary: ModelVocabulary,
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
        template = PLAIN if self._is_base else vocabulary.chat_template
        return ChatTemplate(template, bos=vocabulary.bos_text, eos=eos.decode("utf-8", "replace"))

    @cached_property
    def _is_base(self) -> bool:
        """True if the model has no chat template, and no token of ChatML's."""
        vocabulary = self._vocabulary
        return not vocabulary.chat_template and len(vocabulary.encode(CHATMLS, special=True)) > 1

    def encode(
        self, prompt: Prompt, max_tokens: int | None, workspace: str | None = None, *, cut: bool = True
    ) -> Encoded:
        """Return the tokens of ``prompt``; paths in it are relative to ``workspace``. With ``cut``, a chat
        longer than the context loses its oldest turns. Raises :class:`ContextExceeded` if it does not fit,
        :class:`FimUnsupported`, :class:`ModelInvalid` (a broken template), :class:`InvalidOptions` (an empty
        prompt, a token that the model does not have)."""
        if isinstance(prompt, FimPrompt):
            encoded = self._fim(prompt, max_tokens, workspace)
        elif isinstance(prompt, ChatPrompt):
            encoded = self._chat(prompt, max_tokens, cut=cut)
        else:
            encoded = Encoded(self._plain(prompt), self._vocabulary.end_tokens)
        if not encoded.tokens:
            raise InvalidOptions("the prompt is empty", "Give some text to continue.")
        if len(encoded.tokens) > self._n_ctx:
            raise self._refuse_length(len(encoded.tokens))
        return encoded

    def _refuse_length(self, number: int, least: str = "") -> ContextExceeded:
        message = f"the prompt has {least}{number} tokens, the context holds {self._n_ctx}"
        details = {"prompt_tokens": str(number), "n_ctx": str(self._n_ctx)}
        if self._trained_ctx is None or self._n_ctx < self._trained_ctx:
            return ContextExceeded(message, **details)
        remedy = f"Shorten the prompt, or choose a model of more than {self._trained_ctx} tokens of context."
        return ContextExceeded(message, remedy, **details)

    def _tokens(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Return the tokens of ``text``. Raises :class:`ContextExceeded` for one far too long."""
        if len(text) > self._n_ctx * LONGEST_TOKEN:
            raise self._refuse_length(-(-len(text) // LONGEST_TOKEN), "at least ")
        return encode(text)

    def _plain(self, prompt: TextPrompt | TokenPrompt) -> list[int]:
        if isinstance(prompt, TextPrompt):
            encode = partial(self._vocabulary.encode, special=True)
            return [*self._start, *self._tokens(prompt.text, encode)]
        size = self._vocabulary.size
        unknown = next((token for token in prompt.tokens if not 0 <= token < size), None)
        if unknown is not None:
            remedy = f"Send token ids from 0 to {size - 1}, as `tokenize` returns them."
            raise InvalidOptions(f"the model has no token {unknown}", remedy)
        return list(prompt.tokens)

    def _chat(self, prompt: ChatPrompt, max_tokens: int | None, *, cut: bool) -> Encoded:
        """Encode a chat. With ``cut``, one longer than the context loses its oldest turns, but neither the
        system prompt nor the last question; behind that it loses its first calls, and results their middle.
        """
        if not prompt.messages:
            raise InvalidOptions("the conversation is empty", "Send at least one message.")
        room = self._n_ctx - self._answer_room(max_tokens)
        begin = int(prompt.messages[0].role == "system")
        system, turns = prompt.messages[:begin], prompt.messages[begin:]
        if prompt.tool_choice == "none":
            prompt = replace(prompt, tools=())

        starts = [0, *(i for i, turn in enumerate(turns) if i and turn.role == "user")]
        question = starts[-1]
        starts += (i for i in range(question + 2, len(turns) - 1) if turns[i].role == "assistant")

        @cache
        def render(first: int, longest: int) -> tuple[list[int], bool]:
            asked = (turn for turn in turns[question:first][:1] if turn.role == "user")
            kept = (_without_middle(turn, longest) for turn in (*asked, *turns[first:]))
            return self._render(replace(prompt, messages=(*system, *kept)))

        def fits(first: int, longest: int) -> bool:
            with suppress(ContextExceeded):
                return len(render(first, longest)[0]) <= room
            return False

        first, longest = 0, max((len(turn.content) for turn in turns if turn.role == "tool"), default=0)
        if cut:  # more never fits, and may be too much for a template
            longest = min(longest, self._n_ctx * LONGEST_TOKEN)
        if cut and not fits(first, longest):
            while longest and not fits(starts[-1], longest):
                longest //= 2
            first = starts[bisect_left(starts[:-1], True, key=partial(fits, longest=longest))]
        tokens, opened = render(first, longest)
        dropped = first - (first > question and turns[question].role == "user")
        ends, earlier = self._vocabulary.end_tokens, self._count_earlier(prompt, len(tokens), longest)
        encoded = Encoded(tokens, ends, dropped, untemplated=self._is_base, earlier=earlier)
        family, thought = self._kind
        form = Form(family or HERMES, prompt.tools, thought, opened)
        return encoded._replace(marked=self._mark_answer(form, prompt)) if form.marks else encoded

    def _count_earlier(self, prompt: ChatPrompt, tokens: int, longest: int) -> int:
        """Of a chat's ``tokens``, about how many come before the messages without an answer, of whose results
        ``longest`` characters are left."""
        messages = prompt.messages[:-1] if prompt.prefilled else prompt.messages
        new = len([*takewhile(lambda each: each.role != "assistant", reversed(messages))])
        if new == len(messages):
            return 0
        texts = (_without_middle(each, longest).content for each in prompt.messages[len(messages) - new :])
        lengths = (MARKUP + len(self._vocabulary.encode(text, special=False)) for text in texts)
        return max(0, tokens - sum(lengths))

    def _mark_answer(self, form: Form, prompt: ChatPrompt) -> AnswerMarkup:
        vocabulary = self._vocabulary
        marks = vocabulary.special_tokens.intersection(vocabulary.encode(form.marks, special=True))
        names = {token: vocabulary.text_of(token) for token in marks}
        ends = frozenset(names.pop(token).decode() for token in marks & vocabulary.end_tokens)
        return AnswerMarkup(form, names, ends, prompt)

    @cached_property
    def _kind(self) -> tuple[ToolFamily | None, tuple[str, str] | None]:
        """The family of the model's markup, and the marks of its thoughts."""
        source = "" if self._is_base else self._vocabulary.chat_template or CHATML
        return family_of(source), find_thought(source)

    def _answer_room(self, max_tokens: int | None) -> int:
        share = self._n_ctx // ANSWER_SHARE
        return share if max_tokens is None else min(max_tokens, share)

    def _render(self, prompt: ChatPrompt) -> tuple[list[int], bool]:
        """The tokens of a chat, and whether the answer begins within a thought."""
        # The beginning of the answer, if the prompt has one, follows the rendered template's markup.
        begins, beginning = prompt.prefilled and not self._is_base, prompt.messages[-1].content
        if begins:
            prompt = replace(prompt, messages=prompt.messages[:-1])
        family, thought = self._kind
        said = self._markup.guarded_chat(turns_for(prompt, family))
        text = self._template.render(said.messages, said.variables, said.tools)
        opens, closes = (mark.strip() for mark in thought or ("", ""))
        opened = bool(opens) and text.rstrip().endswith(opens)
        if begins and opened:
            text, opened = self._continue_thought(text, beginning, opens, closes)
        elif begins:
            opened = bool(opens) and beginning.lstrip().startswith(opens) and closes not in beginning
            text += self._markup.guard(beginning)
        tokens = self._tokens(text, self._markup.encode)
        return tokens if tokens[:1] == self._start else [*self._start, *tokens], opened

    def _continue_thought(self, rendered: str, beginning: str, opens: str, closes: str) -> tuple[str, bool]:
        """A rendering that ends in a thought, with the beginning of the answer, and whether it goes on with a
        thought. The thought is closed, unless the beginning opens it too, or ends it."""
        upto = rendered.rstrip()
        thought, end, answer = beginning.partition(closes)
        if thought.lstrip().startswith(opens):
            rendered, thought = upto, thought.lstrip().removeprefix(opens)
        elif not end:
            return f"{upto}\n\n{closes}\n\n{self._markup.guard(beginning)}", False
        return f"{rendered}{self._markup.guard(thought)}{end}{self._markup.guard(answer)}", not end

    @cached_property
    def _infill(self) -> Infill | None:
        format = fim_format(self._vocabulary, self._model)
        return None if format is None else Infill(format, self._prefill_s)

    def _fim(self, prompt: FimPrompt, max_tokens: int | None, workspace: str | None) -> Encoded:
        if self._infill is None:
            raise FimUnsupported(f"{self._model or 'the model'} was not trained to fill in the middle")
        room = self._n_ctx - self._answer_room(max_tokens) - len(self._start)
        tokens, format = self._infill.encode(prompt, room, workspace), self._infill.format
        rule = StopRule(Gap.of(prompt)) if prompt.tidy else None
        return Encoded(
            [*self._start, *tokens],
            format.end_tokens,
            stop=format.stop,
            rule=rule,
            early_end=prompt.tidy and not prompt.invoked,
        )


def _without_middle(turn: Message, longest: int) -> Message:
    """A turn; the result of a call with at most ``longest`` characters of its beginning and its end."""
    text, excess = turn.content, len(turn.content) - longest
    if turn.role != "tool" or excess <= 0:
        return turn
    begins, ends = text[: longest // 2], text[longest // 2 + excess :]
    return replace(turn, content=f"{begins}\n[{excess:,} characters are left out here]\n{ends}")

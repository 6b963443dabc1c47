"""The text of one request from the bytes of its tokens: whole code points, no stop strings, by channel."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from itertools import accumulate

from msgspec.structs import replace

from localspec.completion.stopping import StopRule
from localspec.protocol.requests import CallBegun, Delta, Likely, Token
from localspec.tools.families import Form, count_undecided
from localspec.tools.grammar import AnswerMarkup
from localspec.tools.parser import AnswerPart, Parser


class TextStream:
    """Takes tokens with :meth:`push`, returns the text that is certain with :meth:`take`.

    A token's text is held back while the end of the text could still become a stop string; the bytes of an
    unfinished character wait for the token that ends it, and are dropped at the end. With a ``rule`` all text
    is held back until the rule or :meth:`flush` ends it. In a text of a ``form`` stop strings hold for the
    answer alone, not for thoughts, calls and markup."""

    def __init__(self, stop: Seq[str] = (), rule: StopRule | None = None, form: Form | None = None) -> None:
        self._stop, self._rule = tuple(stop), rule
        self._parser = Parser(form) if form is not None and self._stop else None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[Token] = []
        self._held_texts: list[str] = []
        """the text of each token that is held back"""
        self._tail = ""
        """the part of these texts that is searched for stop strings: what is certain to be of one channel"""
        self._ready: list[Token] = []
        self._ready_text = ""
        self.text = ""
        """all text taken so far"""
        self.stop: str | None = None
        """the stop string that ended the text; None if none did"""

    def push(
        self, token: int, piece: bytes, source: str, logprob: float | None = None, top: Seq[Likely] = ()
    ) -> bool:
        """Add a token; return True if it completed a stop string, or an end by the rule: the text ends
        before that."""
        text = self._decoder.decode(piece)
        made = Token(token, source, len(text), logprob, tuple(top))
        if not self._stop and self._rule is None:
            self._ready.append(made)
            self._ready_text += text
            return False
        self._held.append(made)
        self._held_texts.append(text)
        self._tail += text if self._parser is None else _searchable(self._parser.feed(text))
        end = self._end(text)
        if end is not None:
            self._cut(end)
            return True
        if self._rule is None:
            self._release_certain()
        return False

    def _end(self, new: str) -> int | None:
        """The number of held characters to keep if the newest, ``new``, end the text; None if they do not."""
        ruled = None if self._rule is None else self._rule.feed(new)
        found = [(at + len(stop), at, stop) for stop in self._stop if (at := self._tail.find(stop)) >= 0]
        if not found:
            return ruled
        # The stop string that was completed first, so that the text does not depend on token borders.
        _, at, stop = min(found)
        if ruled is not None and ruled < at:
            return ruled
        self.stop = stop
        return at

    def _release_certain(self) -> None:
        """Release the tokens in which no stop string can begin any more."""
        safe, n, length = len(self._tail) - count_undecided(self._tail, self._stop), 0, 0
        while n < len(self._held) and length + self._held[n].chars <= safe:
            length += self._held[n].chars
            n += 1
        self._release(n)

    def _cut(self, length: int) -> None:
        """Release ``length`` of the held characters and drop the rest."""
        n = 0
        while length > 0 and n < len(self._held):
            held, text = self._held[n], self._held_texts[n][:length]
            self._held[n], self._held_texts[n] = replace(held, chars=len(text)), text
            length -= held.chars
            n += 1
        del self._held[n:], self._held_texts[n:]
        self._release(n)

    def _release(self, n: int) -> None:
        self._ready += self._held[:n]
        text = "".join(self._held_texts[:n])
        self._ready_text, self._tail = self._ready_text + text, self._tail[len(text) :]
        del self._held[:n], self._held_texts[:n]

    def flush(self, *, cut: bool = False) -> bool:
        """Release all held text, because it has ended, ``cut`` or by itself; return True if a stop string in
        what was not certain before ends it."""
        if self._parser is not None:
            self._tail += _searchable(self._parser.finish(cut=cut))
            if (end := self._end("")) is not None:
                self._cut(end)
                return True
        self._release(len(self._held))
        return False

    def take(self) -> Delta | None:
        """Return the text that has become certain since the last call; None if there is none."""
        if not self._ready:
            return None
        delta = Delta(self._ready_text, tuple(self._ready))
        self._ready, self._ready_text = [], ""
        self.text += delta.text
        return delta


def _searchable(pieces: Iterable[AnswerPart]) -> str:
    """The text of ``pieces``, with half of a surrogate pair for each character that is not of the answer."""
    return "".join(p.text if p.channel == "answer" else "\ud800" * p.source for p in pieces)


class Channels:
    """Splits a chat's deltas: answer, thoughts, tool calls. A token is published whole, in the delta of its
    last character; markup, which is in no delta, belongs to the one before it."""

    def __init__(self, marked: AnswerMarkup) -> None:
        self.parser = Parser(marked.form)
        self._tokens: list[Token] = []
        self._pieces: list[AnswerPart] = []
        """held back: tokens, and the parts of their text that are certain"""
        self._published = 0
        """characters of the first of these tokens that are published"""
        self.thinking_tokens = 0
        """tokens of thoughts so far, without marks"""

    def split(self, delta: Delta | None, *, ended: bool, cut: bool = False) -> list[Delta]:
        """The deltas that one of the whole text makes certain; ``ended``: it is the last one; ``cut``: before
        the text's own end."""
        deltas = self._split(delta, ended=ended, cut=cut)
        for each in deltas:
            if each.channel == "thinking":
                self.thinking_tokens += sum(token.chars > 0 for token in each.tokens)
        return deltas

    def _split(self, delta: Delta | None, *, ended: bool, cut: bool) -> list[Delta]:
        if delta is not None and self.parser.plain and not self._tokens:
            self.parser.feed(delta.text)
            return [delta]
        if delta is not None:
            self._pieces += self.parser.feed(delta.text)
            self._tokens += delta.tokens
        if ended:
            self._pieces += self.parser.finish(cut=cut)
        ends = [end - self._published for end in accumulate(token.chars for token in self._tokens)]
        certain = sum(piece.source for piece in self._pieces)
        ready = self._take(certain if ended else max((end for end in ends if end <= certain), default=0))
        done = sum(piece.source for piece in ready)
        whole = bisect_right(ends, done) if ready or ended else 0
        tokens, self._tokens = self._tokens[:whole], self._tokens[whole:]
        self._published = done - ends[whole - 1] if whole else self._published + done
        return _deltas(ready or [AnswerPart(None, "", 0)], tokens, ends)

    def _take(self, length: int) -> list[AnswerPart]:
        """Take the pieces of the next ``length`` characters, without one that they only begin."""
        taken, at = [], 0
        while self._pieces and at + self._pieces[0].source <= length:
            taken.append(self._pieces.pop(0))
            at += taken[-1].source
        piece, n = self._pieces[0] if self._pieces else AnswerPart(None, "", 0), length - at
        if n and (piece.channel is None or len(piece.text) == piece.source):
            taken.append(piece._replace(text=piece.text[:n], source=n))
            self._pieces[0] = piece._replace(text=piece.text[n:], source=piece.source - n)
        return taken


def _deltas(pieces: Seq[AnswerPart], tokens: Seq[Token], ends: Seq[int]) -> list[Delta]:
    """The deltas of whole tokens, which end at ``ends`` of the pieces' sources."""
    deltas: list[Delta] = []
    taken = claimed = at = 0
    for piece in pieces:
        if not deltas or (piece.channel and deltas[-1].text and _kind(deltas[-1]) != _kind(piece)):
            deltas.append(Delta("", ()))
            claimed = 0
        last = deltas[-1]
        if piece.channel:
            last = replace(last, channel=piece.channel, call=piece.call)
        own = []
        while taken < len(tokens) and ends[taken] <= at + piece.source:
            inside = ends[taken] - at
            # A text that was translated belongs to the token that ends it.
            shown = inside if len(piece.text) == piece.source else len(piece.text) * (inside == piece.source)
            upto = max(claimed, len(last.text) + shown)
            own.append(replace(tokens[taken], chars=upto - claimed))
            taken, claimed = taken + 1, upto
        at += piece.source
        deltas[-1] = replace(last, text=last.text + piece.text, tokens=(*last.tokens, *own))
    return [delta for delta in deltas if delta.text or delta.tokens]


def _kind(part: Delta | AnswerPart) -> tuple[str | None, CallBegun | None]:
    return part.channel, part.call

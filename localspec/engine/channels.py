"""From a chat's text to deltas by channel: answer, thoughts, tool calls."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from msgspec.structs import replace

from localspec.protocol.requests import CallBegun, Delta, Token
from localspec.tools.grammar import AnswerMarkup
from localspec.tools.parser import AnswerPart, Parser


class Channels:
    """Splits deltas. A token is published whole, in the delta of its last character; markup, which is in no
    delta, belongs to the one before it."""

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


def _deltas(pieces: Sequence[AnswerPart], tokens: Sequence[Token], ends: Sequence[int]) -> list[Delta]:
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

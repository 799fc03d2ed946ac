"""Finds which of many texts occur in a body, in one pass over it however many there are.

With 1,000 webhooks an installation has thousands of texts to look for in every event: one search for each is slower
than everything else that happens to the event. So an automaton looks for a few bytes of each, its mark, and a text is
looked for only where its mark occurs. An automaton of whole texts takes several times the memory and time to build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

__all__ = ["TextSearch"]

FEW = 4
"""So many texts are found faster one by one than by the automaton."""

MARK = 8
"""The bytes of a mark: more take memory, fewer occur by chance."""

SLICE = 64 * 1024
"""Marks are collected from so many bytes at a time: a body may consist of nothing else."""

Find = Callable[..., list[tuple[int, int, int]]]


class TextSearch:
    """Texts in the order in which they are replaced. They may overlap, and contain each other."""

    __slots__ = ("_find", "_marked", "texts")

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = tuple(texts)
        self._find: Find | None = None
        self._marked: list[list[int]] = []
        if len(self.texts) > FEW:
            # commands import this module too, and have to start fast
            from ahocorasick_rs import BytesAhoCorasick

            marked = _marks(self.texts)
            self._find, self._marked = BytesAhoCorasick(marked).find_matches_as_indexes, list(marked.values())

    def occurs_in(self, body: bytes) -> bool:
        """Whether one of the texts occurs."""
        return bool(self.found_in(body))

    def found_in(self, body: bytes) -> list[int]:
        """Return the positions of all texts that occur, also inside of others, in their order."""
        find = self._find
        if find is None:
            # `in` would take a text for a number at first, which costs an exception inside of Python
            return [at for at, text in enumerate(self.texts) if body.find(text) >= 0]
        if not find(body):
            return []
        # marks may overlap
        marks = {mark for part in _slices(body) for mark, _, _ in find(part, overlapping=True)}
        return sorted(at for mark in marks for at in self._marked[mark] if self.texts[at] in body)


def _slices(body: bytes) -> Iterator[bytes]:
    for begin in range(0, len(body), SLICE):
        # a mark that begins in this slice may end in the next one
        yield body[begin : begin + SLICE + MARK - 1]


def _marks(texts: Sequence[bytes]) -> dict[bytes, list[int]]:
    """The positions of the texts by mark. Many tokens begin or end alike, so it is the part that the fewest share."""
    parts = [_parts(text) for text in texts]
    shared = Counter(part for of_text in parts for part in of_text)
    marked: dict[bytes, list[int]] = {}
    for at, of_text in enumerate(parts):
        marked.setdefault(min(of_text, key=shared.__getitem__), []).append(at)
    return marked


def _parts(text: bytes) -> set[bytes]:
    last = max(0, len(text) - MARK)
    return {text[begin : begin + MARK] for begin in (*range(0, last, MARK), last)}

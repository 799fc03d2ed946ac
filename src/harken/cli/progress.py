"""How a long copy goes on: one line on a terminal that changes, a line now and then anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from harken.cli.show import clean

__all__ = ["Terminal"]

WIDTH = 100


class Terminal:
    """Tells on standard error, so that what is printed at the end can be read by a program."""

    def __init__(self) -> None:
        self._changing = sys.stderr.isatty()
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._changing and self._said:
            print(file=sys.stderr)

    def waits(self, writers: Sequence[str]) -> None:
        self._tell("Waiting: " + "; ".join(writers))

    def copied(self, counts: Mapping[str, int]) -> None:
        if self._changing:
            self._tell("Copied " + ", ".join(f"{number} {kind}" for kind, number in counts.items() if number))

    def _tell(self, words: str) -> None:
        words = clean(words)
        if words == self._said:
            return
        self._said = words
        if self._changing:
            print(f"\r{words[:WIDTH]:<{WIDTH}}", end="", file=sys.stderr, flush=True)
        else:
            print(words, file=sys.stderr, flush=True)

"""Retention goes in slices, and leaves the store to others between them."""

from __future__ import annotations

from harken.app.housekeeping import repeat_slices
from harken.testing import HandClock


class Resting(HandClock):
    def __init__(self) -> None:
        super().__init__()
        self.rests: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.rests.append(round(seconds, 6))
        await super().sleep(seconds)


async def test_after_each_slice_others_have_as_long_as_it_took() -> None:
    clock, slices = Resting(), [(0.25, 7), (0.5, 3), (0.125, 0), (9.0, 9)]

    async def slice() -> int:
        seconds, rows = slices.pop(0)
        clock.advance(seconds)
        return rows

    assert await repeat_slices(slice, clock) == 10
    assert clock.rests == [0.25, 0.5]
    assert slices == [(9.0, 9)]

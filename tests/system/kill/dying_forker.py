"""Forks a Harken that kills itself with SIGKILL between the effect of a request and its answer, if a file says so."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from harken.operate import idempotency
from harken.operate.idempotency import Answer
from harken.operate.operator import Operator
from tests.system.kill import process_forker

MARK = "die-before-the-answer"
_once = Operator.once


async def once(
    self: Operator, key: str, fingerprint: str, act: Callable[[], Awaitable[Answer]], *, secret: bool = False
) -> Answer:
    async def act_and_die() -> Answer:
        answer = await act()
        mark = Path(sys.argv[1], MARK)
        if mark.exists():
            mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return await _once(self, key, fingerprint, act_and_die, secret=secret)


if __name__ == "__main__":
    Operator.once = once  # type: ignore[method-assign]
    # lives are short here: a request that nobody answered for a moment was lost
    idempotency.STALLED_SECONDS = 0.2
    process_forker.main(Path(sys.argv[1]), int(sys.argv[2]))

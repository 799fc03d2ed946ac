"""What an agent writes: whole in a file up to a limit, its end for the journal, and what it tells of its session."""

from __future__ import annotations

import os
import re
from pathlib import Path

from harken.clock import Clock
from harken.private_files import make_private
from harken.run.agents.result import Usage, usage_of
from harken.run.agents.ticket_files import visible

__all__ = ["AgentOutput"]

LARGEST_ARTIFACT = 20_000_000
KEPT_TAIL = 4_000
_LONGEST_LINE = 1_000_000
_CUT = b"\n[the rest is not kept]\n"
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")


class AgentOutput:
    """Takes the output of one start. `usage` is what the CLI said so far, `last_at` when it last wrote anything."""

    def __init__(self, artifact: Path, clock: Clock) -> None:
        make_private(artifact.parent)
        self.artifact = artifact
        self.usage = Usage()
        self.last_at = clock.monotonic()
        self._clock = clock
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(artifact, flags, 0o600), "wb", buffering=0)
        self._room = LARGEST_ARTIFACT
        self._tail = b""
        self._line = b""

    def add(self, chunk: bytes, out: bool) -> None:
        self.last_at = self._clock.monotonic()
        self._keep(chunk)
        self._tail = (self._tail + chunk)[-8 * KEPT_TAIL :]
        if not out:
            return
        *lines, self._line = (self._line + chunk).split(b"\n")
        for line in lines:
            self._note(line)
        if len(self._line) > _LONGEST_LINE:
            self._line = b""

    def _keep(self, chunk: bytes) -> None:
        if self._room <= 0:
            return
        self._file.write(chunk[: self._room] if len(chunk) < self._room else chunk[: self._room] + _CUT)
        self._room -= len(chunk)

    def _note(self, line: bytes) -> None:
        told = usage_of(line)
        if told is not None:
            self.usage = self.usage.updated(told)

    def close(self) -> None:
        self._note(self._line)
        self._line = b""
        self._file.close()

    @property
    def tail(self) -> str:
        """The end of the output as text that can be shown anywhere."""
        return visible(_ESCAPES.sub("", self._tail.decode("utf-8", "replace"))).strip()[-KEPT_TAIL:]

"""Child processes that are measured from outside, and the files of /proc that say what they used."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.request import urlopen

import msgspec

__all__ = [
    "ROOT",
    "Child",
    "child",
    "counts",
    "cpu_seconds",
    "family_cpu_seconds",
    "harken",
    "replicas",
    "report",
    "rss_megabytes",
    "status",
    "until",
]

ROOT = Path(__file__).parent.parent
PAGE = os.sysconf("SC_PAGE_SIZE")
PATIENCE = 240.0
READY = b"harken is ready at "


class Child:
    """A process that talks in lines of JSON on its standard streams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def hear(self, patience: float = PATIENCE) -> Any:
        """The next line that the child says. Raise when it ended instead, or says nothing for so many seconds."""
        line = self.line(patience)
        return msgspec.json.decode(line)

    def line(self, patience: float = PATIENCE) -> bytes:
        stream = cast(BinaryIO, self._process.stdout)
        if not select.select([stream], [], [], patience)[0]:
            raise RuntimeError(f"{self._process.args!r} said nothing for {patience:.0f} s")
        line = stream.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with code {self._process.wait()}")
        return line

    def tell(self, value: Any) -> None:
        stream = cast(BinaryIO, self._process.stdin)
        stream.write(msgspec.json.encode(value) + b"\n")
        stream.flush()

    def kill(self) -> None:
        """As a crash does: nothing is finished or given up."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@contextmanager
def child(*args: str) -> Iterator[Child]:
    """Run `python -m args…` until the block is left."""
    process = subprocess.Popen(
        # unbuffered, so that waiting for the pipe is waiting for the next line
        [sys.executable, "-m", *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        cwd=ROOT,
    )
    started = Child(process)
    try:
        yield started
    finally:
        started.end()


def report(module: str, question: Any, patience: float = PATIENCE) -> Any:
    """What a child that answers one question says."""
    with child(module) as asked:
        asked.tell(question)
        return asked.hear(patience)


@contextmanager
def harken(directory: Path, *options: str) -> Iterator[tuple[Child, str]]:
    """`harken start` on any free port; the process, and the address it is ready at."""
    with replicas(directory, 1, *options) as [started]:
        yield started


@contextmanager
def replicas(directory: Path, count: int, *options: str) -> Iterator[list[tuple[Child, str]]]:
    """As many of them, started at once."""
    words = ("harken.cli", "--config", str(directory), "start", "--port", "0", *options)
    with ExitStack() as stack:
        started = [stack.enter_context(child(*words)) for _ in range(count)]
        yield [(one, _ready_at(one)) for one in started]


def _ready_at(started: Child) -> str:
    line = started.line()
    while not line.startswith(READY):
        line = started.line()
    return line.removeprefix(READY).split()[0].decode()


def status(url: str) -> dict[str, Any]:
    """What a controller says of itself."""
    with urlopen(f"{url}/api/status", timeout=30) as answer:
        return cast("dict[str, Any]", msgspec.json.decode(answer.read()))


def counts(url: str) -> dict[str, int]:
    """How much of everything the controller's store holds."""
    return cast("dict[str, int]", status(url)["counts"])


def until(holds: Any, seconds: float, what: str) -> None:
    """Wait until it holds. Raise when that takes longer."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.1)


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the process so far, in nanoseconds: `/proc` counts ticks of 10 ms."""
    # the number that clock_getcpuclockid(3) gives for a process
    clock = (~pid << 3) | 2
    try:
        return time.clock_gettime(clock)
    except OSError as error:
        raise ProcessLookupError(f"there is no process {pid}") from error


def family_cpu_seconds(pid: int) -> dict[int, float]:
    """The same for a process and its children, by process: one that ends meanwhile is left out of a difference."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    found = {}
    for one in (pid, *children):
        with suppress(FileNotFoundError, ProcessLookupError):
            found[one] = cpu_seconds(one)
    return found


def rss_megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1_000_000

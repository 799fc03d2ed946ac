"""A program that starts an agent, ends it when it must end, and leaves no process of it behind.

    python process_tree_supervisor.py REPORT_FD LEASE_UNTIL MARGIN GRACE PROGRAM [ARGUMENT…]

Harken writes `until SECONDS` to its input each time the claim of the run was renewed, and `end` to end the agent, or
`end SECONDS` with another grace. The end of that input means that Harken is gone, and ends the agent too. Without a
renewal the agent is ended `MARGIN` seconds before the lease is over, by the clock that also counts while the machine
sleeps: nobody else may claim the run before. Ending means SIGTERM, up to `GRACE` seconds, then SIGKILL, for every
process that descends from the agent, also for those that left its session: on Linux they become our children when
their parent dies.

What happened is told on REPORT_FD as lines of JSON. This file needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TICK = 0.25
"""The longest nap in seconds. Timers stand still while the machine sleeps, so the clock is looked at."""
LAST_WORDS = 2.0
"""Seconds for the processes that an agent leaves behind when it exits by itself."""
KILLING = 10.0
"""Seconds after which we give up on processes that the kernel does not end."""
CANNOT_RUN = 126
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LINUX = sys.platform == "linux"
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    return time.clock_gettime(_BOOT)


def prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Supervisor:
    def __init__(self, report: int, until: float, margin: float, grace: float) -> None:
        self.report = report
        self.until = until
        self.margin = margin
        self.grace = grace
        self.agent = 0
        self.exit_code: int | None = None
        self.cause = ""
        self.kill_at = 0.0
        self.signalled = False
        self._input = b""
        self._input_open = True

    def tell(self, **facts: object) -> None:
        # Harken may be gone
        with contextlib.suppress(OSError):
            os.write(self.report, json.dumps(facts).encode() + b"\n")

    def run(self, command: list[str]) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake, waker = os.pipe()
        for end in (wake, waker, 0):
            os.set_blocking(end, False)
        os.set_inheritable(self.report, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in STOPS:
            signal.signal(number, self._on_stop)
        self._read_input()
        self._judge()
        if self.cause:
            self.tell(cause=self.cause, exit=None, left=0)
            return
        self.agent = start(command)
        self.tell(pid=self.agent)
        while not self._is_over():
            readable = [wake, 0] if self._input_open else [wake]
            ready, _, _ = select.select(readable, [], [], self._nap())
            if wake in ready:
                os.read(wake, 4096)
            self._read_input()
            self._judge()
        if not _LINUX:
            send(self.agent, signal.SIGKILL)
        self.tell(cause=self.cause, exit=self.exit_code, left=len(descendants()))

    def _on_stop(self, *_: object) -> None:
        self.signalled = True

    def _is_expired(self) -> bool:
        return boot_seconds() >= self.until - self.margin

    def _nap(self) -> float:
        return TICK if not self.cause else min(TICK, max(0.01, self.kill_at - boot_seconds()))

    def _read_input(self) -> None:
        while self._input_open:
            try:
                chunk = os.read(0, 4096)
            except BlockingIOError:
                break
            self._input_open = bool(chunk)
            self._input += chunk
        *lines, self._input = self._input.split(b"\n")
        for line in lines:
            word, _, value = line.partition(b" ")
            if word == b"until":
                self.until = float(value)
            elif word == b"end":
                self._end("asked", float(value) if value else None)

    def _judge(self) -> None:
        if self.signalled:
            self._end("signal")
        elif not self._input_open:
            self._end("parent")
        elif self._is_expired():
            self._end("claim")
        self._reap()
        if self.cause and boot_seconds() >= self.kill_at:
            send(self.agent, signal.SIGKILL)

    def _end(self, cause: str, grace: float | None = None) -> None:
        now = boot_seconds()
        # nobody may claim the run before the lease is over: by then everything is dead, whatever the grace is
        latest = max(now, self.until - self.margin / 2)
        kill_at = min(now + (self.grace if grace is None else grace), latest)
        if self.cause:
            # a second word can only shorten the grace
            self.kill_at = min(self.kill_at, kill_at)
            return
        self.cause, self.kill_at = cause, kill_at
        send(self.agent, signal.SIGTERM)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.agent:
                self.exit_code = os.waitstatus_to_exitcode(status)
                self._on_exit()

    def _on_exit(self) -> None:
        if self.exit_code in (-signal.SIGTERM, 128 + signal.SIGTERM) and not self.cause:
            # an operating system that stops a service signals all its processes, the agent perhaps before us
            time.sleep(2 * TICK)
            if self.signalled:
                self._end("signal", LAST_WORDS)
        self._end("exited", LAST_WORDS)

    def _is_over(self) -> bool:
        if self.exit_code is None:
            return self.cause != "" and boot_seconds() >= self.kill_at + KILLING
        return not descendants() or boot_seconds() >= self.kill_at + KILLING


def start(command: list[str]) -> int:
    """Start the agent in a session of its own, without input, bound to our life. Return its process id."""
    parent = os.getpid()
    agent = os.fork()
    if agent:
        return agent
    try:
        signal.set_wakeup_fd(-1)
        for number in (*STOPS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"it cannot be run: {error.strerror}\n".encode())
    os._exit(CANNOT_RUN)


def send(agent: int, number: signal.Signals) -> None:
    """Signal the agent's process group and every other process that descends from us."""
    if not agent:
        return
    with contextlib.suppress(OSError):
        os.killpg(agent, number)
    for pid in descendants():
        # it may be gone, or belong to another user
        with contextlib.suppress(OSError):
            os.kill(pid, number)
            if number == signal.SIGTERM:
                # one that is stopped would not see it
                os.kill(pid, signal.SIGCONT)


def descendants() -> list[int]:
    """Every living process below us. Elsewhere than on Linux only our children could be known, and none are listed."""
    if not _LINUX:
        return []
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # the name of a program stands in brackets, and may hold some
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    children.setdefault(int(parent), []).append(int(name))
    found, below = [], children.get(os.getpid(), [])
    while below:
        found += below
        below = [pid for parent in below for pid in children.get(parent, [])]
    return found


def main() -> None:
    report, until, margin, grace = int(sys.argv[1]), *map(float, sys.argv[2:5])
    Supervisor(report, until, margin, grace).run(sys.argv[5:])


if __name__ == "__main__":
    main()

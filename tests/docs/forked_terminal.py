"""A terminal at which `harken` is a forked process: a page is followed without the imports of each of its commands.

What is typed goes through a real shell. The `harken` that it finds hands its arguments, files, environment and
signals over to `tests/forked_harken.py`, and ends as the forked process ends.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.forked_harken import MESSAGE, fork_harken

__all__ = ["ForkedTerminal", "Typed", "forked_programs"]

SECONDS, END_SECONDS = 60, 10
STATE = re.compile(r"(export |unset |cd |\w+=\S*$|\w+=(['\"$]).*$)")
ENDLESS = re.compile(r"harken (--config \S+ )?start\b")
READY = re.compile(r"ready at (http://127\.0\.0\.1:\d+)")
SHOWN_ADDRESS = "http://127.0.0.1:9091"
PROGRAM = """\
#!{python} -IS
import json, os, signal, socket, sys
there = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
there.connect({address!r})
order = {{"args": sys.argv[1:], "env": dict(os.environ), "directory": os.getcwd()}}
socket.send_fds(there, [json.dumps(order).encode()], [1, 2, 0])
for one in (signal.SIGINT, signal.SIGTERM):
    signal.signal(one, lambda number, frame: there.send(bytes([number])))
code = int(there.recv(64))
sys.exit(code if code >= 0 else 128 - code)
"""


@contextmanager
def forked_programs(directory: Path) -> Iterator[Path]:
    """A directory for PATH, with a `harken` that is forked; it works until the block ends."""
    address = directory / "socket"
    program = directory / "bin" / "harken"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(address))
        door.listen()
        threading.Thread(target=_fork_for_all, args=(door, threading.Lock()), daemon=True).start()
        yield program.parent
        door.shutdown(socket.SHUT_RDWR)


def _fork_for_all(door: socket.socket, lock: threading.Lock) -> None:
    while True:
        try:
            program, _ = door.accept()
        except OSError:
            return
        threading.Thread(target=_fork_for, args=(program, lock), daemon=True).start()


def _fork_for(program: socket.socket, lock: threading.Lock) -> None:
    """Fork what the program asks for, pass its signals on, and tell it the exit code. Its death is the other's too."""
    with program:
        order, files, _, _ = socket.recv_fds(program, MESSAGE, 3)
        out, err, given = files
        ended, end = os.pipe()
        with lock:
            pid = fork_harken(json.loads(order), [out, err, end, given])
        for passed in (out, err, end, given):
            os.close(passed)
        with os.fdopen(ended, "rb") as told:
            while program.fileno() in select.select([program.fileno(), ended], [], [])[0]:
                number = program.recv(1)
                os.kill(pid, number[0] if number else signal.SIGKILL)
                if not number:
                    told.read()
                    return
            program.send(told.read())


@dataclass(frozen=True, kw_only=True)
class Typed:
    """A line that was typed, with its exit code and what came on the screen."""

    line: str
    code: int
    shown: str

    def __str__(self) -> str:
        return f"$ {self.line}\n{self.shown}exit code {self.code}"


class ForkedTerminal:
    """Types lines one by one; the shell's variables and directory stay, and what does not end runs on beside.

    Questions are answered by a word of theirs, otherwise with Enter or yes. `learned` are texts to type in place of
    those of the page, each found by an expression in what was shown before.
    """

    def __init__(
        self,
        directory: Path,
        environ: Mapping[str, str],
        *,
        answers: Mapping[str, str],
        typed: Mapping[str, str],
        learned: Mapping[str, str],
    ) -> None:
        self._directory, self._environ = directory, dict(environ)
        self._answers, self._typed, self._learned = answers, dict(typed), learned
        self._logs = directory.parent / f"{directory.name}-logs"
        self._logs.mkdir()
        self._running: subprocess.Popen[bytes] | None = None

    def types(self, line: str) -> Typed:
        """Type a line, and wait for its end, or until it is ready."""
        for shown, other in self._typed.items():
            line = line.replace(shown, other)
        if ENDLESS.match(line):
            return self._leaves_running(line)
        keeps_state = STATE.match(line) is not None
        kept = self._logs / "state"
        done = self._runs(f"set -a\n{line}\n{{ pwd; env -0; }} > '{kept}'" if keeps_state else line)
        if keeps_state and not done.code:
            where, _, variables = kept.read_text().partition("\n")
            self._directory = Path(where)
            self._environ = dict(one.split("=", 1) for one in variables.split("\0") if one)
        for shown, pattern in self._learned.items():
            if found := re.search(pattern, done.shown):
                self._typed[shown] = found[1]
        return Typed(line=line, code=done.code, shown=done.shown)

    def leaves(self) -> None:
        """Stop what still runs, as Ctrl-C does."""
        if self._running is not None:
            self._running.send_signal(signal.SIGINT)
            self._running.wait(SECONDS)
            self._running = None

    @property
    def address(self) -> str:
        """Where the controller is that was started last."""
        return self._typed[SHOWN_ADDRESS]

    def _leaves_running(self, line: str) -> Typed:
        self.leaves()
        log = self._logs / "start"
        with log.open("wb") as output:
            self._running = subprocess.Popen(
                ["bash", "-ec", f"exec {line.partition(' #')[0]} --port 0"],
                cwd=self._directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        until = time.monotonic() + SECONDS
        while not (ready := READY.search(log.read_text())):
            code = self._running.poll()
            if code is not None or time.monotonic() > until:
                return Typed(line=line, code=-1 if code is None else code, shown=log.read_text())
            time.sleep(0.02)
        self._typed[SHOWN_ADDRESS] = ready[1]
        return Typed(line=line, code=0, shown=log.read_text())

    def _runs(self, commands: str) -> Typed:
        keyboard, given = pty.openpty()
        read, write = os.pipe()
        shell = subprocess.Popen(
            ["bash", "-ec", commands],
            cwd=self._directory,
            env=self._environ,
            stdin=given,
            stdout=write,
            stderr=write,
            start_new_session=True,
        )
        os.close(given)
        os.close(write)
        shown = self._converse(read, keyboard)
        os.close(read)
        try:
            code = shell.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            code, shown = -1, f"{shown}\nIt did not end.\n"
        os.close(keyboard)  # not before its end: who still has a terminal that goes away is hung up
        return Typed(line=commands, code=code, shown=shown)

    def _converse(self, read: int, keyboard: int) -> str:
        """Read the screen to its end, and answer what is asked."""
        shown, answered, until = b"", 0, time.monotonic() + SECONDS
        while True:
            ready, _, _ = select.select([read], [], [], max(until - time.monotonic(), 0))
            piece = os.read(read, 65_536) if ready else b""
            if not piece:
                return shown.decode()
            shown += piece
            # what is typed is not on the screen, so that the next question stands in the same line
            question = shown[answered:].rpartition(b"\n")[2].decode()
            if question.endswith(": "):
                answered = len(shown)
                os.write(keyboard, f"{self._answer(question)}\n".encode())

    def _answer(self, question: str) -> str:
        found = [answer for word, answer in self._answers.items() if question.startswith(word)]
        return found[0] if found else "y" if "[y/N]" in question else ""

"""A page of the documentation as a person follows it: files to write, commands to type, and what these print.

In a page, a block `sh` has commands to type. A block `console` has commands behind `$` with what they print. A block
below "write `FILE`" or "into `FILE`" is that file. A command that does not end gets a terminal of its own.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["LOOKS", "Person", "Said", "Step", "Walk", "normalised", "steps_of", "transcript", "with_transcripts"]

SECONDS = 400
STEADY_SECONDS, MOST_SECONDS = 12, 60
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?:[Ww]rite|into) `([\w./-]+)`")
# what only looks may be asked again: it prints more when there is more
LOOKS = re.compile(r"harken (explain|status|doctor|budget|audit|\w+ (list|show))\b")
INLINE = re.compile(r"`(harken [^`]+)`")
SERVED = re.compile(r"http\.server (\d+)")

# a machine that runs the tests has other ports in use; everything else is typed as it is printed
PRELUDE = """\
harken() {
    case "$1" in start | demo) command harken "$@" --port 0 ;; *) command harken "$@" ;; esac
}
"""

VOLATILE = (
    (r"\b[0-9a-f]{12}\b|\b[0-9a-f]{32}\b", "ID"),
    (r"-[0-9a-f]{8}\b", "-ID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( ?[A-Z]{1,4}\b|[+-]\d\d:\d\d)?", "TIME"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\b\d+(\.\d+)? ?(ms|s|min)\b", "DURATION"),
    (r"\bin DURATION|DURATION ago|\bnow\b", "WHEN"),
    (r"\breads: \d+", "reads: COUNT"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\bpid \d+\b", "PID"),
    (r" {2,}", "  "),
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A block, with the prose above it."""

    prose: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that the block is; empty where it is none."""
        named = FILE.findall(self.prose) if self.language in ("yaml", "python") else []
        return named[-1] if named else ""


def steps_of(page: str) -> list[Step]:
    """The blocks of the page in their order; the last one, without a text, has the prose behind all of them."""
    found, end = [], 0
    for block in BLOCK.finditer(page):
        found.append(Step(prose=page[end : block.start()], language=block[1], text=block[2]))
        end = block.end()
    return [*found, Step(prose=page[end:], language="", text="")]


def transcript(text: str) -> list[tuple[str, str]]:
    """The commands of a block `console`, each with what it prints."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def normalised(printed: str) -> list[str]:
    """Without what differs each time: ids, times, durations, ports, widths of columns, and how often a line comes."""
    for pattern, word in VOLATILE:
        printed = re.sub(pattern, word, printed)
    lines = [line.strip() for line in printed.strip().splitlines()]
    return [line for number, line in enumerate(lines) if number == 0 or line != lines[number - 1]]


@dataclass(frozen=True, kw_only=True)
class Said:
    """What the page has below a command, and what the command printed. `goes_on`: it prints more as long as it runs."""

    command: str
    wanted: str
    printed: str
    goes_on: bool = False

    @property
    def is_same(self) -> bool:
        has, is_ = normalised(self.wanted), normalised(self.printed)
        return has == (is_[: len(has)] if self.goes_on else is_)

    def __str__(self) -> str:
        return f"$ {self.command}\nthe page has:\n{self.wanted}\nit printed:\n{self.printed}"


class Person:
    """Sits at several terminals in one directory. `ports` are used in place of those that the page names."""

    def __init__(self, directory: Path, environ: Mapping[str, str], ports: Mapping[str, str]) -> None:
        self.directory = directory
        self._prelude = directory.parent / "prelude.sh"
        self._prelude.write_text(PRELUDE)
        self._environ = {**environ, "BASH_ENV": str(self._prelude)}
        self._ports = ports
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}
        self._writes = 0

    def types(self, commands: str) -> subprocess.CompletedProcess[str]:
        """Type the commands at a terminal in which the environment is active, and wait for their end."""
        done = subprocess.run(
            self._shell(commands),
            cwd=self.directory,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        self._age_files()
        done.stdout = self._as_printed(done.stdout)
        return done

    def leaves_running(self, name: str, commands: str) -> None:
        """Type the commands, the last of which does not end, at a terminal of their own, and wait until it is ready."""
        log = self._log(name)
        with log.open("wb") as output:
            self._terminals[name] = subprocess.Popen(
                self._shell(commands),
                cwd=self.directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + SECONDS
        while not self._is_ready(name, commands):
            assert self._terminals[name].poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)

    def kills(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End what was left running, as by Ctrl-C or worse."""
        terminal = self._terminals.pop(name)
        os.killpg(terminal.pid, number)
        terminal.wait(SECONDS)

    def leaves(self) -> None:
        """Close all terminals."""
        for name in list(self._terminals):
            self.kills(name)

    def writes(self, file: str, text: str) -> None:
        path = self.directory / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(self._as_typed(text))

    def printed(self, name: str) -> str:
        """What a command that does not end has printed until now."""
        return self._as_printed(self._log(name).read_text())

    def waits_for(self, name: str, text: str) -> None:
        """Until a command that does not end has printed this."""
        until = time.monotonic() + SECONDS
        while text not in self.printed(name):
            assert time.monotonic() < until, self.printed(name)
            time.sleep(0.1)

    def address(self, name: str) -> str:
        """The address that a command that does not end has printed, on the port that it really has."""
        found = re.search(r"http://127\.0\.0\.1:\d+", self._log(name).read_text())
        assert found, self._log(name).read_text()
        return found[0]

    def _log(self, name: str) -> Path:
        return self.directory.parent / f"{name.replace(' ', '-').replace('/', '-')}.log"

    def _shell(self, commands: str) -> list[str]:
        active = ". .venv/bin/activate\n" if (self.directory / ".venv" / "bin" / "harken").exists() else ""
        return ["bash", "-ec", active + self._as_typed(commands)]

    def _is_ready(self, name: str, commands: str) -> bool:
        served = SERVED.search(self._as_typed(commands))
        if served is None:
            return "Ctrl-C stops it" in self.printed(name)
        with socket.socket() as knock:
            return knock.connect_ex(("127.0.0.1", int(served[1]))) == 0

    def _age_files(self) -> None:
        """Give what was written a time of its own: servers tell changes by the second, and no person is that quick."""
        self._writes += 1
        for file in self.directory.glob("shop/*"):
            if file.stat().st_mtime > time.time() - 100:
                at = time.time() - 100_000 + 10 * self._writes
                os.utime(file, (at, at))

    def _as_typed(self, text: str) -> str:
        for port, other in self._ports.items():
            text = text.replace(port, other)
        return text

    def _as_printed(self, text: str) -> str:
        for port, other in self._ports.items():
            text = text.replace(other, port)
        return re.sub(r"(ready at http://127\.0\.0\.1):\d+", r"\1:9091", text)


@dataclass(kw_only=True)
class Walk:
    """Follows pages. `failed` are the commands that did not work, and `said` is what the transcripts are about.

    With `rewriting` it waits until what a command prints does not change any more, else until it is what the page has.
    """

    person: Person
    endless: tuple[str, ...]
    rewriting: bool = False
    typed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)

    def follow(self, page: str) -> None:
        for step in steps_of(page):
            self._read(step.prose)
            if step.file:
                self.person.writes(step.file, step.text)
            elif step.language == "sh":
                self._type(step.text)
            elif step.language == "console":
                for command, wanted in transcript(step.text):
                    self._compare(command, wanted)

    def _read(self, prose: str) -> None:
        if "`kill -9`" in prose:
            self.person.kills("harken start")
        for command in INLINE.findall(prose):
            if command not in self.endless:
                self._type(command)

    def _type(self, commands: str) -> str:
        self.typed += commands.splitlines()
        for name in self.endless:
            if name in commands:
                self.person.leaves_running(name, commands)
                return self.person.printed(name)
        done = self.person.types(commands)
        if done.returncode:
            self.failed.append(f"{commands.strip()}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def _compare(self, command: str, wanted: str) -> None:
        """Type it, and again if it only looks, until it prints what the page has: a person takes longer to read."""
        goes_on = command in self.endless
        said = Said(command=command, wanted=wanted, printed=self._type(command), goes_on=goes_on)
        began = steady = time.monotonic()
        while not self._is_final(said, began, steady):
            time.sleep(0.2)
            printed = self.person.printed(command) if goes_on else self.person.types(command).stdout
            if normalised(printed) != normalised(said.printed):
                steady = time.monotonic()
            said = replace(said, printed=printed)
        self.said.append(said)

    def _is_final(self, said: Said, began: float, steady: float) -> bool:
        now = time.monotonic()
        if not said.goes_on and not LOOKS.match(said.command):
            return True
        if self.rewriting:
            return now - steady > STEADY_SECONDS or now - began > MOST_SECONDS
        return said.is_same or now - began > SECONDS


def with_transcripts(page: str, said: Sequence[Said]) -> str:
    """The page with what its commands print now, where that is something else than it has."""
    done, rest = "", page
    for one in said:
        before, command, rest = rest.partition(f"$ {one.command}\n{one.wanted}")
        assert command, f"the page has no transcript of {one.command}"
        kept = one.wanted if one.is_same else one.printed.rstrip() + "\n"
        done += f"{before}$ {one.command}\n{kept}"
    return done + rest

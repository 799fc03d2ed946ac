"""Translate a crontab: each line becomes a workflow with a schedule and a shell step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from harken.config.findings import Place, Report
from harken.config.importers import Imported, Variable, free_name, plain_text, slug, variable_name

__all__ = ["translate"]

TIMEOUT = "1h"
_NICKNAMES: Mapping[str, str] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_VARIABLE = re.compile(r"""\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?:"([^"]*)"|'([^']*)'|(.*?))\s*$""")
_SECRET = re.compile(r"(?i)auth|cookie|token|secret|key|passw")
# what `crontab -e` begins with on many systems
_HEADING = re.compile(r"(?i)m(in(ute)?)?\s+h(our)?\s+(dom|day).*")
# a job that somebody has switched off: no note of the one below it
_COMMENTED_JOB = re.compile(
    r"(?i)(@(reboot|hourly|daily|midnight|weekly|monthly|yearly|annually)|([\d*][\d*,/~-]*\s+){3}\S+\s+\S+)\s+\S.*"
)
_PERCENT = re.compile(r"(?<!\\)%")
# a name, and what may be a command after it: not an option, and not the end of one
_WORD_AND_COMMAND = re.compile(r"([A-Za-z_][\w.-]*)\s+[^\s<>|&;-]")
_SPACES = re.compile(r"[ \t]+")
_PLACEHOLDERS = ("{{", "}}")
# words that say nothing of what a command does
_WRAPPERS = frozenset(
    {"cd", "test", "nice", "ionice", "flock", "env", "sudo", "sh", "bash", "root", "exec", "time", "timeout", "chronic"}
)


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    cron: str
    user: str
    command: str
    stdin: str | None


def translate(
    text: str, *, file: str, zone: str, system: bool = False, is_user: Callable[[str], bool] = "root".__eq__
) -> Imported:
    """Return a workflow for each job. `zone` is that of the machine; `system` says that a user stands before the
    command, as in /etc/crontab. `is_user` tells such a file from others."""
    return _Crontab(file, zone, system, is_user).translated(text)


class _Crontab:
    def __init__(self, file: str, zone: str, system: bool, is_user: Callable[[str], bool]) -> None:
        self._file = file
        self._zone = zone
        self._system = system
        self._is_user = is_user
        self._commands: list[str] = []
        self._env: dict[str, str] = {}
        self._variables: dict[str, Variable] = {}
        self._report = Report()
        self._workflows: dict[str, Mapping[str, Any]] = {}
        self._places: dict[str, Place] = {}

    def translated(self, text: str) -> Imported:
        note = ""
        for number, line in enumerate(text.splitlines(), start=1):
            stripped = line.strip()
            place = Place(self._file, number, 1)
            if stripped.startswith("#"):
                note = stripped.lstrip("#").strip()
                note = "" if _HEADING.fullmatch(note) or _COMMENTED_JOB.fullmatch(note) else note
                continue
            if not stripped:
                note = ""
            elif (variable := _VARIABLE.match(line)) and not stripped.startswith("@"):
                self._set(place, variable[1], next(value for value in variable.groups()[1:] if value is not None))
            else:
                self._job(place, stripped, note)
                note = ""
        self._look_for_users()
        settings = {"steps": {"allow_shell": True}} if self._workflows else {}
        return Imported(
            workflows=self._workflows,
            places=self._places,
            settings=settings,
            variables=self._variables,
            findings=tuple(self._report.findings),
        )

    def _set(self, place: Place, name: str, value: str) -> None:
        if name == "MAILTO":
            fix = "Name who is told of failures: on_failure in harken.yaml"
            if value:
                self._report.warn(place, (name,), "what jobs print is not sent by mail", fix, "ignored")
        elif name == "CRON_TZ":
            # TZ is what commands see: cron itself does not look at it
            self._zone = value
        elif name == "RANDOM_DELAY":
            self._report.warn(place, (name,), "jobs are not delayed at random", "", "ignored")
        else:
            self._env[name] = value

    def _look_for_users(self) -> None:
        found = [match[1] for command in self._commands if (match := _WORD_AND_COMMAND.match(command))]
        if self._places and len(found) == len(self._commands) and all(map(self._is_user, found)):
            names = " or ".join(dict.fromkeys(found[:3]))
            message = f"every command begins with the name of a user ({names}), which is run as a part of it"
            fix = "Is it a system crontab, as /etc/crontab? Import it once more with --system"
            self._report.warn(next(iter(self._places.values())), (), message, fix)

    def _job(self, place: Place, text: str, note: str) -> None:
        line = self._parse(place, text)
        if line is None:
            return
        if not line.user:
            self._commands.append(line.command)
        name = free_name(_name_of(line.command), self._workflows)
        if line.user:
            message = f"it ran as {line.user}: here it runs as the user of Harken"
            self._report.warn(
                place, (name,), message, "Start Harken as that user, or use sudo in the command", "ignored"
            )
        self._places[name] = place
        self._workflows[name] = {
            "name": name,
            **({"description": plain_text(note)} if note else {}),
            # cron does not make up for what it missed while the machine was off, and does not try again what failed
            "trigger": {"schedule": {"cron": line.cron, "tz": self._zone, "missed": "skip"}, "max_attempts": 1},
            "steps": [self._step(line)],
        }

    def _step(self, line: _Line) -> dict[str, Any]:
        env = {name: self._value(name, value) for name, value in self._env.items() if name != "SHELL"}
        shell = self._env.get("SHELL", "/bin/sh")
        command: Any = plain_text(line.command)
        if shell != "/bin/sh" or any(sign in command for sign in _PLACEHOLDERS):
            command = [shell, "-c", _literal(line.command)]
        home = _literal(self._env["HOME"]) if "HOME" in self._env else "${HOME:-/}"
        step: dict[str, Any] = {"id": "run", "action": "shell", "command": command, "cwd": home}
        if env:
            step["env"] = env
        if line.stdin is not None:
            step["stdin"] = _literal(line.stdin)
        return {**step, "timeout": TIMEOUT}

    def _value(self, name: str, value: str) -> str:
        """The value of a variable; a reference to it where it may be a secret."""
        if not (_SECRET.search(name) and value):
            return _literal(value)
        wanted = variable_name("crontab", name)
        # a line further down may set it anew, for the jobs below it
        others = [known for known, one in self._variables.items() if one.value != value]
        reference = free_name(wanted, others, "_")
        self._variables[reference] = Variable(meaning=f"the variable {name} of the crontab", value=value)
        return f"${{{reference}}}"

    def _parse(self, place: Place, text: str) -> _Line | None:
        wanted = 1 if text.startswith("@") else 5
        fields = _SPACES.split(text, wanted + self._system)
        if len(fields) <= wanted + self._system:
            self._report.error(place, (), "this is no line of a crontab", "Is the user missing, or --system?", "syntax")
            return None
        cron = self._cron(place, fields[:wanted])
        if cron is None:
            return None
        command, *stdin = _PERCENT.split(fields[-1], 1)
        return _Line(
            cron=cron,
            user=fields[wanted] if self._system else "",
            command=command.replace("\\%", "%").strip(),
            stdin=_lines(_PERCENT.sub("\n", stdin[0]).replace("\\%", "%")) if stdin else None,
        )

    def _cron(self, place: Place, fields: list[str]) -> str | None:
        if not fields[0].startswith("@"):
            if any("~" in field for field in fields):
                fix = "Choose a fixed minute, or use jitter on a poll"
                self._report.error(place, (), "a random time (~) cannot be translated", fix, "not_yet")
                return None
            return " ".join(fields)
        cron = _NICKNAMES.get(fields[0].lower())
        if cron is None:
            fix = "Let systemd or launchd start the program"
            self._report.error(place, (), f"{fields[0]} is no time that a schedule has", fix, "not_yet")
        return cron


def _name_of(command: str) -> str:
    """A name from the first word that says what the command does."""
    for word in re.split(r"[\s;&|()<>]+", command):
        if not word or word.startswith("-") or "=" in word or word.isdigit() or "$" in word:
            continue
        base = word.rstrip("/").rsplit("/", 1)[-1]
        found = slug(base.rsplit(".", 1)[0] or base)
        if found and base not in _WRAPPERS and not (word.startswith("/") and word.endswith("/")):
            return found
    return "job"


def _lines(text: str) -> str:
    """The text with an end of its last line, as cron gives it to a command."""
    return text if text.endswith("\n") else f"{text}\n"


def _literal(text: str) -> str:
    """The text as a template that gives it back, in which nothing is a reference."""
    parts = re.split(r"(\{\{|\}\})", text)
    quoted = "".join("{{`" + part + "`}}" if part in _PLACEHOLDERS else part for part in parts)
    return plain_text(quoted)

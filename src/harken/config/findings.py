"""What is wrong with a configuration, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "CODES",
    "Code",
    "Finding",
    "Path",
    "Place",
    "Report",
    "Severity",
    "elsewhere",
    "path_text",
    "redact",
]

LONGEST = 1_000
"""Characters of a message: what it quotes may be a whole file that was put between the wrong quotes."""

Path: TypeAlias = tuple[str | int, ...]
Severity = Literal["error", "warning"]
Code = Literal[
    "syntax",
    "unreadable",
    "duplicate",
    "unknown_key",
    "missing",
    "wrong_type",
    "invalid",
    "unset",
    "unknown_name",
    "too_often",
    "clash",
    "expression",
    "step",
    "depends",
    "not_allowed",
    "not_yet",
    "empty_query",
    "ignored",
    "no_price",
    "too_short",
    "deprecated",
]
CODES: Mapping[Code, str] = {
    "syntax": "the file is not the YAML that Harken reads",
    "unreadable": "the file cannot be read",
    "duplicate": "a key stands twice in one mapping",
    "unknown_key": "there is no such setting",
    "missing": "a required setting is not there",
    "wrong_type": "the value has another type than the setting",
    "invalid": "the value is not one that the setting takes",
    "unset": "a `${…}` reference has no value",
    "unknown_name": "it names an integration, feed or service that is not there",
    "too_often": "the interval is below the floor",
    "clash": "two items claim the same name or webhook path",
    "expression": "a condition or template does not compile",
    "step": "a step of the workflow is wrong",
    "depends": "it needs an item that was refused",
    "not_allowed": "the agent may not use this integration; the old version of such a job does not run on",
    "not_yet": "this version does not have it",
    "empty_query": "the query asks for everything",
    "ignored": "it is accepted, and this version does not act on it",
    "no_price": "a limit in dollars, and a model without a price",
    "too_short": "the time is so short that it would be over all the time",
    "deprecated": "it still works, and is written in another way now",
}


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where something stands; lines and columns count from 1."""

    file: str
    line: int = 1
    column: int = 1


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong (`error`: the item is refused) or odd (`warning`: it runs). Holds no secret."""

    file: str
    line: int
    column: int
    path: Path = ()
    message: str
    fix: str = ""
    severity: Severity = "error"
    code: Code = "invalid"

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: "
        path = f"{path_text(self.path)}: " if self.path else ""
        kind = "warning: " if self.severity == "warning" else ""
        return where + kind + path + (f"{self.message}. {self.fix}" if self.fix else self.message)


class Report:
    """Collects what is found while one item is read. An item whose report has errors is refused."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self.findings = list(findings)

    @property
    def failed(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)

    def error(self, place: Place, path: Path, message: str, fix: str = "", code: Code = "invalid") -> None:
        self._add(place, path, message, fix, code, "error")

    def warn(self, place: Place, path: Path, message: str, fix: str = "", code: Code = "invalid") -> None:
        self._add(place, path, message, fix, code, "warning")

    def _add(self, place: Place, path: Path, message: str, fix: str, code: Code, severity: Severity) -> None:
        finding = Finding(
            file=place.file,
            line=place.line,
            column=place.column,
            path=path,
            message=message if len(message) <= LONGEST else f"{message[:LONGEST]}…",
            fix=fix,
            code=code,
            severity=severity,
        )
        self.findings.append(finding)


def path_text(path: Path) -> str:
    """`steps[2].prompt`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def elsewhere(place: Place, places: Iterable[Place]) -> str:
    """Where else something stands, as `pollers.yaml:7`; empty when `place` is all there is."""
    others = list(places)
    # by an alias it may stand twice at one place
    others.remove(place)
    return ", ".join(f"{at.file}:{at.line}" for at in others)


def redact(findings: Iterable[Finding], secrets: Iterable[str]) -> tuple[Finding, ...]:
    """Return the findings with every secret value replaced by ***, each only once and in the order of the files."""
    # one or two letters are no secret, and are found in every word
    values = sorted((secret for secret in set(secrets) if len(secret) > 2), key=len, reverse=True)
    shown = (msgspec.structs.replace(f, message=_hide(f.message, values), fix=_hide(f.fix, values)) for f in findings)
    unique = dict.fromkeys(shown)
    # what is said about a value that is not there yet only hides the cause
    unset = {_order(finding) for finding in unique if finding.code == "unset"}
    return tuple(sorted((f for f in unique if f.code == "unset" or _order(f) not in unset), key=_order))


def _order(finding: Finding) -> tuple[bool, str, int, int]:
    return "/" in finding.file, finding.file, finding.line, finding.column


def _hide(text: str, values: list[str]) -> str:
    for value in values:
        # quoted in a message a value may be escaped, so both forms go
        text = text.replace(value, "***").replace(repr(value)[1:-1], "***")
    return text

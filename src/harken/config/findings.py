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
    "other_places",
    "redact",
]

LONGEST = 1_000
"""Characters of a message: it may quote a value that is a whole file, because of a missing quote."""

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
    "not_installed",
    "deprecated",
    "trust",
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
    "not_installed": "it needs a package that is not installed here",
    "deprecated": "it still works, and is written in another way now",
    "trust": "strangers may be able to start something",
}


class Place(msgspec.Struct, frozen=True, gc=False):
    """A position in a file; lines and columns count from 1."""

    file: str
    line: int = 1
    column: int = 1


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong (`error`: the item is refused) or odd (`warning`: it runs). Holds no secret.

    `excerpt` is the line of a condition, with a caret below the place.
    """

    file: str
    line: int
    column: int
    path: Path = ()
    message: str
    fix: str = ""
    severity: Severity = "error"
    code: Code = "invalid"
    excerpt: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: "
        path = f"{format_path(self.path)}: " if self.path else ""
        kind = "warning: " if self.severity == "warning" else ""
        return where + kind + path + (f"{self.message}. {self.fix}" if self.fix else self.message)


class Report:
    """Collects the findings about one item. An item whose report has errors is refused."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self.findings = list(findings)

    @property
    def failed(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)

    def error(
        self, place: Place, path: Path, message: str, fix: str = "", code: Code = "invalid", excerpt: str = ""
    ) -> None:
        self._add(place, path, message, fix, code, "error", excerpt)

    def warn(self, place: Place, path: Path, message: str, fix: str = "", code: Code = "invalid") -> None:
        self._add(place, path, message, fix, code, "warning")

    def _add(
        self, place: Place, path: Path, message: str, fix: str, code: Code, severity: Severity, excerpt: str = ""
    ) -> None:
        finding = Finding(
            file=place.file,
            line=place.line,
            column=place.column,
            path=path,
            message=message if len(message) <= LONGEST else f"{message[:LONGEST]}…",
            fix=fix,
            code=code,
            severity=severity,
            excerpt=excerpt,
        )
        self.findings.append(finding)


def format_path(path: Path) -> str:
    """`steps[2].prompt`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def other_places(place: Place, places: Iterable[Place]) -> str:
    """Return the places but this one, as `pollers.yaml:7, pollers.yaml:9`."""
    others = list(places)
    # only once: a YAML alias can report the same position twice
    others.remove(place)
    return ", ".join(f"{at.file}:{at.line}" for at in others)


def redact(findings: Iterable[Finding], secrets: Iterable[str]) -> tuple[Finding, ...]:
    """Return the findings with every secret value replaced by ***, each only once and in the order of the files."""
    # values of one or two letters occur in every word, so they are not replaced
    values = sorted((secret for secret in set(secrets) if len(secret) > 2), key=len, reverse=True)
    shown = (
        msgspec.structs.replace(
            f, message=_hide(f.message, values), fix=_hide(f.fix, values), excerpt=_hide(f.excerpt, values)
        )
        for f in findings
    )
    unique = dict.fromkeys(shown)
    # other findings about an unset value are consequences of it
    unset = {_order(finding) for finding in unique if finding.code == "unset"}
    return tuple(sorted((f for f in unique if f.code == "unset" or _order(f) not in unset), key=_order))


def _order(finding: Finding) -> tuple[bool, str, int, int]:
    return "/" in finding.file, finding.file, finding.line, finding.column


def _hide(text: str, values: list[str]) -> str:
    for value in values:
        # a message may quote the value escaped, so both forms are replaced
        text = text.replace(value, "***").replace(repr(value)[1:-1], "***")
    return text

"""Complaints of CEL's compiler in plain words: what was meant, and a caret below the place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harken.errors import Misconfigured
from harken.suggest import suggest_clause

__all__ = ["FUNCTIONS", "InvalidCondition", "to_misconfigured"]

_LONGEST = 200
_MOST_SHOWN = 3
_CODE = re.compile(r"^[A-Z_]+: ")
_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNDECLARED = re.compile(r"undeclared reference to '([^']+)'")
_UNREADABLE = re.compile(r"token recognition error at: '(.*)'")
_OPERATOR = re.compile(r"'[_@]*([^'_@]+)[_@]*'")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LAST_WORD = re.compile(r"([A-Za-z_]\w*)\s*$", re.ASCII)

FUNCTIONS = (
    "all", "bool", "bytes", "charAt", "contains", "double", "duration", "dyn", "endsWith", "exists", "exists_one",
    "filter", "format", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours",
    "getMilliseconds", "getMinutes", "getMonth", "getSeconds", "has", "hasValue", "indexOf", "int", "join",
    "lastIndexOf", "lowerAscii", "map", "matches", "optMap", "or", "orValue", "replace", "reverse", "size", "split",
    "startsWith", "string", "substring", "timestamp", "trim", "type", "uint", "upperAscii", "value",
)  # fmt: skip
_OTHER_LANGUAGES: Mapping[str, str] = {
    "len": "size", "length": "size", "count": "size", "lower": "lowerAscii", "tolower": "lowerAscii",
    "tolowercase": "lowerAscii", "upper": "upperAscii", "toupper": "upperAscii", "touppercase": "upperAscii",
    "includes": "contains", "match": "matches", "any": "exists", "some": "exists", "every": "all", "str": "string",
    "float": "double", "strip": "trim", "defined": "has", "get": "orValue",
}  # fmt: skip
_OPERATORS: Mapping[str, str] = {"and": "&&", "or": "||", "not": "!"}
_SIGNS: Mapping[str, str] = {"=": "==", "&": "&&", "|": "||", "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'"}
_CONSTANTS: Mapping[str, str] = {
    "True": "true", "TRUE": "true", "False": "false", "FALSE": "false",
    "None": "null", "nil": "null", "NULL": "null", "undefined": "null",
}  # fmt: skip


class InvalidCondition(Misconfigured):
    """A condition that does not compile; `excerpt` is its line with a caret below the place, or empty."""

    def __init__(self, message: str, *, fix: str = "", excerpt: str = "") -> None:
        super().__init__(message, fix=fix)
        self.excerpt = excerpt


def to_misconfigured(source: str, message: str, variables: Sequence[str]) -> InvalidCondition:
    """Return CEL's compile error as `line:column: what is wrong, and what was meant`."""
    if "recursion" in message:
        return InvalidCondition("the condition is nested too deep; CEL allows 32 levels")
    lines = source.splitlines() or [""]
    found: dict[tuple[int, int], str] = {}
    for number, column, text in _ERROR.findall(message):
        if "*error*" not in text:
            line, at = int(number), int(column)
            written = lines[line - 1] if 0 < line <= len(lines) else ""
            begin, words = _describe(written, max(0, at - 1), text, variables)
            found.setdefault((line, begin + 1), words)
    if not found:
        return InvalidCondition(_shorten(_CODE.sub("", message)))
    shown = list(found.items())[:_MOST_SHOWN]
    meant = [words for _, words in shown if words.startswith("write ")]
    if meant:
        # what follows a wrong operator is a consequence of it
        shown = [(place, words) for place, words in shown if words in meant]
    (line, column), _ = shown[0]
    texts = dict.fromkeys(f"{line}:{column}: {words}" for (line, column), words in shown)
    return InvalidCondition("; ".join(texts), excerpt=_excerpt(lines, line, column))


def _describe(line: str, at: int, text: str, variables: Sequence[str]) -> tuple[int, str]:
    """Return where the mistake begins in the line, and what is wrong there."""
    if undeclared := _UNDECLARED.search(text):
        return _describe_name(line, at, undeclared[1], variables)
    word = _WORD.match(line, at)
    before = _LAST_WORD.search(line[:at])
    for match in (word, before):
        if match is None or match[0].strip().lower() not in _OPERATORS:
            continue
        name = match[0].strip()
        if name.lower() == "not" and re.match(r"not\s+in\b", line[match.start() :], re.IGNORECASE):
            return match.start(), f"write !(a in b) instead of a {name} in b"
        return match.start(), f"write {_OPERATORS[name.lower()]} instead of {name}"
    if word is not None and word[0] == "is":
        return at, "write == instead of is"
    if word is not None and word[0] in FUNCTIONS:
        return at, f"write .{word[0]}(…) instead of {word[0]} …"
    if line[max(0, at - 1) : at + 1] == "<>":
        return at - 1, "write != instead of <>"
    if unreadable := _UNREADABLE.search(text):
        sign = unreadable[1].strip()[:1]
        if sign == "=" and line[max(0, at - 2) : at] in ("==", "!="):
            return at - 2, f"write {line[at - 2 : at]} instead of {line[at - 2 : at]}="
        if sign in _SIGNS:
            return at, f"write {_SIGNS[sign]} instead of {sign}"
        if sign and sign in "\"'":
            return at, f"the text has no closing {sign}"
    plain = text.partition(" expecting ")[0].replace("'<EOF>'", "the end")
    return at, _shorten(_OPERATOR.sub(r"'\1'", plain))


def _describe_name(line: str, at: int, name: str, variables: Sequence[str]) -> tuple[int, str]:
    if line[at : at + 1] == "(":
        # CEL's position of a call is its parenthesis
        begin = at - len(name) if line[:at].endswith(name) else at
        if name.lower() in _OPERATORS:
            return begin, f"write {_OPERATORS[name.lower()]} instead of {name}"
        near = _OTHER_LANGUAGES.get(name.lower().replace("_", ""))
        return begin, f"there is no function {name}" + (
            f"; did you mean {near}?" if near else suggest_clause(name, FUNCTIONS)
        )
    if name in _CONSTANTS:
        return at, f"write {_CONSTANTS[name]} instead of {name}"
    root = name.partition(".")[0]
    return at, f"there is no variable {root}{suggest_clause(root, variables) or f'; use event.{name}'}"


def _excerpt(lines: Sequence[str], number: int, column: int) -> str:
    if not 0 < number <= len(lines):
        return ""
    written = lines[number - 1].expandtabs(1)
    begin = max(0, column - _LONGEST // 2)
    return f"{written[begin : begin + _LONGEST]}\n{' ' * (column - 1 - begin)}^"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"

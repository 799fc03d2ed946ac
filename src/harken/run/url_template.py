"""URLs with templates: a value can fill a place in a URL, but cannot choose the server or leave the path.

Values are percent-encoded. What encoding cannot prevent is refused: `..` as a part of a path, and a value that would
continue the name of a host.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from harken.errors import HarkenError, Refused
from harken.language.go_template import Template, compile_template
from harken.run.compiler import Compiler
from harken.run.scope import Names

__all__ = [
    "UNNAMED_HOST",
    "UNNAMED_HOST_FIX",
    "CompiledUrl",
    "compile_url",
    "has_credentials",
    "host_problem",
    "names_host",
]

UNNAMED_HOST = "a step with credentials must name its host, as a value could send them elsewhere"
CHANGED_HOST = "a value directly after the host could change it"
UNNAMED_HOST_FIX = "Write it as https://HOST/…; ${VARIABLE} may stand for a host from the environment"

_VALUE = "\0"
_ORIGIN = re.compile(r"(?i)https?://([^/?#\\]*)")
_AUTHORITY = re.compile(r"(?i)([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_PARAMETER = re.compile(r"[?&]([^=&#]+)=")
_CREDENTIAL = re.compile(r"(?i)auth|token|secret|password|passphrase|cookie|credential|signature|api[-_]?key|^key$")
_MOST_DECODINGS = 5
_HOST_FIX = "Write a / before the value, or the whole host as one value"


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledUrl:
    """`literal_host`: no value has a part in scheme, host or port."""

    render: Callable[[Names], str]
    literal_host: bool


def compile_url(source: str, compiler: Compiler, key: str) -> CompiledUrl:
    """Compile a URL that may contain templates. Problems are noted; rendering raises Refused for a harmful value."""
    if "{{" not in source:
        return CompiledUrl(render=lambda names: source, literal_host=True)
    template = compiler.or_problem(lambda: _compile_template(source), None, key)
    if template is None:
        return CompiledUrl(render=lambda names: "", literal_host=True)
    outline = template.outline()
    authority = _authority(outline)
    if _continues_host(authority):
        compiler.problem(CHANGED_HOST, key, suggestion=_HOST_FIX)
    begins_with_value = outline.startswith(_VALUE)

    def render(names: Names) -> str:
        return _render(template, names, begins_with_value, _VALUE not in authority)

    return CompiledUrl(render=render, literal_host=_VALUE not in authority)


def names_host(source: str) -> bool:
    """Whether no value has a part in scheme, host or port. A template that cannot be read counts as if it had none."""
    try:
        return "{{" not in source or _VALUE not in _authority(compile_template(source).outline())
    except HarkenError:
        return True


def host_problem(source: str, headers: Mapping[str, Any], query: Mapping[str, Any]) -> str:
    """Why a step that calls this address would be refused because of its host; empty if it would not."""
    if names_host(source):
        return ""
    if _continues_host(_authority(compile_template(source).outline())):
        return CHANGED_HOST
    return UNNAMED_HOST if has_credentials(source, headers, query) else ""


def _authority(outline: str) -> str:
    """What stands between the scheme and the path; a value if the scheme is not literal."""
    found = _ORIGIN.match(outline)
    return found[1] if found else _VALUE


def _compile_template(source: str) -> Template | None:
    return compile_template(source)


def has_credentials(url: str, headers: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    """Whether a request carries something that must not reach another server, judged by the names of its fields."""
    names: Iterable[str] = (*headers, *query, *_PARAMETER.findall(url))
    return "@" in url.partition("{{")[0] or any(map(_CREDENTIAL.search, names))


def _continues_host(authority: str) -> bool:
    """Whether a value ends the host, and something stands before it in the host."""
    host = authority.rpartition("@")[2]
    if ":" in host and not host.endswith("]"):
        host = host.rpartition(":")[0]
    return host.endswith(_VALUE) and host != _VALUE


def _render(template: Template, names: Names, begins_with_value: bool, literal_host: bool) -> str:
    pieces = template.pieces(names, _encode)
    if begins_with_value:
        first, rest = "".join(pieces[:1]), "".join(pieces[1:])
        _check_base(first, rest)
        if not rest:
            return first
    url = "".join(pieces)
    if not literal_host and not begins_with_value:
        _check_authority(url)
    _check_path(url)
    return url


def _encode(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _check_base(base: str, rest: str) -> None:
    """Check the value that a URL begins with: an address of its own, which what follows cannot change."""
    found = _ORIGIN.match(base)
    if found is None or "\\" in base or any(character <= " " or character == "\x7f" for character in base):
        raise Refused("the value that the URL begins with is not an http or https address")
    if "@" in found[1]:
        raise Refused("the value that the URL begins with contains credentials", fix="Send them as a header")
    if rest and (("#" in base) or (found.end() == len(base) and rest[0] not in "/?#")):
        raise Refused("the URL goes on in the middle of its first value", fix="Write a / after the value")


def _check_authority(url: str) -> None:
    found = _ORIGIN.match(url)
    if found is None or not _AUTHORITY.fullmatch(found[1]):
        raise Refused("a value makes an invalid host or port of the URL", fix="Use names and numbers there only")


def _check_path(url: str) -> None:
    """Refuse `.` and `..` as a part of the path, however they are written: servers decode and normalise differently."""
    found = _ORIGIN.match(url)
    path = re.split(r"[?#]", url[found.end() :] if found else url, maxsplit=1)[0]
    for _ in range(_MOST_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    segments = re.split(r"[/\\]", unicodedata.normalize("NFKC", path))
    if any(segment.partition(";")[0].strip() in (".", "..") for segment in segments):
        raise Refused("a value makes the URL climb out of its path", fix="A part of a path cannot be . or ..")

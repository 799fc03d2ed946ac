"""The address that a mail is from. The name beside it is ignored, because anybody can choose it.

A From header that can be read in two ways has no sender.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["allowlist_entry", "domain_of", "sender_of"]

LONGEST = 2_000
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_COMMENT = re.compile(r"\([^()]*\)")
_ANGLE = re.compile(r"([^<>]*)<([^<>]*)>\s*")
_ADDRESS = re.compile(r"([^\s@<>()\[\]\\,;:\"]+)@([^\s@<>()\[\]\\,;:\"]+)")
_DOMAIN = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_DEEPEST = 20


def sender_of(headers: Sequence[str]) -> str:
    """Return the only address in the From headers, in lower case; empty when there is none, or more than one."""
    if len(headers) != 1 or len(headers[0]) > LONGEST:
        return ""
    text = _QUOTED.sub(" ", headers[0])
    for _ in range(_DEEPEST):
        text, before = _COMMENT.sub(" ", text), text
        if text == before:
            break
    return address(_in_brackets(text.strip()))


def _in_brackets(text: str) -> str:
    """Return what is in the only pair of angle brackets, at the end; the text itself when there are none."""
    if "<" not in text and ">" not in text:
        return text
    found = _ANGLE.fullmatch(text)
    if found is None:
        return ""
    # "Doe, Jane <jane@…>" is a name with a comma, "eve@…, jane <jane@…>" are two people
    others = found[1].split(",")[:-1]
    return "" if any("@" in other for other in others) else found[2].strip()


def address(text: str) -> str:
    """Return the address in lower case, its domain as in DNS; empty when the text is no address."""
    found = _ADDRESS.fullmatch(text)
    domain = _dns_name(found[2]) if found else ""
    return f"{found[1].lower()}@{domain}" if found and domain else ""


def domain_of(sender: str) -> str:
    return sender.rpartition("@")[2]


def allowlist_entry(text: str) -> str:
    """Return an entry of an allowlist: an address, or a domain without @. Raise ValueError when it is neither."""
    written = text.strip().lower()
    local, at, domain = written.rpartition("@")
    whole = address(written) if local else _dns_name(domain)
    if not whole or "*" in whole or (at and not domain):
        raise ValueError(f"{text[:80]!r} is no sender: write name@example.com, @example.com or example.com")
    return whole


def _dns_name(domain: str) -> str:
    domain = domain.strip().rstrip(".").lower()
    try:
        domain = domain if domain.isascii() else domain.encode("idna").decode("ascii")
    except UnicodeError:
        return ""
    return domain if _DOMAIN.fullmatch(domain) and len(domain) <= 253 else ""

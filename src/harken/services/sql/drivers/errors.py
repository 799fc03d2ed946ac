"""The errors of the three drivers, which are classified by the database's codes.

None of them holds a value of a row: if a message of the database may quote one, only its code is used.
"""

from __future__ import annotations

from harken.errors import Misconfigured, NeedsAttention, RetryLater
from harken.extras import how_to_install

__all__ = ["not_installed", "refused_error", "timed_out", "unreachable", "untrusted_certificate"]

_LONGEST = 300


def unreachable(where: str, why: str) -> RetryLater:
    return RetryLater(f"{where} cannot be reached or is busy ({why})", fix="Look whether the database runs there")


def timed_out(where: str, seconds: float) -> RetryLater:
    fix = "Give the watermark column an index, or raise timeout (and page_timeout of the trigger)"
    return RetryLater(f"{where} gave no answer within {seconds:g} s", reason="timeout", fix=fix)


def refused_error(where: str, code: str, text: str = "", *, fix: str = "") -> NeedsAttention:
    """`text` is the database's message, if it can only be about names and grammar."""
    reason = " ".join(text.split())[:_LONGEST].rstrip(".")
    message = f"{where} refused the query: {reason} ({code})" if reason else f"{where} refused the query ({code})"
    return NeedsAttention(message, fix=fix or "Correct the query, then: harken triggers test")


def untrusted_certificate(where: str) -> NeedsAttention:
    fix = "Name the authority that signed it: ca: /path/to/ca.pem; or use the name that the certificate was made for"
    return NeedsAttention(f"the certificate of {where} is not trusted", fix=fix)


def not_installed(package: str) -> Misconfigured:
    return Misconfigured(f"{package} is not installed", fix=f"Install it with: {how_to_install('sql')}")

"""Errors of the driver and the server as Harken's own, which tell the caller whether to try again.

The driver's errors hold statements and values, so their text is not kept, nor are they kept as a cause.
"""

from __future__ import annotations

import ssl

from harken.backends.postgres.transaction_with_row_cache import Overtaken
from harken.errors import HarkenError, Misconfigured, StoreBusy, StoreUnavailable

__all__ = ["is_worth_repeating", "refusal", "translate"]

SERIALIZATION_FAILURES = frozenset({"40001", "40P01"})
"""Two transactions were in conflict, and the server rolled this one back."""

REFUSED = ("28", "3D", "42501")
"""The server does not accept the user, the database or the user's rights."""

REASONS = {
    "08": "the connection broke",
    "25006": "it is a standby, which cannot be written",
    "28": "it does not accept the user or the password",
    "3D": "there is no such database",
    "42501": "the user may not write there",
    "53100": "its disk is full",
    "53200": "it is out of memory",
    "53300": "it has too many connections",
    "57P": "it is shutting down or starting",
    "58": "it cannot read or write its files",
    "XX": "it found damaged data",
}
FIXES = {
    "25006": "Name the primary in the store's URL; nothing was lost",
    "28": "Check the store's URL",
    "3D": "Create the database, or check the store's URL",
    "42501": "GRANT the user the right to create tables in the schema",
    "53100": "Free some space; nothing was lost",
    "53300": "Raise max_connections, or lower the pool of each replica",
    "XX": "Look at the server's log, and restore a backup if it says so",
}


def _code_of(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def is_worth_repeating(error: BaseException) -> bool:
    """Whether another transaction was in the way, which the next try finds done."""
    return isinstance(error, Overtaken) or _code_of(error) in SERIALIZATION_FAILURES


def _is_refusal(error: BaseException) -> bool:
    """Whether trying again cannot help before a person has done something."""
    return _code_of(error).startswith(REFUSED)


def translate(error: BaseException, place: str) -> BaseException:
    """The error that the caller of the store should see. A fault of our own code is returned as it is."""
    if isinstance(error, HarkenError | AssertionError):
        return error
    code = _code_of(error)
    if is_worth_repeating(error):
        return StoreBusy(f"{place} rolled the transaction back for others that write the same rows", after=0.1)
    if code == "55P03":
        return StoreBusy(f"{place} has a row that stays locked for too long", after=1.0)
    if code == "57014":
        return StoreBusy(f"{place} took too long", after=1.0, fix="Read less at a time, or look at the server's load")
    if code[:2] in ("22", "23") or _is_unencodable(error):
        # the value cannot be stored, which is no trouble of the store
        return ValueError(f"the database refuses a value ({type(error).__name__})")
    found = next((prefix for prefix in REASONS if code and code.startswith(prefix)), "")
    if found:
        return StoreUnavailable(f"{place} cannot be used: {REASONS[found]}", after=5.0, fix=FIXES.get(found, ""))
    return _without_code(error, code, place)


def _is_unencodable(error: BaseException) -> bool:
    # the driver raises a ValueError of its own for a value that it cannot encode
    return isinstance(error, ValueError) and type(error).__module__.startswith("asyncpg")


def _without_code(error: BaseException, code: str, place: str) -> BaseException:
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{place} does not answer", after=5.0, fix="Check the server and the network")
    if isinstance(error, ssl.SSLError):
        return StoreUnavailable(
            f"{place} has no certificate that we trust", after=5.0, fix="Check sslmode and sslrootcert"
        )
    if isinstance(error, OSError):
        why = error.strerror or name
        return StoreUnavailable(f"{place} cannot be reached ({why})", after=5.0, fix="Check the server and the network")
    if type(error).__module__.startswith("asyncpg"):
        return StoreUnavailable(f"{place} refused a statement ({name} {code})".rstrip(), after=5.0)
    return error


def refusal(error: BaseException, place: str) -> BaseException:
    """Like `translate`, for the first connection: what only a person can mend becomes Misconfigured."""
    found = translate(error, place)
    if _is_refusal(error) and isinstance(found, StoreUnavailable):
        return Misconfigured(found.message, fix=found.fix)
    return found

"""What the database says, as an error that is named by what happens next.

The driver's own errors hold statements and values, so none of their text is kept, and none of them as a cause.
"""

from __future__ import annotations

import ssl

from harken.errors import HarkenError, Misconfigured, StoreBusy, StoreUnavailable

__all__ = ["is_refusal", "is_worth_repeating", "refusal", "translate"]

REPEATED = frozenset({"40001", "40P01"})
"""Two transactions stood in each other's way, and the server undid this one."""

REFUSED = ("28", "3D", "42501")
"""Who we are, or what we asked to open, is not accepted."""

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


def code_of(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def is_worth_repeating(error: BaseException) -> bool:
    return code_of(error) in REPEATED


def is_refusal(error: BaseException) -> bool:
    """Trying again will not help before a person has done something."""
    return code_of(error).startswith(REFUSED)


def translate(error: BaseException, where: str) -> BaseException:
    """The error that a verb's caller should see; a fault of ours stays what it is."""
    if isinstance(error, HarkenError | AssertionError):
        return error
    code = code_of(error)
    if is_worth_repeating(error):
        return StoreBusy(f"{where} has others write the same rows again and again", after=0.1)
    if code == "55P03":
        return StoreBusy(f"{where} has others hold a row for too long", after=1.0)
    if code == "57014":
        return StoreBusy(
            f"{where} took too long", after=1.0, fix="Ask for less at a time, or look at the server's load"
        )
    if code[:2] in ("22", "23") or _is_unfit(error):
        # what somebody wants stored is not storable; it must not look like trouble with the store
        return ValueError(f"the database refuses a value ({type(error).__name__})")
    found = next((prefix for prefix in REASONS if code and code.startswith(prefix)), "")
    if found:
        return StoreUnavailable(f"{where} cannot be used: {REASONS[found]}", after=5.0, fix=FIXES.get(found, ""))
    return _without_code(error, code, where)


def _is_unfit(error: BaseException) -> bool:
    # the driver's word for a value that it cannot encode, which is an interface error and a ValueError
    return isinstance(error, ValueError) and type(error).__module__.startswith("asyncpg")


def _without_code(error: BaseException, code: str, where: str) -> BaseException:
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{where} does not answer", after=5.0, fix="Check the server and the network")
    if isinstance(error, ssl.SSLError):
        return StoreUnavailable(
            f"{where} has no certificate that we trust", after=5.0, fix="Check sslmode and sslrootcert"
        )
    if isinstance(error, OSError):
        why = error.strerror or name
        return StoreUnavailable(f"{where} cannot be reached ({why})", after=5.0, fix="Check the server and the network")
    if type(error).__module__.startswith("asyncpg"):
        return StoreUnavailable(f"{where} refused a statement ({name} {code})".rstrip(), after=5.0)
    return error


def refusal(error: BaseException, where: str) -> BaseException:
    """The same at the very first connection: a person is there to mend it."""
    found = translate(error, where)
    if is_refusal(error) and isinstance(found, StoreUnavailable):
        return Misconfigured(found.message, fix=found.fix)
    return found

"""The keyring of the system. It may ask the user for a password or hang, so every call has a time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock, Thread
from typing import Any, TypeVar

from harken.errors import Misconfigured

__all__ = ["Keyring", "system_keyring"]

T = TypeVar("T")

SWITCH = "HARKEN_KEYRING"
TIMEOUT_SECONDS = 10.0
# these backends store nothing, or store plain text
_UNSAFE = ("keyring.backends.fail", "keyring.backends.null", "keyrings.alt")
_CHAIN = "keyring.backends.chainer"
# the package looks for its backends at the first question, and two threads at once disturb each other
_LOOKING = Lock()


class Keyring:
    """A backend of the `keyring` package. Raises Misconfigured when it fails or does not answer in time."""

    def __init__(self, backend: Any, timeout: float = TIMEOUT_SECONDS) -> None:
        self._backend = backend
        self._timeout = timeout

    def get(self, service: str, name: str) -> str | None:
        found: str | None = self._call(lambda: self._backend.get_password(service, name))
        return found

    def put(self, service: str, name: str, value: str) -> None:
        self._call(lambda: self._backend.set_password(service, name, value))

    def forget(self, service: str, name: str) -> None:
        if self.get(service, name) is not None:
            self._call(lambda: self._backend.delete_password(service, name))

    def _call(self, call: Callable[[], T]) -> T:
        return _call_within(call, self._timeout)


def system_keyring(environ: Mapping[str, str]) -> Keyring | None:
    """Return the keyring, or None if there is none that encrypts, or with HARKEN_KEYRING=off."""
    if environ.get(SWITCH, "").lower() in ("off", "0", "false", "no"):
        return None
    backend = _call_within(_backend, TIMEOUT_SECONDS)
    return Keyring(backend) if backend is not None else None


def _backend() -> Any:
    try:
        import keyring
    except ImportError:
        return None
    with _LOOKING:
        found: Any = keyring.get_keyring()
    links = list(found.backends) if type(found).__module__ == _CHAIN else [found]
    return next((link for link in links if _protects(link)), None)


def _protects(backend: Any) -> bool:
    return backend.priority >= 1 and not type(backend).__module__.startswith(_UNSAFE)


def _call_within(call: Callable[[], T], seconds: float) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    # a daemon thread, so that a hanging keyring does not keep the process alive
    thread = Thread(target=ask, name="keyring", daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    fix = f"Unlock it, or keep credentials in a sealed file with {SWITCH}=off"
    if errors:
        raise Misconfigured(f"the keyring of the system failed with {type(errors[0]).__name__}", fix=fix) from None
    raise Misconfigured(f"the keyring of the system did not answer within {seconds:.0f} s", fix=fix)

"""The keyring of the system, where there is a real one. It may ask a person or hang, so every call has a time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, TypeVar

from harken.errors import Misconfigured

__all__ = ["SWITCH", "Keyring", "real_ring"]

T = TypeVar("T")

SWITCH = "HARKEN_KEYRING"
PATIENCE_SECONDS = 10.0
# they keep nothing, or keep it in the clear
_UNSAFE = ("keyring.backends.fail", "keyring.backends.null", "keyrings.alt")
_CHAIN = "keyring.backends.chainer"


class Keyring:
    """A backend of the `keyring` package. Misconfigured when it fails or does not answer in time."""

    def __init__(self, backend: Any, patience: float = PATIENCE_SECONDS) -> None:
        self._backend = backend
        self._patience = patience

    def get(self, service: str, name: str) -> str | None:
        found: str | None = self._asked(lambda: self._backend.get_password(service, name))
        return found

    def put(self, service: str, name: str, value: str) -> None:
        self._asked(lambda: self._backend.set_password(service, name, value))

    def forget(self, service: str, name: str) -> None:
        if self.get(service, name) is not None:
            self._asked(lambda: self._backend.delete_password(service, name))

    def _asked(self, question: Callable[[], T]) -> T:
        return _within(question, self._patience)


def real_ring(environ: Mapping[str, str]) -> Keyring | None:
    """The keyring, if there is one that really protects what it keeps; None with HARKEN_KEYRING=off."""
    if environ.get(SWITCH, "").lower() in ("off", "0", "false", "no"):
        return None
    backend = _within(_backend, PATIENCE_SECONDS)
    return Keyring(backend) if backend is not None else None


def _backend() -> Any:
    try:
        import keyring
    except ImportError:
        return None
    found: Any = keyring.get_keyring()
    links = list(found.backends) if type(found).__module__ == _CHAIN else [found]
    return next((link for link in links if _protects(link)), None)


def _protects(backend: Any) -> bool:
    return backend.priority >= 1 and not type(backend).__module__.startswith(_UNSAFE)


def _within(question: Callable[[], T], seconds: float) -> T:
    answer: list[T] = []
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            answer.append(question())
        except BaseException as error:
            failed.append(error)

    # a daemon: what hangs in somebody's keyring must not keep the process
    thread = Thread(target=ask, name="keyring", daemon=True)
    thread.start()
    thread.join(seconds)
    if answer:
        return answer[0]
    fix = f"Unlock it, or keep credentials in a sealed file with {SWITCH}=off"
    if failed:
        raise Misconfigured(f"the keyring of the system failed with {type(failed[0]).__name__}", fix=fix) from None
    raise Misconfigured(f"the keyring of the system did not answer within {seconds:.0f} s", fix=fix)

"""Accounts and secrets that a person has stored: in the keyring of the system, or in a sealed file beside the store.

An index file names what is there and where; it holds no secret in the clear. Each value is either in the keyring or
sealed in the index itself. Nothing is unlocked before a value is asked for.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harken.credentials.encryption_key import Key, Keys
from harken.credentials.keyring import Keyring, real_ring
from harken.errors import Misconfigured, Refused
from harken.private_files import read_private, write_private, writing

__all__ = ["Credentials", "StoredAccount"]

VERSION = 1
FILE = "sealed.json"
MOST = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_PROOF = "proof"

What = Literal["account", "secret"]


@dataclass(frozen=True, kw_only=True)
class StoredAccount:
    """An account at a service as a person stored it. `fields` are settings of its integration, secrets included."""

    name: str
    kind: str
    fields: Mapping[str, Any] = field(repr=False)


class Credentials:
    """What is stored for the store at this path. Misconfigured when it cannot be read; nothing is changed then."""

    def __init__(self, store: Path, environ: Mapping[str, str]) -> None:
        self.path = store.with_name(store.name + ".secrets") / FILE
        self._service = f"harken {store}"
        self._environ = environ
        self._keys = Keys(store.parent, environ)

    def accounts(self) -> Mapping[str, str]:
        """The kind of each stored account, by name. Unlocks nothing."""
        return {name: str(entry["kind"]) for (what, name), entry in self._index().items() if what == "account"}

    def account(self, name: str) -> StoredAccount | None:
        entry = self._index().get(("account", name))
        if entry is None:
            return None
        fields = json.loads(self._open(("account", name), entry))
        return StoredAccount(name=name, kind=str(entry["kind"]), fields=fields)

    def keep(self, account: StoredAccount) -> str:
        """Store the account in place of an older one of its name; where it is now."""
        return self._keep(("account", account.name), account.kind, json.dumps(dict(account.fields)))

    def secrets(self) -> tuple[str, ...]:
        """The names of the stored secrets. Unlocks nothing."""
        return tuple(sorted(name for what, name in self._index() if what == "secret"))

    def secret(self, name: str) -> str | None:
        entry = self._index().get(("secret", name))
        return None if entry is None else self._open(("secret", name), entry)

    def keep_secret(self, name: str, value: str) -> str:
        """Store the secret in place of an older one of its name; where it is now."""
        return self._keep(("secret", name), "", value)

    def forget(self, what: What, name: str) -> bool:
        """Remove it; False when there was none. Works without the key, so that a lost one can be left behind."""
        if (what, name) not in self._index():
            return False
        with self._changing() as document:
            entry = document["entries"].pop(_label((what, name)), None)
            document.get("next", {"entries": {}})["entries"].pop(_label((what, name)), None)
            ring = real_ring(self._environ) if entry and entry["at"] == "keyring" else None
            if ring is not None:
                ring.forget(self._service, _label((what, name)))
        return entry is not None

    def check(self) -> None:
        """Raise Misconfigured unless everything that is sealed here can be opened."""
        for label, entry in self._index().items():
            if entry["at"] == "file":
                self._open(label, entry)

    def share(self, operator_key: str) -> None:
        """Let another HARKEN_ENCRYPTION_KEY open it too until `reseal`: a crash before that locks nobody out."""
        if self._by_operator():
            with self._changing() as document:
                coming = deepcopy(document)
                self._seal_anew(coming, self._key(document), self._keys.given(operator_key))
                document["next"] = {"key": coming["key"], "entries": coming["entries"]}

    def reseal(self, operator_key: str) -> None:
        """Seal with another HARKEN_ENCRYPTION_KEY what is sealed with the one of now."""
        if self._by_operator():
            with self._changing() as document:
                self._seal_anew(document, self._key(document), self._keys.given(operator_key))

    def settle(self) -> None:
        """The key of now is the one that counts: after a change of keys that was broken off, the other goes."""
        if "next" in self._read():
            with self._changing():
                pass

    def _by_operator(self) -> bool:
        return (self._read()["key"] or {}).get("source") == "environment"

    def _keep(self, label: tuple[str, str], kind: str, value: str) -> str:
        if not _NAME.fullmatch(label[1]):
            raise Refused(f"{label[1]!r} cannot be a name", fix="Use letters, digits, - and _, at most 64")
        if len(value) > MOST:
            raise Refused(f"{label[1]} is larger than {MOST} bytes", fix="Store only the credential")
        ring = real_ring(self._environ)
        with self._changing() as document:
            key = self._sealing(document, ring)
            if ring is not None:
                ring.put(self._service, _label(label), value)
                entry = {"kind": kind, "at": "keyring"}
            else:
                assert key is not None
                entry = {"kind": kind, "at": "file", "sealed": _shut(key, _bound(label, kind), value)}
            document["entries"][_label(label)] = entry
        return "the keyring" if ring is not None else str(self.path)

    def _sealing(self, document: dict[str, Any], ring: Keyring | None) -> Key | None:
        """The key to seal with from now on. What is sealed with another one is sealed anew."""
        sealed = any(entry["at"] == "file" for entry in document["entries"].values())
        # a key that nothing is sealed with may be lost
        old = self._key(document) if document["key"] and sealed else None
        if ring is not None and not sealed:
            return None
        key = self._keys.preferred(ring)
        if old is not None and (old.source, old.raw) == (key.source, key.raw):
            return old
        self._seal_anew(document, old, key)
        return key

    def _seal_anew(self, document: dict[str, Any], old: Key | None, key: Key) -> None:
        for label, entry in document["entries"].items():
            if entry["at"] == "file" and old is not None:
                value = self._unsealed(old, _parsed(label), entry)
                entry["sealed"] = _shut(key, _bound(_parsed(label), entry["kind"]), value)
        document["key"] = {"source": key.source, "salt": b64encode(key.salt).decode()}
        document["key"]["proof"] = _shut(key, _PROOF, _PROOF)

    def _open(self, label: tuple[str, str], entry: Mapping[str, Any]) -> str:
        if entry["at"] == "file":
            document = self._decided(self._read())
            return self._unsealed(self._key(document), label, document["entries"][_label(label)])
        ring = real_ring(self._environ)
        value = ring.get(self._service, _label(label)) if ring is not None else None
        if value is None:
            fix = f"Unlock or install the keyring, or store it again: {_again(label)}"
            raise Misconfigured(f"{label[1]} is in the keyring of the system, which does not give it", fix=fix)
        return value

    def _key(self, document: Mapping[str, Any]) -> Key:
        made = document["key"]
        if not made:
            raise _damaged(self.path)
        key = self._keys.made(str(made["source"]), b64decode(made["salt"]), real_ring, self.path)
        try:
            key.open(b64decode(made["proof"]), _PROOF)
        except ValueError:
            raise Misconfigured(f"{self.path} is sealed with another key", fix=key.advice) from None
        return key

    def _decided(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document as the key of now opens it; as it is when that one opens nothing."""
        if "next" not in document:
            return document
        alone = {name: value for name, value in document.items() if name != "next"}
        for view in (alone, {**alone, **document["next"]}):
            with suppress(Misconfigured):
                self._key(view)
                return view
        return document

    def _unsealed(self, key: Key, label: tuple[str, str], entry: Mapping[str, Any]) -> str:
        try:
            return key.open(b64decode(entry["sealed"]), _bound(label, entry["kind"])).decode()
        except ValueError:
            message = f"{label[1]} in {self.path} was changed by something else"
            raise Misconfigured(message, fix=f"Store it again: {_again(label)}") from None

    def _index(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        return {_parsed(label): entry for label, entry in self._read()["entries"].items()}

    def _read(self) -> dict[str, Any]:
        text = read_private(self.path)
        if text is None:
            return {"version": VERSION, "key": None, "entries": {}}
        try:
            document: dict[str, Any] = json.loads(text)
            if document["version"] > VERSION:
                raise Misconfigured(f"{self.path} was written by a newer Harken", fix="Use that version")
            if not all({"kind", "at"} <= set(entry) for entry in document["entries"].values()):
                raise _damaged(self.path)
            return {"key": document["key"], **document}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _damaged(self.path) from None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """The index, written back when the block ends well; one process at a time."""
        with writing(self.path):
            document = self._decided(self._read())
            yield document
            write_private(self.path, json.dumps(document, indent=1).encode())


def _label(label: tuple[str, str]) -> str:
    return f"{label[0]}:{label[1]}"


def _parsed(label: str) -> tuple[str, str]:
    what, _, name = label.partition(":")
    return what, name


def _bound(label: tuple[str, str], kind: str) -> str:
    """What a sealed value belongs to, so that it cannot be put in the place of another."""
    return f"{_label(label)}:{kind}"


def _shut(key: Key, bound: str, value: str) -> str:
    return b64encode(key.shut(value.encode(), bound)).decode()


def _again(label: tuple[str, str]) -> str:
    what, name = label
    return f"harken integrations {name} configure" if what == "account" else f"harken secrets set {name}"


def _damaged(path: Path) -> Misconfigured:
    return Misconfigured(
        f"{path} is damaged", fix="Restore it from a backup, or delete it and store the accounts again"
    )

"""Stored accounts and secrets: in the keyring of the system, or encrypted ("sealed") in a file beside the store.

The file is an index of all entries and holds no secret in plain text: each value is in the keyring or sealed in the
file itself. The keyring is only unlocked when a value is read.
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

from harken.credentials.encryption_key import Key, KeySource
from harken.credentials.system_keyring import Keyring, system_keyring
from harken.errors import Misconfigured, Refused
from harken.private_files import lock_for_writing, read_private, write_private

__all__ = ["Credentials", "SecretReader", "StoredAccount"]

VERSION = 1
FILE = "sealed.json"
MOST = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_PROOF = "proof"

What = Literal["account", "secret"]


@dataclass(frozen=True, kw_only=True)
class StoredAccount:
    """An account at a service. `fields` are the settings of its integration, with secrets."""

    name: str
    kind: str
    fields: Mapping[str, Any] = field(repr=False)


class Credentials:
    """The accounts and secrets of one store. Raises Misconfigured, and changes nothing, when they cannot be read."""

    def __init__(self, store: Path, environ: Mapping[str, str]) -> None:
        self.path = store.with_name(store.name + ".secrets") / FILE
        self._service = f"harken {store}"
        self._environ = environ
        self._keys = KeySource(store.parent, environ)

    def accounts(self) -> Mapping[str, str]:
        """Return the kind of each stored account by name, without unlocking anything."""
        return {name: str(entry["kind"]) for (what, name), entry in self._index().items() if what == "account"}

    def account(self, name: str) -> StoredAccount | None:
        entry = self._index().get(("account", name))
        if entry is None:
            return None
        fields = json.loads(self._open(("account", name), entry))
        return StoredAccount(name=name, kind=str(entry["kind"]), fields=fields)

    def store_account(self, account: StoredAccount) -> str:
        """Store the account, replacing one of the same name. Return where it is stored, for people."""
        return self._store(("account", account.name), account.kind, json.dumps(dict(account.fields)))

    def secrets(self) -> tuple[str, ...]:
        """Return the names of the stored secrets, without unlocking anything."""
        return tuple(sorted(name for what, name in self._index() if what == "secret"))

    def secret(self, name: str) -> str | None:
        entry = self._index().get(("secret", name))
        return None if entry is None else self._open(("secret", name), entry)

    def reader(self) -> SecretReader:
        """What `secret` does, for many of them: the file is read again only when it has changed."""
        return SecretReader(self)

    def store_secret(self, name: str, value: str) -> str:
        """Store the secret, replacing one of the same name. Return where it is stored, for people."""
        return self._store(("secret", name), "", value)

    def forget(self, what: What, name: str) -> bool:
        """Remove an entry; return False when there was none. Needs no key: the key may be lost."""
        if (what, name) not in self._index():
            return False
        with self._edit() as document:
            entry = document["entries"].pop(_label((what, name)), None)
            document.get("next", {"entries": {}})["entries"].pop(_label((what, name)), None)
            ring = system_keyring(self._environ) if entry and entry["at"] == "keyring" else None
            if ring is not None:
                ring.forget(self._service, _label((what, name)))
        return entry is not None

    def signing_secret(self) -> str:
        """Return a secret of this installation that outlives the store, for signatures; it is made if there is none.

        HARKEN_ENCRYPTION_KEY if it is set, else the one in the keyring, else the one in the key file of the user."""
        return self._keys.preferred(system_keyring(self._environ)).raw

    def check(self) -> None:
        """Raise Misconfigured unless every sealed entry can be opened."""
        for label, entry in self._index().items():
            if entry["at"] == "file":
                self._open(label, entry)

    def add_key(self, operator_key: str) -> None:
        """Seal with another HARKEN_ENCRYPTION_KEY too: either key works until `change_key`, also after a crash."""
        if self._uses_operator_key():
            with self._edit() as document:
                resealed = deepcopy(document)
                self._reseal_all(resealed, self._key(document), self._keys.from_operator(operator_key))
                document["next"] = {"key": resealed["key"], "entries": resealed["entries"]}

    def change_key(self, operator_key: str) -> None:
        """Seal everything with another HARKEN_ENCRYPTION_KEY only."""
        if self._uses_operator_key():
            with self._edit() as document:
                self._reseal_all(document, self._key(document), self._keys.from_operator(operator_key))

    def finish_key_change(self) -> None:
        """Drop the other key after an interrupted change: the current HARKEN_ENCRYPTION_KEY is kept."""
        if "next" in self._read():
            with self._edit():
                pass

    def _uses_operator_key(self) -> bool:
        return (self._read()["key"] or {}).get("source") == "environment"

    def _store(self, label: tuple[str, str], kind: str, value: str) -> str:
        if not _NAME.fullmatch(label[1]):
            raise Refused(f"{label[1]!r} cannot be a name", fix="Use letters, digits, - and _, at most 64")
        if len(value) > MOST:
            raise Refused(f"{label[1]} is larger than {MOST} bytes", fix="Store only the credential")
        ring = system_keyring(self._environ)
        with self._edit() as document:
            key = self._current_key(document, ring)
            if ring is not None:
                ring.put(self._service, _label(label), value)
                entry = {"kind": kind, "at": "keyring"}
            else:
                assert key is not None
                entry = {"kind": kind, "at": "file", "sealed": _seal(key, _context(label, kind), value)}
            document["entries"][_label(label)] = entry
        return "the keyring" if ring is not None else str(self.path)

    def _current_key(self, document: dict[str, Any], ring: Keyring | None) -> Key | None:
        """Return the key to seal with, after resealing what another key sealed; None if only the keyring is used."""
        sealed = any(entry["at"] == "file" for entry in document["entries"].values())
        # the old key is only needed if something is sealed with it
        old = self._key(document) if document["key"] and sealed else None
        if ring is not None and not sealed:
            return None
        key = self._keys.preferred(ring)
        if old is not None and (old.source, old.raw) == (key.source, key.raw):
            return old
        self._reseal_all(document, old, key)
        return key

    def _reseal_all(self, document: dict[str, Any], old: Key | None, key: Key) -> None:
        for label, entry in document["entries"].items():
            if entry["at"] == "file" and old is not None:
                value = self._unseal(old, _parse_label(label), entry)
                entry["sealed"] = _seal(key, _context(_parse_label(label), entry["kind"]), value)
        document["key"] = {"source": key.source, "salt": b64encode(key.salt).decode()}
        document["key"]["proof"] = _seal(key, _PROOF, _PROOF)

    def _open(self, label: tuple[str, str], entry: Mapping[str, Any]) -> str:
        if entry["at"] == "file":
            document = self._current_view(self._read())
            return self._unseal(self._key(document), label, document["entries"][_label(label)])
        ring = system_keyring(self._environ)
        value = ring.get(self._service, _label(label)) if ring is not None else None
        if value is None:
            fix = f"Unlock or install the keyring, or store it again: {_store_command(label)}"
            raise Misconfigured(f"{label[1]} is in the keyring of the system, which does not give it", fix=fix)
        return value

    def _key(self, document: Mapping[str, Any]) -> Key:
        key_entry = document["key"]
        if not key_entry:
            raise _damaged_error(self.path)
        key = self._keys.sealed_with(str(key_entry["source"]), b64decode(key_entry["salt"]), system_keyring, self.path)
        try:
            key.open(b64decode(key_entry["proof"]), _PROOF)
        except ValueError:
            raise Misconfigured(f"{self.path} is sealed with another key", fix=key.advice) from None
        return key

    def _current_view(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the document as the current key opens it: during a change of keys it has two versions."""
        if "next" not in document:
            return document
        alone = {name: value for name, value in document.items() if name != "next"}
        for view in (alone, {**alone, **document["next"]}):
            with suppress(Misconfigured):
                self._key(view)
                return view
        return document

    def _unseal(self, key: Key, label: tuple[str, str], entry: Mapping[str, Any]) -> str:
        try:
            return key.open(b64decode(entry["sealed"]), _context(label, entry["kind"])).decode()
        except ValueError:
            message = f"{label[1]} in {self.path} was changed by something else"
            raise Misconfigured(message, fix=f"Store it again: {_store_command(label)}") from None

    def _index(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        return {_parse_label(label): entry for label, entry in self._read()["entries"].items()}

    def _read(self) -> dict[str, Any]:
        text = read_private(self.path)
        if text is None:
            return {"version": VERSION, "key": None, "entries": {}}
        try:
            document: dict[str, Any] = json.loads(text)
            if document["version"] > VERSION:
                raise Misconfigured(f"{self.path} was written by a newer Harken", fix="Use that version")
            if not all({"kind", "at"} <= set(entry) for entry in document["entries"].values()):
                raise _damaged_error(self.path)
            return {"key": document["key"], **document}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _damaged_error(self.path) from None

    @contextmanager
    def _edit(self) -> Iterator[dict[str, Any]]:
        """Lock the index, and write it back unless the block raises."""
        with lock_for_writing(self.path):
            document = self._current_view(self._read())
            yield document
            write_private(self.path, json.dumps(document, indent=1).encode())


class SecretReader:
    """Returns stored secrets by name. Raises Misconfigured when one cannot be read."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._stamp: tuple[int, ...] | None = None
        self._document: dict[str, Any] = {}
        self._key: Key | None = None

    def __call__(self, name: str) -> str | None:
        credentials, label = self._credentials, ("secret", name)
        stamp = _file_stamp(credentials.path)
        if stamp is None:
            return credentials.secret(name)
        if stamp != self._stamp:
            self._document, self._key = credentials._current_view(credentials._read()), None
            self._stamp = stamp
        entry = self._document["entries"].get(_label(label))
        if entry is None:
            return None
        if entry["at"] != "file":
            return credentials._open(label, entry)
        if self._key is None:
            self._key = credentials._key(self._document)
        return credentials._unseal(self._key, label, entry)


def _file_stamp(path: Path) -> tuple[int, ...] | None:
    """Changes with every writing of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def _label(label: tuple[str, str]) -> str:
    return f"{label[0]}:{label[1]}"


def _parse_label(label: str) -> tuple[str, str]:
    what, _, name = label.partition(":")
    return what, name


def _context(label: tuple[str, str], kind: str) -> str:
    """Return the authenticated context of a value, so that it cannot be moved to another entry."""
    return f"{_label(label)}:{kind}"


def _seal(key: Key, context: str, value: str) -> str:
    return b64encode(key.seal(value.encode(), context)).decode()


def _store_command(label: tuple[str, str]) -> str:
    what, name = label
    return f"harken integrations {name} configure" if what == "account" else f"harken secrets set {name}"


def _damaged_error(path: Path) -> Misconfigured:
    return Misconfigured(
        f"{path} is damaged", fix="Restore it from a backup, or delete it and store the accounts again"
    )

"""The keyring of the system: used when it encrypts, and every call has a time limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail, null

from harken.credentials import Credentials, StoredAccount
from harken.credentials.system_keyring import Keyring
from harken.errors import Misconfigured

ACCOUNT = StoredAccount(name="jira", kind="jira", fields={"token": "tok3n-5ecret-abcdef"})


class Memory(KeyringBackend):
    priority = 5

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


class Locked(Memory):
    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError("locked, and here is tok3n")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise RuntimeError(f"locked, and here is {password}")


class Plaintext(Memory):
    priority = 0.5  # type: ignore[assignment]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def memory() -> Iterator[Memory]:
    before: Any = keyring.get_keyring()
    backend = Memory()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def test_a_real_keyring_holds_the_account_and_the_file_only_its_name(
    memory: Memory, store: Path, environ: dict[str, str]
) -> None:
    credentials = Credentials(store, environ)
    assert credentials.store_account(ACCOUNT) == "the keyring"
    assert Credentials(store, environ).account("jira") == ACCOUNT
    assert "sealed" not in credentials.path.read_text().replace("sealed.json", "")
    assert list(memory.kept) == [(f"harken {store}", "account:jira")]
    assert not Path(environ["HOME"]).exists()


def test_removing_takes_it_out_of_the_keyring(memory: Memory, store: Path, environ: dict[str, str]) -> None:
    credentials = Credentials(store, environ)
    credentials.store_account(ACCOUNT)
    assert credentials.forget("account", "jira")
    assert memory.kept == {}


def test_two_stores_do_not_share_their_accounts(memory: Memory, store: Path, environ: dict[str, str]) -> None:
    Credentials(store, environ).store_account(ACCOUNT)
    assert Credentials(store.with_name("other.db"), environ).account("jira") is None


def test_switched_off_the_keyring_is_not_asked(memory: Memory, store: Path, environ: dict[str, str]) -> None:
    credentials = Credentials(store, {**environ, "HARKEN_KEYRING": "off"})
    assert credentials.store_account(ACCOUNT) == str(credentials.path)
    assert memory.kept == {}


def test_what_is_in_a_keyring_that_is_off_is_told(memory: Memory, store: Path, environ: dict[str, str]) -> None:
    Credentials(store, environ).store_account(ACCOUNT)
    with pytest.raises(Misconfigured, match="which does not give it"):
        Credentials(store, {**environ, "HARKEN_KEYRING": "off"}).account("jira")


@pytest.mark.parametrize("backend", [fail.Keyring, null.Keyring, Plaintext])
@pytest.mark.usefixtures("memory")
def test_a_keyring_that_protects_nothing_is_not_used(
    backend: type[KeyringBackend], store: Path, environ: dict[str, str]
) -> None:
    keyring.set_keyring(backend())
    credentials = Credentials(store, environ)
    assert credentials.store_account(ACCOUNT) == str(credentials.path)


@pytest.mark.usefixtures("memory")
def test_a_keyring_that_fails_is_told_without_its_words(store: Path, environ: dict[str, str]) -> None:
    keyring.set_keyring(Locked())
    with pytest.raises(Misconfigured, match="failed with RuntimeError") as told:
        Credentials(store, environ).store_account(ACCOUNT)
    assert "tok3n" not in str(told.value)
    assert not Credentials(store, environ).path.exists()


def test_a_keyring_that_hangs_is_given_up() -> None:
    class Hanging(Memory):
        def get_password(self, service: str, username: str) -> str | None:
            Event().wait()
            return None

    with pytest.raises(Misconfigured, match="did not answer"):
        Keyring(Hanging(), timeout=0.05).get("harken", "x")


@pytest.mark.usefixtures("memory")
def test_accounts_sealed_before_there_was_a_keyring_stay_readable(store: Path, environ: dict[str, str]) -> None:
    Credentials(store, {**environ, "HARKEN_KEYRING": "off"}).store_account(ACCOUNT)
    credentials = Credentials(store, environ)
    assert credentials.account("jira") == ACCOUNT
    credentials.store_account(StoredAccount(name="second", kind="jira", fields={"token": "x"}))
    assert credentials.account("jira") == ACCOUNT
    assert os.path.exists(credentials.path)

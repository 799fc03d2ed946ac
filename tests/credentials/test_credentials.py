"""The sealed file: private, written atomically, bound to names, and not readable with another key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from harken.credentials import Credentials, StoredAccount
from harken.errors import Misconfigured, Refused

TOKEN = "tok3n-5ecret-abcdef"


def jira(name: str = "jira-eu", token: str = TOKEN) -> StoredAccount:
    return StoredAccount(name=name, kind="jira", fields={"email": "ada@example.org", "token": token})


def everything(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def test_an_account_comes_back_as_it_was_stored(credentials: Credentials, store: Path, environ: dict[str, str]) -> None:
    credentials.store_account(jira())
    again = Credentials(store, environ)
    assert again.accounts() == {"jira-eu": "jira"}
    assert again.account("jira-eu") == jira()
    assert again.account("other") is None


def test_a_named_secret_comes_back(credentials: Credentials) -> None:
    credentials.store_secret("webhook", TOKEN)
    assert credentials.secret("webhook") == TOKEN
    assert credentials.secrets() == ("webhook",)
    assert credentials.secret("other") is None
    assert credentials.accounts() == {}


def test_the_secret_stands_in_no_file_beside_the_store(credentials: Credentials, store: Path) -> None:
    credentials.store_account(jira())
    written = everything(store.parent)
    assert b"jira-eu" in written
    assert TOKEN.encode() not in written
    assert b"ada@example.org" not in written


def test_files_are_private_and_the_key_lies_outside_the_folder_of_the_store(
    credentials: Credentials, store: Path, environ: dict[str, str]
) -> None:
    credentials.store_account(jira())
    key = Path(environ["HOME"]) / ".config" / "harken" / "key"
    assert not key.is_relative_to(store.parent)
    assert [oct(path.stat().st_mode & 0o777) for path in (credentials.path, key)] == ["0o600", "0o600"]
    assert [oct(path.parent.stat().st_mode & 0o777) for path in (credentials.path, key)] == ["0o700", "0o700"]


def test_reading_makes_nothing(credentials: Credentials, tmp_path: Path) -> None:
    assert credentials.accounts() == {}
    assert credentials.secret("x") is None
    assert credentials.forget("account", "x") is False
    assert list(tmp_path.iterdir()) == []


def test_the_config_home_of_the_user_is_honoured(store: Path, environ: dict[str, str], tmp_path: Path) -> None:
    Credentials(store, {**environ, "XDG_CONFIG_HOME": str(tmp_path / "xdg")}).store_account(jira())
    assert (tmp_path / "xdg" / "harken" / "key").exists()


def test_a_key_in_the_folder_of_the_store_is_refused(store: Path, environ: dict[str, str]) -> None:
    inside = Credentials(store, {**environ, "HARKEN_KEY_FILE": str(store.parent / "keys" / "key")})
    with pytest.raises(Misconfigured, match="beside what it protects"):
        inside.store_account(jira())
    assert not inside.path.exists()


def test_the_secret_for_signatures_outlives_the_store(store: Path, environ: dict[str, str]) -> None:
    first = Credentials(store, environ).signing_secret()
    assert first
    elsewhere = store.with_name("another.db")
    assert Credentials(elsewhere, environ).signing_secret() == first
    keyed = {**environ, "HARKEN_ENCRYPTION_KEY": "correct horse"}
    assert Credentials(store, keyed).signing_secret() == "correct horse"


def test_with_an_encryption_key_there_is_no_key_file(store: Path, environ: dict[str, str]) -> None:
    keyed = {**environ, "HARKEN_ENCRYPTION_KEY": "correct horse"}
    Credentials(store, keyed).store_account(jira())
    assert Credentials(store, keyed).account("jira-eu") == jira()
    assert not Path(environ["HOME"]).exists()


@pytest.mark.parametrize("key", ["wrong", ""])
def test_another_key_is_told_and_changes_nothing(store: Path, environ: dict[str, str], key: str) -> None:
    Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "right"}).store_account(jira())
    before = everything(store.parent)
    other = Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": key})
    with pytest.raises(Misconfigured, match="HARKEN_ENCRYPTION_KEY to the key that it was sealed with"):
        other.account("jira-eu")
    with pytest.raises(Misconfigured):
        other.store_account(jira("second"))
    assert everything(store.parent) == before
    assert other.accounts() == {"jira-eu": "jira"}


def test_a_lost_key_file_is_told(credentials: Credentials, environ: dict[str, str]) -> None:
    credentials.store_account(jira())
    (Path(environ["HOME"]) / ".config" / "harken" / "key").unlink()
    with pytest.raises(Misconfigured, match="Put its key back into"):
        credentials.account("jira-eu")


def test_what_cannot_be_opened_can_be_removed(store: Path, environ: dict[str, str]) -> None:
    Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "lost"}).store_account(jira())
    assert Credentials(store, environ).forget("account", "jira-eu")
    assert Credentials(store, environ).accounts() == {}


def test_a_lost_key_can_be_left_behind(store: Path, environ: dict[str, str]) -> None:
    Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "lost"}).store_account(jira())
    credentials = Credentials(store, environ)
    credentials.forget("account", "jira-eu")
    credentials.store_account(jira())
    assert credentials.account("jira-eu") == jira()


def test_setting_an_encryption_key_seals_what_is_there_with_it(
    credentials: Credentials, store: Path, environ: dict[str, str]
) -> None:
    credentials.store_account(jira())
    keyed = Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "new"})
    assert keyed.account("jira-eu") == jira()
    keyed.store_account(jira("second"))
    assert keyed.account("jira-eu") == jira()
    with pytest.raises(Misconfigured):
        credentials.account("jira-eu")


def test_the_encryption_key_can_be_changed(store: Path, environ: dict[str, str]) -> None:
    old = Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "old"})
    old.store_account(jira())
    old.check()
    old.change_key("new")
    assert Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "new"}).account("jira-eu") == jira()
    with pytest.raises(Misconfigured, match="sealed with another key"):
        old.check()


def test_while_the_key_is_being_changed_the_next_change_decides_for_the_key_of_now(
    store: Path, environ: dict[str, str]
) -> None:
    old = Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "old"})
    new = Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "new"})
    old.store_account(jira())
    old.add_key("new")
    assert (old.account("jira-eu"), new.account("jira-eu")) == (jira(), jira())
    new.store_account(jira("jira-us"))
    assert (new.account("jira-eu"), new.account("jira-us")) == (jira(), jira("jira-us"))
    with pytest.raises(Misconfigured, match="sealed with another key"):
        old.account("jira-eu")


def test_what_is_removed_while_the_key_is_being_changed_is_gone_for_both(store: Path, environ: dict[str, str]) -> None:
    old = Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "old"})
    old.store_account(jira())
    old.add_key("new")
    assert Credentials(store, {**environ, "HARKEN_ENCRYPTION_KEY": "lost"}).forget("account", "jira-eu")
    assert b"jira-eu" not in old.path.read_bytes()


def test_what_a_killed_process_left_is_swept_up(credentials: Credentials) -> None:
    credentials.store_account(jira())
    left = credentials.path.with_name("sealed.json.4711.new")
    left.write_bytes(b"half")
    credentials.store_account(jira())
    assert not left.exists()


def test_folders_that_are_made_on_the_way_are_private_under_any_umask(tmp_path: Path, environ: dict[str, str]) -> None:
    before = os.umask(0)
    try:
        Credentials(tmp_path / "deep" / "er" / "harken.db", environ).store_account(jira())
    finally:
        os.umask(before)
    made = [tmp_path / "deep", tmp_path / "deep" / "er", Path(environ["HOME"]) / ".config"]
    assert [oct(path.stat().st_mode & 0o777) for path in made] == ["0o700"] * 3


def test_a_sealed_value_cannot_be_moved_to_another_name(credentials: Credentials) -> None:
    credentials.store_account(jira("prod", "pr0duction-token"))
    credentials.store_account(jira("test", "t3st-token"))
    document = json.loads(credentials.path.read_bytes())
    document["entries"]["account:test"] = document["entries"]["account:prod"]
    credentials.path.write_text(json.dumps(document))
    with pytest.raises(Misconfigured, match=r"test in .* was changed by something else"):
        credentials.account("test")
    assert credentials.account("prod") is not None


def test_a_changed_byte_is_found(credentials: Credentials) -> None:
    credentials.store_account(jira())
    document = json.loads(credentials.path.read_bytes())
    sealed = bytearray(b64decode(document["entries"]["account:jira-eu"]["sealed"]))
    sealed[-1] ^= 1
    document["entries"]["account:jira-eu"]["sealed"] = b64encode(sealed).decode()
    credentials.path.write_text(json.dumps(document))
    with pytest.raises(Misconfigured, match="was changed by something else"):
        credentials.account("jira-eu")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "key": null, "entries": {"a": 1}}'])
def test_a_damaged_file_is_told_and_left_alone(credentials: Credentials, text: str) -> None:
    credentials.store_account(jira())
    credentials.path.write_text(text)
    with pytest.raises(Misconfigured, match="is damaged"):
        credentials.accounts()
    with pytest.raises(Misconfigured, match="is damaged"):
        credentials.store_account(jira())
    assert credentials.path.read_text() == text


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_is_refused(credentials: Credentials, mode: int) -> None:
    credentials.store_account(jira())
    credentials.path.chmod(mode)
    with pytest.raises(Misconfigured, match="others may read") as told:
        credentials.account("jira-eu")
    assert f"chmod 600 {credentials.path}" in told.value.fix


def test_a_key_that_others_may_read_is_refused(credentials: Credentials, environ: dict[str, str]) -> None:
    credentials.store_account(jira())
    (Path(environ["HOME"]) / ".config" / "harken" / "key").chmod(0o644)
    with pytest.raises(Misconfigured, match="others may read"):
        credentials.account("jira-eu")


def test_a_link_in_place_of_the_file_is_refused(credentials: Credentials, tmp_path: Path) -> None:
    credentials.store_account(jira())
    credentials.path.rename(tmp_path / "elsewhere")
    credentials.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Misconfigured, match="cannot be read"):
        credentials.accounts()


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../x", "a.b", "x" * 65, "-x"])
def test_a_name_that_no_command_could_say_is_refused(credentials: Credentials, name: str) -> None:
    with pytest.raises(Refused, match="cannot be a name"):
        credentials.store_account(jira(name))


def test_a_repr_tells_nothing(credentials: Credentials) -> None:
    assert TOKEN not in repr(jira())


MANY = """
import sys
from pathlib import Path
from harken.credentials import Credentials
import os
store, who = Path(sys.argv[1]), sys.argv[2]
for number in range(10):
    Credentials(store, os.environ).store_secret(f"{who}-{number}", "value")
"""


def test_two_processes_that_store_at_once_lose_nothing(store: Path, environ: dict[str, str]) -> None:
    def begin(who: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", MANY, str(store), who], env={**os.environ, **environ})

    assert [process.wait(200) for process in [begin("a"), begin("b")]] == [0, 0]
    found = Credentials(store, environ)
    assert len(found.secrets()) == 20
    assert {found.secret(name) for name in found.secrets()} == {"value"}
    assert sorted(path.name for path in found.path.parent.iterdir()) == ["sealed.json", "sealed.json.lock"]

"""With HARKEN_ENCRYPTION_KEY set, the files tell nothing; without the right key nothing starts and nothing changes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import apsw
import pytest

from harken.backends.sqlite import SqliteStore
from harken.backends.sqlite.connection import connect, seal_for
from harken.credentials import Credentials
from harken.errors import Misconfigured, Refused
from harken.testing import HandClock
from harken.testing.store import Given
from harken.testing.store.world import definitions
from tests.system.hostile.misbehaving_server import Harken, Source, says, started, types, until, write
from tests.system.hostile.world import configured, feed

OLD, NEW = "the key of the first year", "the key of the second year"
ENV = "HARKEN_ENCRYPTION_KEY"
HOOK = "trigger: {webhook: {id: hook, scheme: none, allow_unsigned: true, id_field: id, subject_field: about}}\n"
PICKY = HOOK.replace("id: hook", "id: picky").replace("}}", "}, condition: 'event.mood == \"zq-clause\"'}")
STEPS = """\
steps:
  - {id: note, action: transform, set: {text: "zq-journal {{.trigger.event.text}}"}}
  - {id: bad, action: http, url: "http://127.0.0.1:9/zq-refused", on_error: ignore}
"""
SECRET = {
    "payload": b"zq-payload",
    "key": b"zq-key",
    "subject": b"zq-subject",
    "journal": b"zq-journal",
    "cursor": b"zq-cursor",
    "listed": b"zq-listed",
    "error": b"zq-error",
    "reason": b"zq-reason",
    "clause": b"zq-clause",
    "workflow": b"zq-refused",
}


def settle_in(directory: Path, url: str) -> None:
    feeds = [feed("items", f"{url}/all", interval="1s"), feed("wrong", f"{url}/zq-error", interval="1s")]
    plain = [one.replace(", time_field: created_at", "") for one in feeds]
    write(
        directory, configured(*plain), items="trigger: {feed: items}\n", wrong="trigger: {feed: wrong}\n", picky=PICKY
    )
    (directory / "workflows" / "hook.yaml").write_text(f"name: hook\n{HOOK}{STEPS}")


def raw(directory: Path) -> bytes:
    """Every file that Harken wrote, as whoever stole the disk would read it."""
    ours = [path for path in sorted(directory.iterdir()) if path.name.startswith(("harken.db", "copy"))]
    assert {"harken.db", "harken.db-wal", "harken.db.run.json", "copy.db"} <= {path.name for path in ours}
    return b"\n".join(path.read_bytes() for path in ours)


async def filled(directory: Path, **env: str) -> bytes:
    """Let every secret pass through a running Harken, then take its files while it runs."""
    async with Source.serve() as shop:
        listed = says(b'{"items": [{"id": "zq-listed"}]}', "200 OK", 'ETag: "zq-cursor"')
        shop.answers = {"/all": listed, "/zq-error": says(b"", "401 Unauthorized")}
        settle_in(directory, shop.url)
        async with started(directory, **env) as harken:
            body = {"id": "zq-key", "about": "zq-subject", "text": "zq-payload", "mood": "grim"}
            for name in ("hook", "picky"):
                await harken.ask(f"/webhooks/generic/{name}", json.dumps(body).encode())
            await until(lambda: is_done(harken))
            assert (await harken.types("triggers", "pause", "hook", "--reason", "zq-reason"))[0] == 0
            assert (await harken.types("store", "backup", str(directory / "copy.db")))[0] == 0
            return raw(directory)


async def is_done(harken: Harken) -> bool:
    states = {run["status"] for run in await harken.runs("hook")}
    wrong = (await harken.ask("/api/triggers/wrong"))[2]
    items = (await harken.ask("/api/triggers/items"))[2]
    return states == {"done"} and wrong["status"] == "paused" and bool(items["cursor"])


def found(text: bytes) -> set[str]:
    return {name for name, marker in SECRET.items() if marker in text}


@pytest.mark.process
@pytest.mark.worker_group("hostile-encryption")
async def test_without_a_key_all_of_it_can_be_read(tmp_path: Path) -> None:
    """The other half of the next test: what it looks for is really there to be found."""
    assert found(await filled(tmp_path)) == set(SECRET)


@pytest.mark.process
@pytest.mark.worker_group("hostile-encryption")
async def test_with_a_key_no_file_tells_anything_and_no_other_key_changes_a_byte(tmp_path: Path) -> None:
    text = await filled(tmp_path, **{ENV: OLD})
    assert found(text) == set()
    assert OLD.encode() not in text
    before = digests(tmp_path)
    for wrong, says_ in ((None, "is encrypted"), ("another", "encrypted with another key")):
        env = {ENV: wrong} if wrong else {}
        for command in (("start", "--port", "0"), ("triggers", "pause", "hook"), ("triggers", "list")):
            code, _, err = await types(tmp_path, *command, env=env)
            assert (code, says_ in err, ENV in err, "Traceback" in err) == (1, True, True, False), err
    assert digests(tmp_path) == before
    code, out, err = await types(tmp_path, "triggers", "show", "hook", "--json", env={ENV: OLD})
    assert (code, json.loads(out)["paused"]) == (0, "zq-reason"), err


def digests(directory: Path) -> dict[str, str]:
    files = [directory / name for name in ("harken.db", "harken.db-wal", "copy.db")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


async def opened(path: Path, key: str = "") -> tuple[SqliteStore, Given]:
    clock = HandClock()
    store = SqliteStore.at(path, clock, inline=True, key=key)
    found = await store.open(definitions())
    lease = await store.lease(0, "a", 30)
    assert lease is not None
    return store, Given(store, clock, found, lease)


def files_of(path: Path) -> bytes:
    return b"\n".join(file.read_bytes() for file in sorted(path.parent.iterdir()))


async def test_switching_it_on_rewrites_what_is_there_and_wipes_what_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "harken.db"
    store, given = await opened(path)
    await given.fires("zq-subject", input=b'{"text":"zq-payload"}')
    for number in range(50):
        await store.put("note", f"n{number}", "zq-deleted" * 200)
    for number in range(50):
        await store.delete("note", f"n{number}")
    await store.pause("mail", "zq-reason")
    store.abandon()
    assert b"zq-deleted" in files_of(path)
    store, given = await opened(path, OLD)
    assert [event.subject for event in (await store.events()).items] == ["zq-subject"]
    assert {state.name: state.paused for state in await store.triggers()}["mail"] == "zq-reason"
    assert await store.check() == []
    assert b"zq-" not in files_of(path)
    await store.backup(str(tmp_path / "copy.db"))
    store.abandon()
    assert b"zq-" not in files_of(path)
    copy, _ = await opened(tmp_path / "copy.db", OLD)
    assert [event.subject for event in (await copy.events()).items] == ["zq-subject"]
    copy.abandon()


async def test_a_crash_while_old_pages_are_wiped_leaves_none_of_them_after_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "harken.db"
    store, _ = await opened(path)
    for number in range(50):
        await store.put("note", f"n{number}", "zq-deleted" * 200)
    for number in range(50):
        await store.delete("note", f"n{number}")
    store.abandon()
    connection = connect(path)
    connection.set_exec_trace(lambda cursor, sql, bindings: "VACUUM" not in sql)
    with pytest.raises(apsw.ExecTraceAbort):
        seal_for(connection, OLD)
    connection.close()
    assert b"zq-deleted" in files_of(path)
    store, _ = await opened(path, OLD)
    assert b"zq-" not in files_of(path)
    assert await store.check() == []
    store.abandon()


async def test_a_new_key_opens_the_store_and_the_old_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "harken.db"
    store, given = await opened(path, OLD)
    await given.fires("kept")
    wrapped = bytes(store._database.tx.value("SELECT value FROM documents WHERE kind='seal'"))
    await store.close()
    await SqliteStore.rekey(path, OLD, NEW)
    assert wrapped not in files_of(path)
    with pytest.raises(Misconfigured, match="another key"):
        SqliteStore.at(path, HandClock(), key=OLD)
    store, _ = await opened(path, NEW)
    assert [event.subject for event in (await store.events()).items] == ["kept"]
    store.abandon()


async def test_rekeying_again_after_an_interruption_is_done_already(tmp_path: Path) -> None:
    path = tmp_path / "harken.db"
    store, _ = await opened(path, OLD)
    await store.close()
    for _ in range(2):
        await SqliteStore.rekey(path, OLD, NEW)
    store, _ = await opened(path, NEW)
    store.abandon()


async def test_rekeying_with_a_wrong_key_or_without_encryption_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "harken.db"
    store, _ = await opened(path, OLD)
    await store.close()
    before = files_of(path)
    with pytest.raises(Misconfigured, match="another key"):
        await SqliteStore.rekey(path, NEW, "third")
    assert files_of(path) == before
    store, _ = await opened(tmp_path / "plain.db")
    await store.close()
    with pytest.raises(Refused, match="is not encrypted"):
        await SqliteStore.rekey(tmp_path / "plain.db", "", NEW)


async def test_a_store_that_somebody_writes_is_not_rekeyed(tmp_path: Path) -> None:
    store, _ = await opened(tmp_path / "harken.db", OLD)
    with pytest.raises(Refused, match="another Harken process"):
        await SqliteStore.rekey(tmp_path / "harken.db", OLD, NEW)
    store.abandon()


@pytest.mark.process
@pytest.mark.worker_group("hostile-encryption")
async def test_a_person_changes_the_key_from_the_command_line(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK)
    new = tmp_path / "new-key"
    new.write_text(f"{NEW}\n")
    async with started(tmp_path, **{ENV: OLD}) as harken:
        await harken.hook("before")
        code, _, err = await harken.types("store", "rekey", "--new-key-file", str(new))
        assert (code, "a controller is running" in err) == (1, True)
    code, _, err = await types(tmp_path, "store", "rekey", env={ENV: OLD})
    assert (code, "HARKEN_NEW_ENCRYPTION_KEY" in err) == (1, True)
    code, out, err = await types(tmp_path, "store", "rekey", env={ENV: OLD, "HARKEN_NEW_ENCRYPTION_KEY": OLD})
    assert (code, "the new key is the old one" in err) == (1, True)
    code, _, err = await types(tmp_path, "store", "rekey", "--new-key-file", "nowhere", env={ENV: OLD})
    assert (code, "nowhere cannot be read: No such file" in err) == (1, True)
    code, out, err = await types(tmp_path, "store", "rekey", "--new-key-file", str(new), env={ENV: OLD})
    assert (code, "opens with the new key only" in out) == (0, True), err
    code, _, err = await types(tmp_path, "events", "list", env={ENV: OLD})
    assert (code, "another key" in err) == (1, True)
    code, out, err = await types(tmp_path, "events", "list", "--json", env={ENV: NEW})
    assert (code, [event["key"] for event in json.loads(out)]) == (0, ["before"]), err


@pytest.mark.process
@pytest.mark.worker_group("hostile-encryption")
async def test_a_crash_between_the_store_and_the_stored_secrets_locks_nobody_out(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK.replace("}}", ", secret: '${secret:hook}'}}").replace("none", "hmac"))
    path = tmp_path / "harken.db"
    env = {"HARKEN_KEYRING": "off", "HOME": str(tmp_path / "home")}
    secrets = {key: Credentials(path, {**env, ENV: key}) for key in (OLD, NEW)}
    secrets[OLD].store_secret("hook", "a secret of the hook")
    store, _ = await opened(path, OLD)
    await store.close()
    secrets[OLD].add_key(NEW)
    await SqliteStore.rekey(path, OLD, NEW)
    assert [secrets[key].secret("hook") for key in (OLD, NEW)] == ["a secret of the hook"] * 2
    async with started(tmp_path, **env, **{ENV: NEW}) as harken:
        assert [row["name"] for row in await harken.json("triggers", "list")] == ["hook"]
    assert secrets[NEW].secret("hook") == "a secret of the hook"
    with pytest.raises(Misconfigured, match="sealed with another key"):
        secrets[OLD].secret("hook")


@pytest.mark.process
@pytest.mark.worker_group("hostile-encryption")
async def test_a_store_that_cannot_be_rekeyed_leaves_the_stored_secrets_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK)
    path = tmp_path / "harken.db"
    env = {"HARKEN_KEYRING": "off", "HOME": str(tmp_path / "home"), ENV: OLD}
    Credentials(path, env).store_secret("hook", "a secret of the hook")
    store, _ = await opened(path, OLD)
    code, _, err = await types(tmp_path, "store", "rekey", env={**env, "HARKEN_NEW_ENCRYPTION_KEY": NEW})
    store.abandon()
    assert (code, "another Harken process" in err) == (1, True)
    assert Credentials(path, env).secret("hook") == "a secret of the hook"
    with pytest.raises(Misconfigured, match="sealed with another key"):
        Credentials(path, {**env, ENV: NEW}).secret("hook")


@pytest.mark.process
@pytest.mark.worker_group("hostile-encryption")
async def test_secrets_that_were_stored_before_the_first_start_follow_the_key_too(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK)
    env = {"HARKEN_KEYRING": "off", "HOME": str(tmp_path / "home"), ENV: OLD}
    Credentials(tmp_path / "harken.db", env).store_secret("hook", "a secret of the hook")
    code, _, err = await types(tmp_path, "store", "rekey", env={**env, "HARKEN_NEW_ENCRYPTION_KEY": NEW})
    assert code == 0, err
    assert Credentials(tmp_path / "harken.db", {**env, ENV: NEW}).secret("hook") == "a secret of the hook"

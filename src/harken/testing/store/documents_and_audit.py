"""The contract of `Registry`: documents whose revision keeps writers from overwriting each other; audits."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec

from harken.store import DocumentChange, Store
from harken.testing.clock import HandClock
from harken.testing.store.world import Reopen, StoreWorld

__all__ = ["RegistryContract"]


class RegistryContract(StoreWorld):
    async def test_raw_documents_are_the_json_that_was_written(self, store: Store) -> None:
        values: dict[str, Any] = {"a": {"b": [1, 2.5, "ü", None], "a": True}, "z": "text"}
        for name, value in values.items():
            await store.put("raws", name, value)
        for limit in (None, 5):
            found = await store.documents("raws", limit=limit, raw=True)
            assert {one.name: one.value for one in found} == {
                name: msgspec.json.encode(value) for name, value in values.items()
            }

    async def test_what_was_never_put_is_none(self, store: Store) -> None:
        assert await store.get("token", "t") is None

    async def test_what_was_put_is_there_with_revision_and_time(self, store: Store, clock: HandClock) -> None:
        put = await store.put("token", "t", {"role": "admin", "n": [1, None, 2.5]})
        assert put == await store.get("token", "t")
        assert put is not None
        assert (put.value, put.revision, put.updated_at) == ({"role": "admin", "n": [1, None, 2.5]}, 1, clock.now())

    async def test_revisions_rise(self, store: Store) -> None:
        revisions = [put.revision for put in [await store.put("token", "t", n) for n in range(3)] if put]
        assert revisions == [1, 2, 3]

    async def test_expecting_the_current_revision_writes(self, store: Store) -> None:
        await store.put("token", "t", 1)
        put = await store.put("token", "t", 2, expect=1)
        assert put is not None
        assert (put.value, put.revision) == (2, 2)

    async def test_expecting_another_revision_writes_nothing(self, store: Store) -> None:
        await store.put("token", "t", 1)
        await store.put("token", "t", 2)
        assert await store.put("token", "t", 3, expect=1) is None
        found = await store.get("token", "t")
        assert found is not None
        assert found.value == 2

    async def test_expecting_absence_writes_only_the_first_time(self, store: Store) -> None:
        assert await store.put("token", "t", 1, expect=0) is not None
        assert await store.put("token", "t", 2, expect=0) is None

    async def test_expecting_a_revision_of_what_is_absent_writes_nothing(self, store: Store) -> None:
        assert await store.put("token", "t", 1, expect=4) is None
        assert await store.get("token", "t") is None

    async def test_several_documents_are_changed_together(self, store: Store) -> None:
        await store.put("token", "old", 1)
        changes = [
            DocumentChange(kind="token", name="new", value={"n": 2}, expect=0),
            DocumentChange(kind="token", name="old", expect=1),
            DocumentChange(kind="budget", name="b", value=3),
        ]
        changed = await store.change(changes)
        assert changed is not None
        assert [(one.value, one.revision) if one else None for one in changed] == [({"n": 2}, 1), None, (3, 1)]
        assert changed[0] == await store.get("token", "new")
        assert await store.get("token", "old") is None

    async def test_one_revision_that_is_not_expected_keeps_all_from_being_changed(self, store: Store) -> None:
        await store.put("token", "a", 1)
        for change in (
            DocumentChange(kind="token", name="a", value=2, expect=0),
            DocumentChange(kind="token", name="a", value=2, expect=7),
            DocumentChange(kind="token", name="a", expect=2),
            DocumentChange(kind="token", name="absent", value=2, expect=1),
            DocumentChange(kind="token", name="absent", expect=1),
        ):
            first = DocumentChange(kind="budget", name="b", value=3)
            assert await store.change([first, change]) is None
            assert await store.change([change, first]) is None
        assert await store.get("budget", "b") is None
        found = await store.get("token", "a")
        assert found is not None
        assert (found.value, found.revision) == (1, 1)

    async def test_of_many_changes_that_expect_the_same_one_is_written(self, store: Store) -> None:
        changes = [
            [
                DocumentChange(kind="token", name="a", value=n, expect=0),
                DocumentChange(kind="token", name=f"b{n}", value=n),
            ]
            for n in range(10)
        ]
        results = await asyncio.gather(*(store.change(one) for one in changes))
        winner = [n for n, found in enumerate(results) if found is not None]
        assert [document.value for document in await store.documents("token")] == winner * 2

    async def test_kinds_are_apart(self, store: Store) -> None:
        await store.put("token", "t", 1)
        await store.put("budget", "t", 2)
        assert [document.value for document in await store.documents("budget")] == [2]

    async def test_documents_come_by_name(self, store: Store) -> None:
        for name in ("b", "c", "a"):
            await store.put("token", name, name)
        assert [document.name for document in await store.documents("token")] == ["a", "b", "c"]

    async def test_what_was_deleted_is_gone(self, store: Store) -> None:
        await store.put("token", "t", 1)
        assert [await store.delete("token", "t"), await store.delete("token", "t")] == [True, False]
        assert await store.get("token", "t") is None

    async def test_documents_come_in_pages_behind_a_name(self, store: Store) -> None:
        for name in ("b", "d", "a", "c", "e"):
            await store.put("token", name, name)
        await store.put("other", "bb", 1)
        pages = [await store.documents("token", after=after, limit=2) for after in ("", "b", "bb", "d", "e")]
        assert [[found.value for found in page] for page in pages] == [["a", "b"], ["c", "d"], ["c", "d"], ["e"], []]
        assert [found.name for found in await store.documents("token", after="c")] == ["d", "e"]

    async def test_documents_survive_a_crash(self, store: Store, reopen: Reopen) -> None:
        put = await store.put("token", "t", {"x": 1})
        assert await (await reopen(store)).get("token", "t") == put

    async def test_audits_are_kept_newest_first(self, store: Store) -> None:
        await store.audit("ana", "pause", "trigger mail", {"reason": "holiday"})
        await store.audit("bob", "resume", "trigger mail", {})
        page = await store.audits()
        assert [(item["who"], item["did"], item["what"]) for item in page.items] == [
            ("bob", "resume", "trigger mail"),
            ("ana", "pause", "trigger mail"),
        ]
        assert page.items[1]["detail"] == {"reason": "holiday"}

    async def test_audits_are_found_by_who_what_and_when(self, store: Store, clock: HandClock) -> None:
        for number in range(5):
            await store.audit("ana" if number % 2 else "bob", "pause", f"trigger {number}", {})
            clock.advance(60)
        middle = clock.now() - timedelta(seconds=150)
        await store.audit("ana", "resume", "trigger 1", {})
        found = {
            "who": await store.audits(who="ana"),
            "did": await store.audits(did="resume"),
            "what": await store.audits(what="trigger 1"),
            "since": await store.audits(since=middle),
            "all": await store.audits(who="ana", did="pause", what="trigger 3", since=middle),
        }
        assert {name: [f"{one['did']} {one['what'][-1]}" for one in page.items] for name, page in found.items()} == {
            "who": ["resume 1", "pause 3", "pause 1"],
            "did": ["resume 1"],
            "what": ["resume 1", "pause 1"],
            "since": ["resume 1", "pause 4", "pause 3"],
            "all": ["pause 3"],
        }

    async def test_pages_of_found_audits_have_every_entry_once(self, store: Store) -> None:
        for number in range(9):
            await store.audit("ana" if number % 2 else "bob", "pause", str(number), {})
        seen, before = [], None
        while True:
            page = await store.audits(who="bob", before=before, limit=2)
            seen += [one["what"] for one in page.items]
            before = page.next
            if before is None:
                break
        assert seen == ["8", "6", "4", "2", "0"]

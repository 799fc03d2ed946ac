"""The contract of `Records.history`: a feed's events in columns, oldest first, with what a trigger decided."""

from __future__ import annotations

from typing import Any

import msgspec

from harken.event import Verdict
from harken.store import History
from harken.testing.store.world import INBOX, INTERNAL_FEED, Given, StoreWorld, definitions, feed

__all__ = ["HistoryContract"]


def filtered(trigger: str) -> Verdict:
    return Verdict(trigger=trigger, outcome="filtered", reason="no (event.id = 1)")


def payloads(found: History) -> list[dict[str, Any]]:
    return msgspec.json.Decoder(dict[str, Any]).decode_lines(found.data)


class HistoryContract(StoreWorld):
    async def test_history_is_in_columns_and_oldest_first(self, given: Given) -> None:
        await given.commit(given.entry("a", given.intent("a")), given.entry("b", filtered("mail")), given.entry("c"))
        found = await given.store.history("inbox", "mail")
        events = list(reversed(await given.events()))
        assert list(found.ids) == [event.id for event in events]
        assert list(found.types) == ["mail"] * 3
        assert list(found.outcomes) == ["fired", "filtered", ""]
        assert payloads(found) == [{"id": "a"}, {"id": "b"}, {"id": "c"}]
        assert found.next is None
        now = round(given.now().timestamp() * 1e6)
        assert (list(found.occurred_at), list(found.recorded_at)) == ([now] * 3, [now] * 3)

    async def test_history_pages_show_every_event_once(self, given: Given) -> None:
        await given.commit(*(given.entry(f"s{n}", filtered("mail")) for n in range(23)))
        ids: list[int] = []
        after: int | None = 0
        while after is not None:
            page = await given.store.history("inbox", "mail", after=after, limit=5)
            ids += page.ids
            after = page.next
        assert ids == sorted(event.id for event in await given.events())
        assert len(ids) == 23

    async def test_a_brief_history_lacks_types_and_times_at_most(self, given: Given) -> None:
        decisions = [(), (filtered("mail"),), (filtered("mail2"), filtered("mail")), (filtered("mai"),)]
        await given.commit(*(given.entry(f"s{n}", *found) for n, found in enumerate(decisions)))
        for trigger in ("mail", "mail2", "mai", "other"):
            whole = await given.store.history("inbox", trigger, limit=3)
            brief = await given.store.history("inbox", trigger, limit=3, brief=True)
            assert (list(brief.ids), list(brief.outcomes)) == (list(whole.ids), list(whole.outcomes))
            assert (payloads(brief), brief.next) == (payloads(whole), whole.next)
            assert list(brief.types) in ([], list(whole.types))

    async def test_history_of_a_feed_without_events_is_empty(self, given: Given) -> None:
        await given.open(definitions(feeds=(INBOX, INTERNAL_FEED, feed("news"))))
        await given.commit(given.entry("a"))
        assert await given.store.history("news", "mail") == History()

    async def test_history_of_a_span_of_time(self, given: Given) -> None:
        times = []
        for n in range(40):
            times.append(given.now())
            await given.renew()
            await given.commit(given.entry(f"s{n}"))
            given.clock.advance(3600)
        found = await given.store.history("inbox", "mail", since=times[10], until=times[13])
        assert payloads(found) == [{"id": "s10"}, {"id": "s11"}, {"id": "s12"}]
        assert found.next is None

    async def test_history_goes_on_after_the_span_has_begun(self, given: Given) -> None:
        for n in range(6):
            await given.renew()
            await given.commit(given.entry(f"s{n}"))
            given.clock.advance(3600)
        since = given.now(-4 * 3600)
        first = await given.store.history("inbox", "mail", since=since, limit=3)
        assert first.next is not None
        second = await given.store.history("inbox", "mail", since=since, after=first.next, limit=3)
        assert [payloads(page)[0]["id"] for page in (first, second)] == ["s2", "s5"]

    async def test_history_has_undated_events_and_those_of_many_triggers(self, given: Given) -> None:
        many = [filtered(f"t{n}") for n in range(12)]
        undated = msgspec.structs.replace(given.entry("a").event, occurred_at=None)
        await given.commit(given.entry("a", *many, filtered("mail"), event=undated), given.entry("b", filtered("mail")))
        found = await given.store.history("inbox", "mail")
        assert list(found.outcomes) == ["filtered", "filtered"]
        assert found.occurred_at[0] is None
        assert list((await given.store.history("inbox", "t3")).outcomes) == ["filtered", ""]

    async def test_history_takes_any_text(self, given: Given) -> None:
        event = msgspec.structs.replace(given.entry("a").event, type="a\x1fb", data={"text": 'é "\n\u2028 🙂'})
        await given.commit(given.entry("a", event=event))
        found = await given.store.history("inbox", "mail")
        assert (list(found.types), payloads(found)) == (["a\x1fb"], [{"text": 'é "\n\u2028 🙂'}])

    async def test_history_tells_triggers_apart_whose_names_begin_alike(self, given: Given) -> None:
        verdicts = [filtered("mail2"), Verdict(trigger="mail", outcome="error", reason='x","outcome":"fired')]
        await given.commit(given.entry("a", *verdicts), given.entry("b", *reversed(verdicts)))
        assert list((await given.store.history("inbox", "mail")).outcomes) == ["error", "error"]
        assert list((await given.store.history("inbox", "mail2")).outcomes) == ["filtered", "filtered"]
        assert list((await given.store.history("inbox", "mai")).outcomes) == ["", ""]

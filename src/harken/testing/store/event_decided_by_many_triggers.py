"""The contract of events that many triggers decided: what did not fire is stored compactly, and read as it was."""

from __future__ import annotations

from harken.event import Outcome, Verdict
from harken.store import GatherInto, Intent
from harken.testing.store.world import Given, Reopen, StoreWorld

__all__ = ["ManyVerdictsContract", "declined"]

MANY = 40


def declined(number: int, outcome: Outcome = "filtered") -> Verdict:
    """What one of many triggers says about an event that it does not want."""
    reason = f'event.text.contains("word {number}") is false (event.text = "ünrelated")'
    return Verdict(trigger=f"team-{number}", outcome=outcome, reason=reason)


def page_of(*wanted: Verdict | Intent) -> list[Verdict | Intent]:
    """These decisions among those of many triggers: one at the beginning, the others in the middle."""
    many = [declined(number, "error" if number % 7 == 0 else "filtered") for number in range(MANY)]
    return [*wanted[:1], *many[:20], *wanted[1:], *many[20:]]


class ManyVerdictsContract(StoreWorld):
    async def test_many_verdicts_are_read_as_they_were_decided(self, given: Given, reopen: Reopen) -> None:
        decisions = page_of(given.intent("s"), given.intent("s", trigger="other", hold="flood"))
        committed = await given.commit(given.entry("s", *decisions))
        verdicts = committed.verdicts[0]
        assert [verdict.outcome for verdict in (verdicts[0], verdicts[21])] == ["fired", "held"]
        assert [verdict for verdict in verdicts if not verdict.run_id] == page_of()
        store = await reopen(given.store)
        event = await store.event(committed.event_ids[0])
        assert event is not None
        assert event.verdicts == verdicts

    async def test_many_verdicts_without_a_run_are_kept(self, given: Given) -> None:
        committed = await given.commit(given.entry("s", *page_of()))
        [event] = await given.events()
        assert list(event.verdicts) == list(committed.verdicts[0]) == page_of()

    async def test_an_event_is_found_by_one_of_many_triggers(self, given: Given) -> None:
        mail = Verdict(trigger="mail", outcome="filtered", reason="not urgent")
        await given.commit(given.entry("s", *page_of(mail)), given.entry("t", *page_of()))
        assert [event.subject for event in await given.events(trigger="mail")] == ["s"]

    async def test_a_claim_is_without_verdicts(self, given: Given) -> None:
        handed = await given.commit(given.entry("s", *page_of(given.intent("s"))), claim=1, holder="w")
        assert [event.verdicts for claim in handed.claimed for event in claim.events] == [()]
        await given.commit(given.entry("t", *page_of(given.intent("t"))))
        into = GatherInto("k", given.now())
        await given.commit(given.entry("u", *page_of(given.intent("u", trigger="other", gather=into))))
        given.clock.advance(1)
        claims = {event.subject: event for claim in await given.claims() for event in claim.events}
        assert {subject: event.verdicts for subject, event in claims.items()} == {"t": (), "u": ()}
        assert claims["t"].data == {"id": "t"}

    async def test_all_runs_of_one_event_are_claimed_with_it(self, given: Given) -> None:
        decisions = (given.intent("s"), given.intent("s", trigger="other"))
        await given.commit(given.entry("s", *page_of(*decisions)))
        claims = await given.claims()
        assert sorted(claim.trigger for claim in claims) == ["mail", "other"]
        assert [event.subject for claim in claims for event in claim.events] == ["s", "s"]

    async def test_a_repeat_names_the_runs_of_the_first_event(self, given: Given) -> None:
        decisions = page_of(given.intent("s"), given.intent("s", trigger="other"))
        first = (await given.commit(given.entry("s", *decisions))).verdicts[0]
        again = (await given.commit(given.entry("s", *decisions))).verdicts[0]
        assert {verdict.outcome for verdict in again} == {"duplicate"}
        named = [(verdict.trigger, verdict.run_id) for verdict in again]
        assert named == [(verdict.trigger, verdict.run_id) for verdict in first]

    async def test_what_was_before_the_start_of_one_of_many_is_decided_again_once(self, given: Given) -> None:
        early = Verdict(trigger="mail", outcome="before_start", reason="too early")
        [event_id] = (await given.commit(given.entry("s", *page_of(early)))).event_ids
        again = given.entry("s", given.intent("s"), memory_id="", again=event_id)
        first = (await given.commit(again)).verdicts[0]
        second = (await given.commit(again)).verdicts[0]
        assert first == second
        assert (first[0].trigger, first[0].outcome) == ("mail", "fired")
        assert list(first[1:]) == page_of()
        assert [claim.id for claim in await given.claims()] == [first[0].run_id]
        [event] = await given.events()
        assert event.verdicts == first

    async def test_what_one_of_many_decided_is_not_decided_again(self, given: Given) -> None:
        no = Verdict(trigger="mail", outcome="filtered", reason="not urgent")
        [event_id] = (await given.commit(given.entry("s", *page_of(no)))).event_ids
        committed = await given.commit(given.entry("s", given.intent("s"), memory_id="", again=event_id))
        assert list(committed.verdicts[0]) == page_of(no)
        assert await given.claims() == []

    async def test_a_trigger_that_came_later_decides_after_the_many(self, given: Given) -> None:
        [event_id] = (await given.commit(given.entry("s", *page_of(given.intent("s"))))).event_ids
        late = given.intent("s", trigger="other")
        committed = await given.commit(given.entry("s", late, memory_id="", again=event_id))
        triggers = [verdict.trigger for verdict in committed.verdicts[0]]
        assert (triggers[0], triggers[-1], len(triggers)) == ("mail", "other", MANY + 2)
        assert sorted(claim.trigger for claim in await given.claims()) == ["mail", "other"]

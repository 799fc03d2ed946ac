"""A person's data is removed wherever the store has it, and nobody else's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harken.errors import Malformed
from harken.event import Event
from harken.operate.forget import is_about
from harken.runs import Finished, StepRecord
from harken.store import NewRun, Settlement
from harken.store.document_kinds import REQUEST, TICKET, TRIGGER_ROW
from tests.operate.operator_world import POLLED, Office

ANA = "ana@example.com"


def mail(office: Office, name: str, **data: Any) -> Event:
    content = {"id": name, "urgency": "high", **data}
    return Event(subject=name, type="json.item", data=content, occurred_at=office.clock.now())


async def everything(office: Office) -> str:
    """All that the store tells, as one text."""
    store = office.store
    found: list[Any] = [
        (await store.events(limit=500)).items,
        (await store.runs(limit=500, journals=True)).items,
        (await store.dead(limit=500)).items,
        (await store.audits(limit=500)).items,
        list(await store.documents(TICKET)),
    ]
    return msgspec.json.encode(found).decode()


async def finishes(office: Office, **record: Any) -> None:
    for claim in await office.store.claim("w", 10, 60):
        step = StepRecord(path="ask", action="llm", status="ok", **record)
        await office.store.journal(claim.id, claim.token, [step])
        settlement = Settlement(id=claim.id, token=claim.token, outcome=Finished(output="done"))
        await office.store.settle([settlement])


async def full(office: Office) -> None:
    """Ana in a subject, a payload, a journal, the input of a run, a refused event and the note of a ticket."""
    await office.shows(mail(office, ANA), mail(office, "M-2", body=f"Dear\nAna <{ANA.upper()}>, hello"))
    await finishes(office, output="done")
    await office.shows(mail(office, "M-3", body="from joana@example.com"))
    await finishes(office, output={"answer": f"I wrote to {ANA}."})
    await office.store.dead_letter(POLLED.name, mail(office, "M-4", body=f"x\n{ANA}"), "too large")
    await office.store.put(TICKET, "acme/7", {"comment": f"asked by {ANA}", "state": "done"})
    run = NewRun(trigger="", workflow="oncall", workflow_rev="r1", id_key="by hand", input=b'{"to": "ana@example.com"}')
    await office.store.start(run)


async def test_without_yes_nothing_is_removed_and_it_is_said_what_would_be(office: Office) -> None:
    await full(office)
    before = len((await office.store.events(limit=500)).items)
    answer = await office.ask("events.forget", subject=ANA)
    assert (answer["forgotten"], answer["events"], answer["notes"]) == (False, 2, 1)
    assert answer["runs"] >= 4
    assert len((await office.store.events(limit=500)).items) == before


async def test_a_person_is_removed_everywhere_and_others_stay(office: Office) -> None:
    await full(office)
    answer = await office.ask("events.forget", subject=ANA, yes=True)
    assert ("ana@example.com" in (text := (await everything(office)).casefold().replace("joana", ""))) is False, text
    assert (answer["events"], answer["letters"], answer["notes"], answer["left"]) == (2, 1, 1, [])
    assert [event.subject for event in (await office.store.events()).items] == ["M-3"]
    note = await office.store.get(TICKET, "acme/7")
    assert note is not None
    assert note.value == {"comment": f"asked by {answer['subject']}", "state": "done"}
    assert await office.store.check() == []


async def test_what_was_forgotten_is_not_new_again(office: Office) -> None:
    await full(office)
    await office.ask("events.forget", subject=ANA, yes=True)
    shown = await office.shows(mail(office, ANA))
    assert shown.event_ids == []


async def test_answers_that_were_kept_go_and_configuration_is_named(office: Office) -> None:
    body = msgspec.json.encode({"note": f"hello\n{ANA}"}).decode()
    await office.store.put(REQUEST, "r1", {"asked": "x", "status": 200, "body": body})
    await office.store.put(TRIGGER_ROW, "t1", {"name": "letters", "config": {"from": ANA}})
    answer = await office.ask("events.forget", subject=ANA, yes=True)
    assert await office.store.get(REQUEST, "r1") is None
    assert answer["left"] == ["the configuration of letters: change it, or delete the trigger"]


async def test_the_audit_has_a_mark_in_place_of_the_person(office: Office) -> None:
    await full(office)
    answer = await office.ask("events.forget", subject=ANA, yes=True)
    [entry] = (await office.ask("audit.list", did="events.forget"))["items"]
    assert entry["what"] == answer["subject"]
    assert entry["what"].startswith("forgotten-")
    assert entry["detail"] | {"runs": 0} == {"forgotten": True, "events": 2, "runs": 0, "letters": 1, "notes": 1}


async def test_a_run_that_is_being_executed_is_named_and_gone_the_next_time(office: Office) -> None:
    await office.shows(mail(office, ANA))
    claims = await office.store.claim("w", 10, 60)
    first = await office.ask("events.forget", subject=ANA, yes=True)
    assert "being executed" in first["left"][0]
    settlements = [Settlement(id=one.id, token=one.token, outcome=Finished()) for one in claims]
    await office.store.settle(settlements)
    second = await office.ask("events.forget", subject=ANA, yes=True)
    assert (second["left"], (await office.store.events()).items) == ([], [])


async def test_a_subject_that_would_be_found_everywhere_is_refused(office: Office) -> None:
    with pytest.raises(Malformed, match="at least 3 characters"):
        await office.ask("events.forget", subject=" a ", yes=True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ana@example.com", True),
        ("<ANA@Example.com>,", True),
        ("see ana@example.com.", True),
        ("joana@example.com", False),
        ("x.ana@example.com", False),
        ("ana@example.com.au", False),
        ("ana@example.community", False),
    ],
)
def test_only_the_whole_word_counts(text: str, found: bool) -> None:
    assert is_about(ANA)({"a": [1, {"b": text}]}) is found
    assert is_about(ANA)({text: 1}) is found


def test_a_number_may_be_a_person_too() -> None:
    assert is_about("4711")({"user_id": 4711})
    assert not is_about("4711")({"user_id": 47_110, "ok": True})

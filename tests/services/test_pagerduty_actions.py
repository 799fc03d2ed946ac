"""What Harken says and does at PagerDuty beside reading: whose key it is, whether ids exist, acknowledge, note."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.services.pagerduty import Account, Query, check, plugin, whoami
from harken.source import Call, Host
from harken.testing.fakes.pagerduty import Key, PagerDuty
from harken.testing.fakes.server import Answer
from tests.services.duty import account


async def act(host: Host, account: Account, name: str, *, key: str = "run1/step1", **params: Any) -> dict[str, Any]:
    chosen = plugin.actions[name]
    call = Call(params=chosen.params.model_validate(params), account=account, host=host, idempotency_key=key)
    answer: dict[str, Any] = await chosen.run(call)
    return answer


def lose_the_answer() -> None:
    """It was done, and a gateway lost the answer."""
    raise web.HTTPBadGateway


class TestWhoami:
    async def test_a_personal_key_tells_its_user(self, duty: PagerDuty, host: Host):
        assert await whoami(account(duty), host) == {
            "id": "PME",
            "name": "Mia Engel",
            "email": "mia@example.com",
            "role": "user",
            "time_zone": "Europe/Berlin",
            "account": "acme.pagerduty.com",
            "teams": "PTEAM1 (Platform)",
            "key": "personal",
        }

    async def test_a_general_key_is_proven_and_the_way_to_an_id_is_told(self, duty: PagerDuty, host: Host):
        told = await whoami(account(duty, "general-key"), host)
        assert told["key"] == "general: it works, and belongs to no user"
        assert "/users/" in told["find_your_id"]
        assert [sent.path for sent in duty.seen] == ["/users/me", "/abilities"]

    async def test_with_from_email_a_general_key_finds_the_user(self, duty: PagerDuty, host: Host):
        told = await whoami(account(duty, "general-key", from_email="Mia@Example.com"), host)
        assert (told["id"], told["key"]) == ("PME", "general: it works, and belongs to no user")

    async def test_a_from_email_of_nobody_is_said_to_be_one(self, duty: PagerDuty, host: Host):
        told = await whoami(account(duty, "general-key", from_email="mia@example.co"), host)
        assert told["from_email"] == "no user of this account has this e-mail address"

    async def test_a_wrong_key_needs_attention(self, duty: PagerDuty, host: Host):
        with pytest.raises(NeedsAttention, match="configure"):
            await whoami(account(duty, "wrong"), host)


class TestCheck:
    async def test_every_id_is_resolved(self, duty: PagerDuty, host: Host):
        query = Query(user_id="PME", services=("PSVC1", "PSVC2"), teams=("PTEAM1",))
        checked = await check(query, account(duty), host)
        assert checked.found == {
            "PME": "user Mia Engel",
            "PSVC1": "service Checkout",
            "PSVC2": "service Search",
            "PTEAM1": "team Platform",
        }
        assert checked.unknown == []

    async def test_each_unknown_id_gets_its_sentence(self, duty: PagerDuty, host: Host):
        query = Query(user_id="PYOU", services=("PSVC1", "PSVC9"), teams=("PTEAM9",))
        checked = await check(query, account(duty), host)
        assert list(checked.found) == ["PSVC1"]
        assert [sentence.partition(",")[0] for sentence in checked.unknown] == [
            "there is no user PYOU",
            "there is no service PSVC9",
            "there is no team PTEAM9",
        ]

    async def test_an_empty_query_asks_for_nothing(self, duty: PagerDuty, host: Host):
        assert (await check(Query(), account(duty), host)).found == {}
        assert duty.seen == []

    async def test_trouble_is_not_taken_for_an_unknown_id(self, duty: PagerDuty, host: Host):
        duty.limit(5)
        with pytest.raises(RetryLater):
            await check(Query(user_id="PME"), account(duty), host)


class TestAcknowledge:
    @pytest.mark.parametrize("code", [1001, 1002, 2001])
    async def test_whoever_was_faster_has_done_it(self, duty: PagerDuty, host: Host, code: int):
        made = duty.trigger()

        def be_faster() -> None:
            duty.acknowledge(made)
            duty.answers = [Answer(status=400, body=f'{{"error": {{"code": {code}}}}}'.encode())]

        duty.after[1] = be_faster
        done = await act(host, account(duty), "acknowledge", incident=made)
        assert (done["status"], done["changed"]) == ("acknowledged", False)

    async def test_a_triggered_incident_is_acknowledged(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        assert await act(host, account(duty), "acknowledge", incident=made) == {
            "incident": made,
            "status": "acknowledged",
            "changed": True,
        }
        assert duty.incidents[made].status == "acknowledged"

    async def test_a_second_try_changes_nothing(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        await act(host, account(duty), "acknowledge", incident=made)
        again = await act(host, account(duty), "acknowledge", incident=made)
        assert (again["status"], again["changed"]) == ("acknowledged", False)
        assert [sent.method for sent in duty.seen].count("PUT") == 1

    async def test_a_resolved_incident_stays_resolved(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        duty.resolve(made)
        assert (await act(host, account(duty), "acknowledge", incident=made))["status"] == "resolved"

    async def test_one_that_somebody_resolves_meanwhile_is_no_failure(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        duty.after[1] = lambda: duty.resolve(made)
        answer = await act(host, account(duty), "acknowledge", incident=made)
        assert (answer["status"], answer["changed"]) == ("resolved", False)

    async def test_an_incident_may_be_named_by_its_number(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        await act(host, account(duty), "acknowledge", incident=duty.incidents[made].number)
        assert duty.incidents[made].status == "acknowledged"

    async def test_a_general_key_without_from_is_told_what_it_needs(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        with pytest.raises(NeedsAttention, match="from_email"):
            await act(host, account(duty, "general-key"), "acknowledge", incident=made)

    async def test_a_general_key_writes_in_the_name_of_from_email(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        await act(host, account(duty, "general-key", from_email="mia@example.com"), "acknowledge", incident=made)
        assert duty.seen[-1].headers["from"] == "mia@example.com"

    async def test_the_step_may_name_somebody_else(self, duty: PagerDuty, host: Host):
        duty.add_user("POTHER")
        made = duty.trigger()
        writes = account(duty, "general-key", from_email="mia@example.com")
        await act(host, writes, "acknowledge", incident=made, **{"from": "pother@example.com"})
        assert duty.seen[-1].headers["from"] == "pother@example.com"

    async def test_a_read_only_key_is_told_which_scope_it_lacks(self, duty: PagerDuty, host: Host):
        duty.keys["read-only-key"] = Key(user="PME", write=False)
        made = duty.trigger()
        with pytest.raises(NeedsAttention, match=r"incidents\.write"):
            await act(host, account(duty, "read-only-key"), "acknowledge", incident=made)

    async def test_an_unknown_incident_needs_attention(self, duty: PagerDuty, host: Host):
        with pytest.raises(NeedsAttention, match="404"):
            await act(host, account(duty), "acknowledge", incident="PNONE")

    @pytest.mark.parametrize("incident", ["", "..", "P1/notes", "P1?x=1", "P1\n"])
    async def test_what_is_no_id_reaches_no_address(self, duty: PagerDuty, host: Host, incident: str):
        with pytest.raises(ValidationError):
            await act(host, account(duty), "acknowledge", incident=incident)
        assert duty.seen == []


class TestNote:
    async def test_a_note_is_written(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        answer = await act(host, account(duty), "note", incident=made, content="Disk is full: ü 🔥")
        (note,) = duty.incidents[made].notes
        assert answer == {"incident": made, "note": note.id, "changed": True}
        assert note.content.startswith("Disk is full: ü 🔥\n")

    async def test_the_same_step_again_writes_no_second_one(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        first = await act(host, account(duty), "note", incident=made, content="x")
        again = await act(host, account(duty), "note", incident=made, content="x")
        assert (again["note"], again["changed"]) == (first["note"], False)
        assert len(duty.incidents[made].notes) == 1

    async def test_another_run_may_say_the_same(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        for key in ("run1/step1", "run2/step1"):
            await act(host, account(duty), "note", incident=made, content="x", key=key)
        assert len(duty.incidents[made].notes) == 2

    async def test_a_note_whose_answer_was_lost_is_found_by_the_next_try(self, duty: PagerDuty, host: Host):
        made = duty.trigger()
        duty.after[2] = lose_the_answer
        with pytest.raises(RetryLater):
            await act(host, account(duty), "note", incident=made, content="x")
        assert not (await act(host, account(duty), "note", incident=made, content="x"))["changed"]
        assert len(duty.incidents[made].notes) == 1

    async def test_an_empty_note_is_refused(self, duty: PagerDuty, host: Host):
        with pytest.raises(ValidationError):
            await act(host, account(duty), "note", incident="P1", content="")

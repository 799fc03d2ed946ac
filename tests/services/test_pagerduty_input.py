"""Bad input: wrong tokens, odd answers, queries that could never find anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.http import Client
from harken.outgoing_rate_limit import RateLimit
from harken.services.pagerduty import Account, Query, plugin
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.pagerduty import Key, PagerDuty
from harken.testing.fakes.server import Answer
from tests.services.duty import MINE, source
from tests.services.reading import events, page, read, subjects


class TestTrouble:
    async def test_a_wrong_token_needs_attention_and_says_what_to_do(self, duty: PagerDuty, host: Host):
        with pytest.raises(NeedsAttention) as caught:
            await page(source(duty, host, "hunter2-secret"))
        assert "answered 401 to GET /incidents" in str(caught.value)
        assert "harken integrations pagerduty configure" in caught.value.fix
        assert "hunter2" not in repr(caught.value) + str(caught.value)

    async def test_a_scope_that_was_taken_away_is_named(self, duty: PagerDuty, host: Host):
        duty.keys["personal-key"] = Key(user="PME", read=False)
        with pytest.raises(NeedsAttention, match=r"incidents\.read"):
            await page(source(duty, host))

    async def test_an_account_without_teams_is_told_so(self, duty: PagerDuty, host: Host):
        duty.abilities.remove("teams")
        with pytest.raises(NeedsAttention, match="leave out teams"):
            await page(source(duty, host, teams="PTEAM1"))

    async def test_a_rate_limit_waits_as_long_as_pagerduty_says(self, duty: PagerDuty, host: Host):
        duty.limit(20)
        with pytest.raises(RetryLater) as caught:
            await page(source(duty, host))
        assert (caught.value.after, caught.value.reason) == (20, "rate_limited")

    async def test_its_rate_headers_reach_the_budget(self, duty: PagerDuty, clock: HandClock):
        budget, client = RateLimit(clock), Client(clock)
        duty.remaining = 7
        await client.request("GET", f"{duty.url}/abilities", allow_private=True, rate_limit=budget)
        await client.close()
        told = budget.to_doc()
        assert (told["limit"], told["remaining"], told["reset_at"]) == (960.0, 7.0, clock.time() + 60)

    @pytest.mark.parametrize("status", [500, 502, 503])
    async def test_a_page_that_fails_is_asked_for_again_and_nothing_is_lost(
        self, duty: PagerDuty, host: Host, status: int
    ):
        duty.cap = 4
        made = {duty.trigger() for _ in range(10)}
        listed = source(duty, host)
        first = await page(listed)
        duty.answers.append(Answer(status=status))
        with pytest.raises(RetryLater):
            await page(listed, first.cursor)
        assert set(subjects([first, *await read(listed, first.cursor)])) == made

    @pytest.mark.parametrize("body", [b"null", b"[]", b'"x"', b'{"error":{}}', b'{"incidents":null}', b"<html>"])
    async def test_an_answer_without_incidents_is_a_failure_and_not_an_empty_list(
        self, duty: PagerDuty, host: Host, body: bytes
    ):
        duty.answers.append(Answer(body=body))
        with pytest.raises(RetryLater):
            await page(source(duty, host))


class TestOddIncidents:
    """Whatever an incident looks like, it comes out as an event, and the others do too."""

    @pytest.mark.parametrize(
        "broken",
        [
            {"title": None, "summary": None},
            {"title": 7, "urgency": 3, "incident_number": "12"},
            {"service": None, "teams": None, "priority": None, "escalation_policy": "x"},
            {"service": [], "teams": {"id": 1}, "priority": 5, "created_at": 0},
            {"created_at": None, "last_status_change_at": "yesterday", "status": None},
            {"assignments": None},
            {"assignments": "PME"},
            {"assignments": [None, 3, {"assignee": None}]},
            {"assignments": [{"assignee": {"id": "PME"}}]},
            {"assignments": [{"assignee": {"id": "PME"}, "at": [1]}]},
            {"new_field": {"deep": [1, 2]}, "teams": [None, "x"]},
        ],
    )
    @pytest.mark.parametrize("query", [{}, MINE])
    async def test_hides_no_other_and_is_shown_itself(self, duty: PagerDuty, host: Host, broken: Any, query: Any):
        odd, plain = duty.trigger(), duty.trigger()
        duty.incidents[odd].broken = broken
        assert {event.data["id"] for event in events(await read(source(duty, host, **query)))} == {odd, plain}

    @pytest.mark.parametrize("item", [b"null", b"7", b"[]", b"{}", b'{"id":null}', b'{"id":{}}'])
    async def test_even_without_an_id_an_item_is_an_event_with_a_lasting_name(
        self, duty: PagerDuty, host: Host, item: bytes
    ):
        duty.answers += [Answer(body=b'{"incidents":[%s,{"id":"PX"}],"more":false}' % item)] * 2
        listed = source(duty, host)
        first, second = subjects(await read(listed)), subjects(await read(listed))
        assert first == second
        assert len(set(first)) == 2


class TestQuery:
    def test_a_plain_value_is_taken_for_a_list_of_one(self):
        query = Query.model_validate(
            {"services": "PSVC1", "teams": "PT1", "statuses": "Triggered", "urgencies": "HIGH"}
        )
        assert (query.services, query.teams) == (("PSVC1",), ("PT1",))
        assert (query.statuses, query.urgencies) == (("triggered",), ("high",))

    def test_nothing_is_assumed_about_whose_incidents_are_meant(self):
        assert Query().filters() == []
        assert Query().statuses == ("triggered", "acknowledged")

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("user_id", "me"),
            ("user_id", ["P1", "P2"]),
            ("user_id", ""),
            ("user_id", "mia@example.com"),
            ("user_id", "P1&statuses[]=resolved"),
            ("services", ["Checkout API"]),
            ("services", "../users/P1"),
            ("teams", "P1\r\nX: y"),
            ("statuses", "open"),
            ("statuses", []),
            ("urgencies", ["urgent"]),
            ("service", "P1"),
        ],
    )
    def test_what_the_api_would_silently_find_nothing_for_is_refused_at_once(self, field: str, value: Any):
        with pytest.raises(ValidationError) as caught:
            Query.model_validate({field: value})
        assert caught.value.errors()[0]["loc"][0] == field

    def test_resolved_incidents_of_a_user_cannot_be_asked_for(self):
        with pytest.raises(ValidationError, match="assigned to nobody"):
            Query(user_id="PME", statuses=("triggered", "resolved"))


class TestAccount:
    @pytest.mark.parametrize("token", ["", "  ", "two words", "x\r\nX-Evil: 1", "schlüssel"])
    def test_what_cannot_be_a_token_is_refused_without_showing_it(self, token: str):
        with pytest.raises(ValidationError) as caught:
            Account(token=token)
        assert token.strip() == "" or token not in str(caught.value)

    def test_a_token_does_not_show_itself(self):
        assert "hunter2" not in repr(Account(token="hunter2"))

    @pytest.mark.parametrize("more", [{"base_url": "ftp://x"}, {"base_url": "x"}, {"from_email": "mia"}, {"tokn": "x"}])
    def test_other_mistakes_are_found_too(self, more: Any):
        with pytest.raises(ValidationError):
            Account(token="x", **more)

    def test_the_environment_may_hold_the_token(self):
        assert plugin.environment == {"PAGERDUTY_TOKEN": "token"}


def test_every_setting_has_a_description():
    fields = [*Account.model_fields.values(), *Query.model_fields.values()]
    fields += [field for act in plugin.actions.values() for field in act.params.model_fields.values()]
    assert all(field.description for field in fields)


def test_every_setting_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "services" / "pagerduty.md").read_text("utf-8")
    settings = [*Account.model_fields, *Query.model_fields, *(f"pagerduty.{name}" for name in plugin.actions)]
    params = {field.alias or name for act in plugin.actions.values() for name, field in act.params.model_fields.items()}
    assert [name for name in settings if f"| `{name}` |" not in page] == []
    assert [name for name in params if f"`{name}`" not in page] == []

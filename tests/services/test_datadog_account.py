"""Keys, sites and queries: what is accepted, what is refused, and what a person is told to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.http import Client, Metered
from harken.outgoing_rate_limit import RateLimit
from harken.services.datadog import Account, MonitorStates, Query, plugin
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.datadog import API_KEY, APP_KEY, FakeDatadog
from harken.testing.fakes.server import Answer
from tests.services.datadog import Watch, account, served

OTHER = "c" * 40


@pytest.fixture
async def fake(clock: HandClock) -> AsyncIterator[FakeDatadog]:
    async with served(clock) as fake:
        yield fake


def made(**fields: Any) -> Account:
    return Account.model_validate({"api_key": API_KEY, "app_key": APP_KEY, **fields})


@pytest.mark.parametrize(
    ("site", "api", "web"),
    [
        ("datadoghq.com", "https://api.datadoghq.com", "https://app.datadoghq.com"),
        ("datadoghq.eu", "https://api.datadoghq.eu", "https://app.datadoghq.eu"),
        ("app.datadoghq.eu", "https://api.datadoghq.eu", "https://app.datadoghq.eu"),
        (" US5.datadoghq.com ", "https://api.us5.datadoghq.com", "https://us5.datadoghq.com"),
        ("ddog-gov.com", "https://api.ddog-gov.com", "https://app.ddog-gov.com"),
    ],
)
def test_a_site_leads_to_its_api_and_to_the_pages_of_people(site: str, api: str, web: str):
    assert (made(site=site).api, made(site=site).web) == (api, web)


def test_an_explicit_address_wins_over_the_site():
    assert made(site="datadoghq.eu", base_url="https://proxy.example/dd/").api == "https://proxy.example/dd"


NO_SITES = ["", "x", "evil.example/", "evil.example#", "a@evil.example", "evil.example:8080", "https://datadoghq.com"]
NO_SITES += ["10.0.0.1", "evil.ex\nample.com", "-x.com", "x..com", "evil.example?datadoghq.com", "localhost", "[::1]"]
NO_SITES += ["0x7f.1", "d\u0430tadoghq.com", "a" * 120 + ".com"]


@pytest.mark.parametrize("site", NO_SITES)
def test_a_site_that_is_more_or_less_than_a_name_is_refused(site: str):
    with pytest.raises(ValidationError, match="not a Datadog site") as refused:
        made(site=site)
    assert API_KEY not in str(refused.value)


@pytest.mark.parametrize("address", ["ftp://x", "https://", "nonsense", "https://x/?a=b", "https://x/#y"])
def test_an_address_that_is_none_is_refused(address: str):
    with pytest.raises(ValidationError, match="not the address of an API"):
        made(base_url=address)


@pytest.mark.parametrize("key", ["", " ", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_is_no_word_is_refused(key: str):
    with pytest.raises(ValidationError, match="not a Datadog key"):
        made(app_key=key)


def test_no_key_shows_in_a_representation():
    shown = repr(made()) + str(made())
    assert API_KEY not in shown
    assert APP_KEY not in shown


def test_a_plain_value_is_taken_for_a_list_of_one():
    query = Query.model_validate({"tags": "team:a", "monitor_ids": "12", "statuses": "ok"})
    assert (query.tags, query.monitor_ids, query.statuses) == (("team:a",), (12,), ("ok",))


def test_the_words_of_datadog_are_understood_too():
    assert Query.model_validate({"statuses": ["Alert", "No Data", "WARN", "ok"]}).statuses == (
        "triggered",
        "no_data",
        "warn",
        "ok",
    )


def test_without_a_query_everything_but_ok_is_wanted():
    assert Query().statuses == ("triggered", "warn", "no_data")


@pytest.mark.parametrize(
    "query",
    [
        {"tags": ["a,b"]},
        {"tags": [""]},
        {"tags": ["a\x00b"]},
        {"tags": [7, None]},
        {"monitor_ids": ["12; drop"]},
        {"monitor_ids": [-1]},
        {"monitor_ids": [1.5]},
        {"statuses": ["critical"]},
        {"statuses": []},
        {"statuses": [None]},
        {"monitors": [1]},
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query: Any):
    with pytest.raises(ValidationError):
        Query.model_validate(query)


@pytest.mark.parametrize(
    "tag", ["team:platform", "@jsmith", "env:prod/eu-1", "größe:xl", "has space", 'quote"d', "a&b=c"]
)
async def test_any_character_that_a_tag_can_have_is_legal_and_harmless(
    fake: FakeDatadog, clock: HandClock, host: Host, tag: str
):
    watch = Watch(fake, clock, host, tags=[tag])
    fake.change(fake.monitor(tags=[tag]), "Alert")
    fake.change(fake.monitor(tags=["other:tag"]), "Alert")
    assert [event.data["tags"] for event in await watch.fires()] == [[tag]]


async def test_a_wrong_api_key_is_named(fake: FakeDatadog, host: Host):
    source = MonitorStates(Query(), account(fake, api_key=OTHER), host)
    with pytest.raises(NeedsAttention, match="does not accept the API key") as refused:
        await source.poll(None, START)
    assert "harken integrations datadog configure" in refused.value.fix
    assert "datadoghq.com" in refused.value.fix
    assert OTHER not in str(refused.value)


async def test_a_wrong_application_key_is_named(fake: FakeDatadog, host: Host):
    source = MonitorStates(Query(), account(fake, app_key=OTHER), host)
    with pytest.raises(NeedsAttention, match="the application key is wrong, or it lacks the scope monitors_read") as no:
        await source.poll(None, START)
    assert OTHER not in str(no.value)
    assert API_KEY not in str(no.value)


async def test_an_application_key_without_the_scope_is_told_which(fake: FakeDatadog, host: Host):
    fake.scopes = frozenset({"monitors_downtime"})
    with pytest.raises(NeedsAttention, match="monitors_read"):
        await MonitorStates(Query(), account(fake), host).poll(None, START)


async def test_a_key_goes_nowhere_else_when_the_server_redirects(fake: FakeDatadog, host: Host):
    fake.answers.append(Answer(status=302, headers={"Location": f"{fake.url}/elsewhere"}))
    with pytest.raises(NeedsAttention, match="302"):
        await MonitorStates(Query(), account(fake), host).poll(None, START)
    assert [seen.path for seen in fake.seen] == ["/api/v1/monitor"]


async def test_too_many_calls_are_told_with_the_seconds_until_the_reset(
    fake: FakeDatadog, clock: HandClock, host: Host
):
    fake.limit, fake.period = 0, 60
    clock.advance(48)
    with pytest.raises(RetryLater) as later:
        await MonitorStates(Query(), account(fake), host).poll(None, START)
    assert (later.value.reason, later.value.after) == ("rate_limited", 12.0)


async def test_the_budget_learns_what_is_left_and_when_it_is_renewed(fake: FakeDatadog, clock: HandClock):
    fake.limit, fake.period = 3, 60
    clock.advance(20)
    client, budget = Client(clock), RateLimit(clock)

    async def kept() -> None:
        return None

    lent = Metered(client, budget, "f", kept)
    metered = Host(http=lent, clock=clock, random=Random(1), allow_private=True)
    await MonitorStates(Query(), account(fake), metered).poll(None, START)
    doc = budget.to_doc()
    await client.close()
    assert (doc["limit"], doc["remaining"], doc["reset_at"]) == (3.0, 2.0, clock.time() + 40)


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_server_in_trouble_is_asked_again_later(fake: FakeDatadog, host: Host, status: int):
    fake.answers.append(Answer(status=status, body=b"<html>"))
    with pytest.raises(RetryLater):
        await MonitorStates(Query(), account(fake), host).poll(None, START)


async def test_a_page_that_is_no_list_is_no_empty_list(fake: FakeDatadog, host: Host):
    fake.answers.append(Answer(status=200, body=b'{"errors": ["odd"]}'))
    with pytest.raises(NeedsAttention, match="without a list of monitors"):
        await MonitorStates(Query(), account(fake), host).poll(None, START)


async def test_when_none_of_the_monitors_exists_a_person_is_told(fake: FakeDatadog, host: Host):
    source = MonitorStates(Query(monitor_ids=(5, 6)), account(fake), host)
    cursor = (await source.poll(None, START)).cursor
    with pytest.raises(NeedsAttention, match="none of these monitors exists"):
        await source.poll(cursor, START)


async def test_whoami_tells_whose_key_it_is(fake: FakeDatadog, host: Host):
    assert plugin.whoami is not None
    assert await plugin.whoami(account(fake), host) == {
        "id": "u-1",
        "name": "Jo Smith",
        "email": "jo@example.com",
        "handle": "jo@example.com",
        "organization": "Example Ltd",
        "roles": "Datadog Read Only Role",
        "site": "datadoghq.com",
    }


async def test_whoami_with_a_wrong_key_says_which(fake: FakeDatadog, host: Host):
    assert plugin.whoami is not None
    with pytest.raises(NeedsAttention, match="API key"):
        await plugin.whoami(account(fake, api_key=OTHER), host)


async def test_a_check_finds_the_monitors_and_counts_those_with_a_tag(fake: FakeDatadog, host: Host):
    assert plugin.check is not None
    id = fake.monitor(name="Load", tags=["team:a"])
    fake.monitor("host:x", "host:y", tags=["team:a"])
    fake.change(id, "Alert")
    query = Query(monitor_ids=(id, 77), tags=("team:a", "host:x", "team:nobody"))
    checked = await plugin.check(query, account(fake), host)
    assert checked.found == {str(id): "Load (now triggered)", "team:a": "2 monitors", "host:x": "1 monitor"}
    assert [sentence.partition(",")[0] for sentence in checked.unknown] == [
        "there is no monitor 77",
        "no monitor and no group has the tag team:nobody now. Check how it is written in Datadog",
    ]

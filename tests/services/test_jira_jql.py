"""No value and no raw JQL leaves the place where it stands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from harken.services.jira import Query
from harken.services.jira.query import check_jql, quote
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.jira import BadJql, Jira, compile_jql
from tests.services.jira import serving, source
from tests.services.reading import events, read

NASTY = [
    'x" OR project = SECRET OR labels = "',
    'x") OR project = SECRET OR labels in ("',
    "x' OR project = SECRET OR labels = 'x",
    'x\\" OR project = SECRET OR labels = \\"',
    "x\\",
    '\\" OR project = SECRET',
    "x) OR (project = SECRET",
    "x ORDER BY created DESC",
    "empty",
    "AND",
    "currentUser()",
    "ünïcödé 🎫 日本",
    "%22 OR 1=1",
    "a\u00a0b",
]


@pytest.fixture
async def jira(clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock) as served:
        served.project("SECRET")
        served.create("SECRET", labels=("hidden",))
        yield served


@pytest.mark.parametrize("label", NASTY)
async def test_a_nasty_label_finds_the_issues_with_that_label_and_no_secret(jira: Jira, host: Host, label: str):
    mine = jira.create(labels=(label,))
    shown = events(await read(source(jira, host, labels=[label])))
    assert [event.data["key"] for event in shown] == [mine]


@pytest.mark.parametrize("value", NASTY)
def test_a_quoted_value_is_read_back_as_it_was(value: str):
    test, _ = compile_jql(f"labels = {quote(value)}", {})
    assert test is not None
    assert test({"labels": [value]})
    assert not test({"labels": ["hidden"]})


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x00b", "a\x7fb", "a\u2028b", "a\x1bb", "", "  ", "x" * 256])
def test_control_characters_and_nothing_are_refused(value: str):
    with pytest.raises(ValidationError):
        Query.model_validate({"labels": [value]})


@pytest.mark.parametrize("value", [True, 1.5, None, {"a": 1}, [["x"]]])
def test_what_is_not_text_is_refused(value: Any):
    with pytest.raises(ValidationError):
        Query.model_validate({"labels": [value]})


def test_a_plain_value_and_a_number_stand_for_a_list_of_one():
    query = Query.model_validate({"labels": 2024, "project": "A", "projects": ["B", "A"], "statuses": "In Progress"})
    assert (query.labels, query.all_projects, query.statuses) == (("2024",), ("A", "B"), ("In Progress",))


def test_raw_jql_needs_its_switch():
    with pytest.raises(ValidationError, match="allow_jql: true"):
        Query.model_validate({"jql": "project = TEAM"})


@pytest.mark.parametrize(
    ("jql", "wrong"),
    [
        ("project = TEAM ORDER BY created", "ORDER BY"),
        ("project = TEAM order  by created", "ORDER BY"),
        ("project = TEAM) OR (project = SECRET", "was not opened"),
        ("(project = TEAM", "never closed"),
        ('labels = "x', "never closed"),
        ("labels = 'x\\'", "never closed"),
        ('labels = \\" ) OR (project = SECRET AND labels = x"', "backslash outside"),
        ("project = TEAM\x00", "control character"),
    ],
)
def test_raw_jql_that_would_break_out_is_refused(jql: str, wrong: str):
    with pytest.raises(ValueError, match=wrong):
        check_jql(jql)


@pytest.mark.parametrize(
    "jql",
    [
        "project = TEAM OR project = SECRET",
        'labels = "order by ) ( \'"',
        "labels = 'it is \\'quoted\\''",
        "(project = TEAM)\n  AND (priority = High)",
        'summary ~ "\\"a phrase\\""',
    ],
)
def test_raw_jql_that_is_complete_is_taken(jql: str):
    assert check_jql(jql).replace(" ", "") == "".join(jql.split())


async def test_an_or_in_raw_jql_stays_within_the_other_conditions(jira: Jira, host: Host):
    mine = jira.create()
    asked = source(jira, host, project="TEAM", jql="priority = Medium OR project = SECRET", allow_jql=True)
    assert [event.data["key"] for event in events(await read(asked))] == [mine]


def test_the_fake_itself_notices_an_unquoted_value():
    test, _ = compile_jql('labels = "x" OR project = SECRET', {})
    assert test is not None
    assert test({"labels": [], "project": ["SECRET"]})
    with pytest.raises(BadJql):
        compile_jql("labels = x) OR (project = SECRET", {})

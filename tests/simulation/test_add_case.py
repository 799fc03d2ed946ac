"""`harken test add`: a recorded verdict becomes a case that passes, and holds neither secrets nor people."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.cli.root import run
from harken.operate.anonymize import Anonymiser
from harken.simulation.case_runner import run_cases
from tests.simulation.configuration import write_configuration
from tests.simulation.recording import record
from tests.soak import SOAK, longer

SECRET = "s3cr3t-of-the-installation-42"
INCIDENT: dict[str, Any] = {
    "id": "P1",
    "title": "Ana Muster called from +49 30 1234567",
    "urgency": "high",
    "status": "triggered",
    "assignee": {"name": "Ana Muster", "email": "ana@company.example"},
    "body": f"see https://wiki.company.example/x?token={SECRET} and ask @ana",
    "headers": {"authorization": "Bearer somebody-elses-token"},
    "count": 3,
}
PRIVATE = ("Ana", "ana", "1234567", "company", SECRET, "somebody-elses-token")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEPLOY_SECRET", SECRET)
    return write_configuration(tmp_path)


def recorded(site: Path, *incidents: dict[str, Any], feed: str = "incidents") -> list[int]:
    before = datetime.now(UTC) - timedelta(hours=2)
    return record(site, [(feed, one["id"], one.get("status"), one) for one in incidents], before)


def added(site: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["--config", str(site), "test", "add", *words, "--json"]) == 0
    row: dict[str, Any] = json.loads(capsys.readouterr().out)
    return row


def test_a_fired_event_becomes_a_case_without_secrets_and_people(site: Path, capsys: pytest.CaptureFixture[str]):
    (event,) = recorded(site, INCIDENT)

    row = added(site, capsys, str(event))

    text = (site / row["file"]).read_text("utf-8")
    assert (row["trigger"], row["outcome"], row["kept"]) == ("page", "fired", [])
    assert [word for word in PRIVATE if word in text] == []
    # what the condition reads, and what is of nobody, is as it was
    assert "urgency: high" in text and "status: triggered" in text and "count: 3" in text
    summary = run_cases(site)
    assert [result.passed for result in summary.results] == [True]


def test_a_filtered_one_expects_the_clause_that_decided(site: Path, capsys: pytest.CaptureFixture[str]):
    (event,) = recorded(site, INCIDENT | {"status": "resolved"})

    row = added(site, capsys, str(event), "--name", "what is over pages nobody")

    text = (site / row["file"]).read_text("utf-8")
    assert "outcome: filtered" in text
    assert """clause: event.status != "resolved\"""" in text
    assert "name: what is over pages nobody" in text
    # a case that holds its verdict fails when the rule changes
    flow = site / "workflows" / "page.yaml"
    flow.write_text(flow.read_text("utf-8").replace(' && event.status != "resolved"', ""), "utf-8")
    assert run_cases(site).failed == 1


def test_what_the_condition_needs_of_a_person_is_kept_and_named(site: Path, capsys: pytest.CaptureFixture[str]):
    flow = site / "workflows" / "page.yaml"
    condition = 'event.urgency == "high" && event.status != "resolved"'
    flow.write_text(
        flow.read_text("utf-8").replace(condition, 'event.assignee.name == "Ana Muster" && event.title != ""'), "utf-8"
    )
    (event,) = recorded(site, INCIDENT)

    row = added(site, capsys, str(event))

    text = (site / row["file"]).read_text("utf-8")
    assert row["kept"] == ["assignee.name"]
    assert "Ana Muster" in text and "ana@" not in text and "1234567" not in text


def test_a_webhook_and_a_digest_too(site: Path, capsys: pytest.CaptureFixture[str]):
    deploy = recorded(site, {"id": "d1", "by": "x"}, feed="webhook/generic/deploys")
    orders = recorded(site, {"id": "o1"}, feed="orders")

    assert added(site, capsys, str(deploy[0]))["outcome"] == "fired"
    assert added(site, capsys, str(orders[0]))["outcome"] == "gathered"
    assert run_cases(site).failed == 0


class TestRefusals:
    def error(self, site: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
        assert run(["--config", str(site), "test", "add", *words]) == 1
        return capsys.readouterr().err

    def test_an_event_that_would_be_decided_otherwise_now(self, site: Path, capsys: pytest.CaptureFixture[str]):
        (event,) = recorded(site, INCIDENT)
        flow = site / "workflows" / "page.yaml"
        flow.write_text(flow.read_text("utf-8").replace('"high"', '"low"'), "utf-8")

        said = self.error(site, capsys, str(event))

        assert f"event {event} was fired for page, and would now be filtered" in said
        assert not (site / "tests").exists()

    def test_a_file_that_is_there_is_not_overwritten(self, site: Path, capsys: pytest.CaptureFixture[str]):
        (event,) = recorded(site, INCIDENT)
        added(site, capsys, str(event))

        assert "is there already" in self.error(site, capsys, str(event))

    def test_another_trigger_and_another_event(self, site: Path, capsys: pytest.CaptureFixture[str]):
        (event,) = recorded(site, INCIDENT)

        assert "has no verdict of pge" in self.error(site, capsys, str(event), "--trigger", "pge")
        assert "there is no event 999" in self.error(site, capsys, "999")


def test_the_same_value_has_the_same_stand_in_everywhere():
    anonymiser = Anonymiser([SECRET])
    data = {
        "user": "ana",
        "author": {"name": "ana"},
        "text": f"{SECRET} of ana",
        "password": "x",
        "n": None,
        "ok": True,
    }

    assert anonymiser.data(data) == {
        "user": "person-1",
        "author": {"name": "person-1"},
        "text": "text-1",
        "password": "***",
        "n": None,
        "ok": True,
    }
    assert anonymiser.text("ana@company.example") == anonymiser.text("ana@company.example") == "person-2@example.com"
    assert anonymiser.data({"at": "2026-03-01T10:00:00Z", "kind": "disk_full"}) == {
        "at": "2026-03-01T10:00:00Z",
        "kind": "disk_full",
    }
    assert anonymiser.data({"note": f"{SECRET} is it"}, keep=[("note",)]) == {"note": "*** is it"}


STRANGERS = "hunter2-of-somebody"
PERSONAL = "16C7e42F292c6912E7710c838347Ae178B4a"
PAGERDUTY = "2p5vO7ziRlq_2mirQl"
RANDOM = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
ODD_PLACES: dict[str, Any] = {
    "a header": {"headers": {"X-Api-Key": STRANGERS, "Set-Cookie": STRANGERS, "Proxy-Authorization": STRANGERS}},
    "words in capitals": {"apiKey": STRANGERS, "accessKey": STRANGERS, "sessionId": STRANGERS},
    "another word for it": {"passphrase": STRANGERS, "pwd": STRANGERS, "auth": STRANGERS, "pin": STRANGERS},
    "a name beside its value": {
        "fields": [{"name": "X-Api-Key", "value": STRANGERS}, {"key": "pwd", "value": STRANGERS}]
    },
    "a pair": {"headers": [["authorization", STRANGERS], ["x-token", STRANGERS]]},
    "an argument": {"args": ["run", "--password", STRANGERS, "-v", "--api-key", STRANGERS, "x"]},
    "headers in one list": {"rawHeaders": ["Host", "a.example", "Cookie", STRANGERS, "X-Auth-Token", STRANGERS]},
    "a code": {
        "pin_code": STRANGERS,
        "verificationCode": STRANGERS,
        "passcode": STRANGERS,
        "backup_codes": [STRANGERS],
    },
    "below a name": {"credentials": {"prod": {"db": STRANGERS}}, "tokens": {"ci": [STRANGERS]}},
    "JSON in a text": {"message": json.dumps({"password": STRANGERS, "inner": json.dumps({"token": STRANGERS})})},
    "JSON in a name, or cut": {f'{{"password":"{STRANGERS}"}}': 1, "cut": f'{{"pwd":"{STRANGERS}'},
    "a form in a text": {"body": f"grant=1&client_secret={STRANGERS}&scope=x"},
    "an address": {"store": f"postgresql://app:{STRANGERS}@localhost/app", "queue": f"amqp://:{STRANGERS}@mq"},
    "a known form": {
        "value": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "other": "xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcHrzqqgy",
        "pagerduty": f"u+{PAGERDUTY}",
        "google": f"GOCSPX-{PAGERDUTY}",
    },
    "a JWT": {"v": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"},
    "random letters": {"value": RANDOM, "note": "f3a91c07be52d846f3a91c07be52d846"},
}
"""Secrets of strangers, as services send them; those that are random are found by what they look like."""
NEVER = (STRANGERS, RANDOM, PERSONAL, PAGERDUTY, "eyJzdWIi", "f3a91c07be52d846")


@pytest.mark.parametrize("place", ODD_PLACES)
def test_a_secret_of_a_stranger_is_found_wherever_it_stands(place: str, site: Path, capsys: pytest.CaptureFixture[str]):
    (event,) = recorded(site, INCIDENT | {"details": ODD_PLACES[place]})

    row = added(site, capsys, str(event))

    text = (site / row["file"]).read_text("utf-8")
    assert [one for one in NEVER if one in text] == []
    assert (row["kept"], run_cases(site).failed) == ([], 0)


PEOPLE: dict[str, Any] = {
    "several": {"assignees": ["Ana", "Bo"], "reviewers": [{"login": "Ana"}], "members": ["Bo"]},
    "by whom": {"created_by": "Ana", "updatedBy": "Bo", "actor": "Ana", "authorName": "Bo"},
    "names of fields": {"votes": {"Ana@company.example": 1, "Bo@company.example": 2}},
    "a number": {"phone": 491701234567, "faxNumber": "x", "mobile": 4_930_123},
    "JSON in a text": {"payload": '{"assignee": {"name": "Ana"}, "email": "Bo@company.example"}'},
    "a form in a text": {"body": "user=Ana&email=Bo%40company.example"},
    "an IPv6 address": {"seen": "2001:db8:85a3::8a2e:370:7334", "other": "fe80::1ff:fe23:4567:890a"},
}


@pytest.mark.parametrize("place", PEOPLE)
def test_people_are_found_wherever_they_stand(place: str, site: Path, capsys: pytest.CaptureFixture[str]):
    (event,) = recorded(site, INCIDENT | {"details": PEOPLE[place]})

    row = added(site, capsys, str(event))

    text = (site / row["file"]).read_text("utf-8")
    assert [one for one in ("Ana", "Bo", "company", "49", "8a2e", "890a") if one in text] == []
    assert (row["kept"], run_cases(site).failed) == ([], 0)


def test_what_is_of_nobody_stays_as_it_is():
    data = {
        "service": "checkout-service-7d9f8b6c5d-x2x4z",
        "at": "12:34:56",
        "id": "123e4567-e89b-12d3-a456-426614174000",
        "state": "Token_expired",
        "number": 41,
        "tags": ["a", "b"],
        "labels": ["auth", "security", "token-refresh", "bug"],
        "args": ["--verbose", "on"],
        "code": "E-42",
        "country_code": "DE",
        "key": "SHOP-12",
        "value": 3.5,
        "query": "status=open&page=2",
    }

    assert Anonymiser([SECRET]).data(data) == data


def test_two_names_of_fields_do_not_become_one():
    changed = Anonymiser([]).data({"192.168.7.1": 1, "192.168.7.2": 2})

    assert list(changed.values()) == [1, 2]


PLACES = st.sampled_from(("token", "password", "api_key", "authorization", "body", "note", "url", "text"))
VALUES = st.recursive(
    st.sampled_from((SECRET, f"Bearer {SECRET}", f"https://x.example/?token={SECRET}", f"see {SECRET}, please")),
    lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(PLACES, inner, min_size=1, max_size=2),
    max_leaves=4,
)


@settings(max_examples=longer(__file__, 15), deadline=None, derandomize=not SOAK)
@given(found=st.dictionaries(PLACES, VALUES, min_size=1, max_size=4), of_key=st.booleans())
def test_no_case_has_a_secret_wherever_it_stood(found: dict[str, Any], of_key: bool) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPLOY_SECRET", SECRET)
        site = write_configuration(Path(directory))
        incident = {"id": "P1", "urgency": "high", "status": "triggered", "details": found}
        incident |= {SECRET: "in a key"} if of_key else {}
        (event,) = recorded(site, incident)
        assert run(["--config", str(site), "test", "add", str(event), "--json"]) == 0
        [file] = (site / "tests").glob("*.yaml")
        assert SECRET not in file.read_text("utf-8")


def test_of_a_workflow_that_does_not_load_it_is_told_that_it_has_an_error(
    site: Path, capsys: pytest.CaptureFixture[str]
):
    (event,) = recorded(site, INCIDENT)
    flow = site / "workflows" / "page.yaml"
    flow.write_text(flow.read_text("utf-8") + 'description: "${SET_NOWHERE}"\n', "utf-8")

    assert run(["--config", str(site), "test", "add", str(event)]) == 1

    said = capsys.readouterr().err
    assert "is not configured now, or has an error in its file" in said
    assert "harken config check" in said

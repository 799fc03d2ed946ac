"""gmail-poller.yaml becomes jobs of pollers.yaml: every field is translated, or has a finding at its place."""

from __future__ import annotations

from typing import Any

import pytest

from harken.config.findings import Report
from harken.config.pollers.legacy_gmail import Translated, as_yaml, deprecations, translate
from harken.config.yaml.nodes import locate, to_plain
from harken.config.yaml.parser import parse

WHOLE = """\
gmail_poller:
  enabled: true
  interval_secs: 90
  accounts:
    - id: default
      agent_id: ana
      token_path: ./data/token.json
  jobs:
    - name: Lead Alert!
      account: default
      query: "is:unread subject:(lead OR interesado)"
      newer_than: 2d
      interval_secs: 120
      forward_to_subject: plugin.outbound.whatsapp.default
      forward_to: "573000000000@s.whatsapp.net"
      extract:
        name: "Nombre:\\\\s*(.+)"
        phone: "Tel:\\\\s*(\\\\+?\\\\d+)"
      require_fields: [name, phone]
      message_template: |
        New lead 🚨
        {name}: {phone}
      mark_read_on_dispatch: false
      max_per_tick: 7
      dispatch_delay_ms: 500
      sender_allowlist: ["@mycompany.com"]
"""
SMALL = """\
gmail_poller:
  token_path: ./token.json
  jobs:
    - {name: a, query: "is:unread", forward_to_subject: plugin.outbound.telegram, forward_to: 1194292426,
       message_template: "{snippet}", newer_than: 1d}
"""


def translated(text: str) -> Translated:
    report = Report()
    tree = parse(text.encode(), "gmail-poller.yaml", report)
    assert tree is not None
    assert report.findings == []
    return translate(tree)


def finding_lines(found: Translated) -> list[str]:
    """Each finding: its line, severity and last path part."""
    everything = [*found.findings, *(finding for job in found.jobs for finding in job.found)]
    return [f"{one.line} {one.severity} {one.code} {one.path[-1]}" for one in everything if one.path]


def only(found: Translated) -> Any:
    (job,) = found.jobs
    return to_plain(job.node)


def with_job(**fields: str) -> str:
    lines = "".join(f"      {name}: {value}\n" for name, value in fields.items())
    job = "    - name: a\n      query: x\n      message_template: m\n      newer_than: 1d\n" + lines
    return f"gmail_poller:\n  accounts: [{{id: me, agent_id: ana}}]\n  jobs:\n{job}"


WHERE = {"forward_to_subject": "plugin.outbound.telegram", "forward_to": '"1"', "account": "me"}


def test_every_field_has_its_place_in_the_job() -> None:
    assert only(translated(WHOLE)) == {
        "id": "gmail_legacy_Lead_Alert_",
        "kind": "gmail",
        "agent": "ana",
        "schedule": {"every_secs": 120},
        "config": {
            "query": "is:unread subject:(lead OR interesado)",
            "newer_than": "2d",
            "max_per_tick": 7,
            "dispatch_delay_ms": 500,
            "sender_allowlist": ["@mycompany.com"],
            "extract": {"name": "Nombre:\\s*(.+)", "phone": "Tel:\\s*(\\+?\\d+)"},
            "require_fields": ["name", "phone"],
            "message_template": "New lead 🚨\n{name}: {phone}\n",
            "mark_read_on_dispatch": False,
            "deliver": {"channel": "whatsapp", "to": "573000000000@s.whatsapp.net"},
        },
    }


def test_only_the_credential_is_not_taken_over_and_that_is_told() -> None:
    assert finding_lines(translated(WHOLE)) == ["7 warning ignored token_path"]


def test_the_older_way_with_one_account_has_the_agent_default_and_says_so() -> None:
    found = translated(SMALL)
    assert (only(found)["agent"], only(found)["schedule"]) == ("default", {"every_secs": 60})
    assert only(found)["config"]["deliver"] == {"channel": "telegram", "to": "1194292426"}
    assert finding_lines(found) == ["2 warning ignored token_path", "4 warning invalid account"]


def test_an_agent_that_is_called_like_its_account_is_named_all_the_same() -> None:
    assert finding_lines(translated(WHOLE.replace("agent_id: ana", "agent_id: default"))) == [
        "7 warning ignored token_path"
    ]


def test_values_know_where_they_stood() -> None:
    (job,) = translated(WHOLE).jobs
    places = {"id": 9, "agent": 6, "schedule": 9, "config": 9}
    assert {name: job.node.items[name].place.line for name in places} == places
    assert locate(job.node, ("config", "extract", "phone")).line == 18
    assert locate(job.node, ("config", "deliver", "to")).line == 15


def test_what_is_switched_off_has_no_jobs() -> None:
    found = translated(WHOLE.replace("enabled: true", "enabled: false"))
    assert found.jobs == ()
    assert finding_lines(found)[-1] == "2 warning ignored enabled"


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"mark_raed": "true"}, "11 warning unknown_key mark_raed"),
        ({"interval_secs": "3"}, "11 warning too_often interval_secs"),
        ({"interval_secs": "soon"}, "11 error wrong_type interval_secs"),
        ({"account": "mee"}, "10 error unknown_name account"),
        ({"forward_to_subject": "whatsapp"}, "8 error invalid forward_to_subject"),
        ({"forward_to_subject": "plugin.outbound.telegram.kate_bot"}, "8 warning ignored forward_to_subject"),
        ({"sender_allowlist": '["partners@"]'}, "11 warning invalid 0"),
        ({"forward_to": "null"}, "4 error missing forward_to"),
    ],
)
def test_what_cannot_be_meant_is_told_at_its_place(fields: dict[str, str], finding: str) -> None:
    assert finding_lines(translated(with_job(**{**WHERE, **fields}))) == [finding]


@pytest.mark.parametrize("odd", ["[1]", "{a: b}", "null", "1.5", "true", "[[], {}]", '""'])
@pytest.mark.parametrize("name", ["name", "query", "account", "interval_secs", "forward_to_subject", "forward_to"])
def test_a_value_of_another_shape_is_never_a_crash(name: str, odd: str) -> None:
    fields = {**WHERE, name: odd}
    text = with_job(**{key: value for key, value in fields.items() if key not in ("name", "query")})
    found = translated(
        text.replace("query: x", f"query: {fields.get('query', 'x')}").replace(
            "name: a", f"name: {fields.get('name', 'a')}"
        )
    )
    assert len(found.jobs) == 1
    assert as_yaml(found.jobs)


@pytest.mark.parametrize("odd", ["3", "{a: b}", "[3]", "[{}]", "[{id: [1]}]"])
def test_accounts_of_another_shape_are_an_error(odd: str) -> None:
    found = translated(with_job(**WHERE).replace("[{id: me, agent_id: ana}]", odd))
    assert any(finding.severity == "error" for finding in found.findings)


def test_a_wrong_job_is_refused_alone() -> None:
    found = translated(with_job(**WHERE) + "    - {name: b}\n    - nonsense\n")
    assert [(job.id, job.usable) for job in found.jobs] == [("gmail_legacy_a", True), ("gmail_legacy_b", False)]
    assert "12 error wrong_type 2" in finding_lines(found)


def test_a_short_interval_becomes_the_shortest_that_is_allowed() -> None:
    assert only(translated(with_job(**WHERE, interval_secs="3")))["schedule"] == {"every_secs": 10}


def test_a_job_without_newer_than_is_told_what_that_means_now() -> None:
    found = translated(with_job(**WHERE).replace("      newer_than: 1d\n", ""))
    assert "newer_than" not in only(found)["config"]
    assert "reaches back a day" in found.jobs[0].found[0].message


def test_two_names_that_become_one_id_are_both_refused() -> None:
    found = translated(with_job(**WHERE) + "    - {name: a!, query: x}\n".replace("a!", "a"))
    assert [job.usable for job in found.jobs] == [False, False]
    assert [finding.code for job in found.jobs for finding in job.found].count("clash") == 2


@pytest.mark.parametrize("text", ["", "[]", "x: 1", "gmail_poller: 3", "gmail_poller: {}", "gmail_poller: {jobs: {}}"])
def test_another_file_is_told_to_be_one(text: str) -> None:
    found = translated(text)
    assert found.jobs == ()
    assert any(finding.severity == "error" for finding in found.findings)


def test_each_job_is_deprecated_by_its_new_id() -> None:
    (warning,) = deprecations(translated(WHOLE))
    assert (warning.severity, warning.code, warning.line) == ("warning", "deprecated", 9)
    assert "gmail_legacy_Lead_Alert_" in warning.message


def test_what_is_written_is_what_was_translated() -> None:
    found = translated(WHOLE.replace("query: ", "query: ").replace("7300", "${PHONE}"))
    text = as_yaml(found.jobs)
    tree = parse(text.encode(), "pollers.yaml", Report())
    assert tree is not None
    assert to_plain(tree) == {"pollers": {"jobs": [only(found)]}}
    assert "message_template: |\n" in text
    assert "${PHONE}" in text


@pytest.mark.parametrize(
    "value", ["yes", "1d", "2026-01-05", "12:30", "0x1f", "1_000", "~", " a ", "a: b", "#x", "1e3", "é\n  b\n"]
)
def test_every_text_stays_the_text_that_it_was(value: str) -> None:
    found = translated(with_job(**WHERE, require_fields=repr([value]).replace("'", '"')))
    tree = parse(as_yaml(found.jobs).encode(), "pollers.yaml", Report())
    assert tree is not None
    assert to_plain(tree)["pollers"]["jobs"][0]["config"]["require_fields"] == [value]

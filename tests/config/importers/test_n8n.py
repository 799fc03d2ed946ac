"""Exports of n8n: what can be translated is, and every other node is named with the reason.

The fixtures are our own, in the form of templates that people share: the same node types, versions and parameters.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harken.config.importers import Imported
from harken.config.importers.n8n import translate

FIXTURES = Path(__file__).parent / "n8n"
# per export: the workflows, and the nodes that a person has to look at
EXPECTED = {
    "ai-agent": (1, ["When chat message received", "AI Agent"]),
    "batches": (1, ["Customers", "Loop"]),
    "code-in-the-middle": (2, ["Sum", "Add row"]),
    "error-workflow": (1, ["Discord"]),
    "github-issues": (1, ["Stop"]),
    "if-branches-that-meet": (1, []),
    "old-generation": (1, []),
    "rss-to-chat": (1, ["Post"]),
    "support-router": (1, []),
    "switch-by-severity": (1, []),
    "two-triggers": (2, []),
    "weather-to-telegram": (1, []),
    "webhook-to-slack": (1, []),
}


def fixture(name: str) -> Imported:
    return translate((FIXTURES / f"{name}.json").read_text(), file=f"{name}.json")


def node(name: str, kind: str, parameters: Any = None, version: float = 2, **more: Any) -> dict[str, Any]:
    full = f"n8n-nodes-base.{kind}"
    return {"name": name, "type": full, "typeVersion": version, "parameters": parameters or {}, **more}


def export(*nodes: dict[str, Any], **connections: list[list[str]]) -> str:
    """Connections by name of the node: a list of targets for each output."""
    joined = {
        name: {"main": [[{"node": target, "type": "main", "index": 0} for target in output] for output in outputs]}
        for name, outputs in connections.items()
    }
    return json.dumps({"name": "Test", "nodes": list(nodes), "connections": joined})


def chain(*nodes: dict[str, Any]) -> str:
    names = [one["name"] for one in nodes]
    return export(*nodes, **{one: [[other]] for one, other in pairwise(names)})


HOOK = node("Hook", "webhook", {"httpMethod": "POST", "path": "in"})
POST = node("Post", "httpRequest", {"method": "POST", "url": "https://x.example/"}, 4.2)


def only(text: str) -> Any:
    (workflow,) = translate(text, file="x.json").workflows.values()
    return workflow


def if_node(name: str, left: str = "={{ $json.body.x }}") -> dict[str, Any]:
    condition = {"leftValue": left, "rightValue": "1", "operator": {"type": "string", "operation": "equals"}}
    return node(name, "if", {"conditions": {"conditions": [condition], "combinator": "and"}})


def test_every_fixture_is_expected() -> None:
    assert sorted(EXPECTED) == sorted(file.stem for file in FIXTURES.glob("*.json"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_export_gives_workflows_or_names_the_node_and_the_reason(name: str) -> None:
    made = fixture(name)
    count, untranslated = EXPECTED[name]
    errors = [finding for finding in made.findings if finding.severity == "error"]
    assert len(made.workflows) == count
    assert [finding.path[1] for finding in errors] == untranslated
    assert all(finding.line > 1 and finding.message for finding in errors)


def test_branches_that_meet_again_go_on_after_the_if() -> None:
    steps = fixture("if-branches-that-meet").workflows["orders"]["steps"]
    assert [step["id"] for step in steps] == ["large", "log"]
    assert steps[0]["condition"] == "event.total >= 500"
    assert steps[0]["then"][0]["json"] == {"order": "{{.trigger.event.id}}", "total": "{{.trigger.event.total}}"}
    assert "else" not in steps[0]
    assert steps[1]["json"] == {"id": "{{.trigger.event.id}}"}


def test_the_cases_of_a_switch_and_what_else() -> None:
    route = fixture("switch-by-severity").workflows["alert-routing"]["steps"][0]
    assert [case["when"] for case in route["cases"]] == ['event.severity == "critical"', 'event.severity == "warning"']
    assert [step["id"] for step in route["default"]] == ["wait", "archive"]


def test_an_export_of_today_without_a_name_is_called_like_its_file() -> None:
    made = fixture("support-router")
    (workflow,) = made.workflows.values()
    assert workflow["name"] == "support-router"
    look_up, team = workflow["steps"]
    assert look_up["retry"] == {"max_attempts": 3} and "on_error" not in look_up
    plan, subject = "steps.look_up_customer.response.plan", "event.subject"
    assert [case["when"] for case in team["cases"]] == [
        f'{plan}.matches("(?i)^Enterprise$")',
        f'{subject}.matches("(?i)invoice")',
    ]
    store = team["default"][1]
    assert store["json"] == {
        "plan": "{{.steps.look_up_customer.response.plan}}",
        "team": "{{.steps.note_it.response.team}}",
    }
    assert any("error output is left out: Not found" in finding.message for finding in made.findings)


def test_what_hangs_on_a_model_is_told_and_is_no_step() -> None:
    told = {finding.path[1] for finding in fixture("ai-agent").findings}
    assert {"OpenAI Chat Model", "Simple Memory", "Ask the shop"} <= told


def test_a_secret_that_stands_in_plain_is_not_copied() -> None:
    made = fixture("switch-by-severity")
    assert "SECRET" not in re.sub(r"\$\{\w+\}", "", str(made.workflows))
    assert made.variables["N8N_PAGE_X_ROUTING_KEY"].value == "R0123456789SECRET"


def test_a_node_that_is_not_translated_waits_for_a_person() -> None:
    steps = fixture("code-in-the-middle").workflows["invoices"]["steps"]
    assert [step["action"] for step in steps] == ["http", "approve", "approve", "http"]
    assert "Sum (code)" in steps[1]["prompt"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("={{ $json.body.server }}/items", "a step with credentials must name its host"),
        ("=https://api.x.example{{ $json.body.path }}", "a value directly after the host"),
    ],
)
def test_a_request_whose_host_is_a_value_waits_for_a_person_and_the_rest_is_translated(url: str, reason: str) -> None:
    parameters = {"url": url, "authentication": "genericCredentialType", "genericAuthType": "httpHeaderAuth"}
    fetch = node("Fetch", "httpRequest", parameters, 4.2)
    made = translate(chain(HOOK, fetch, POST), file="x.json")
    (workflow,) = made.workflows.values()
    assert [step["action"] for step in workflow["steps"]] == ["approve", "http"]
    (error,) = (finding for finding in made.findings if finding.severity == "error")
    assert error.path == ("nodes", "Fetch")
    assert reason in error.message


def test_a_button_to_try_it_is_the_trigger_where_every_other_one_is_disabled() -> None:
    button, hook = node("Try", "manualTrigger"), {**HOOK, "disabled": True}
    text = export(button, hook, POST, Try=[["Post"]], Hook=[["Post"]])
    assert [step["id"] for step in only(text)["steps"]] == ["post"]
    assert "trigger" not in only(text)


def test_each_time_of_a_schedule_is_a_workflow() -> None:
    schedules = [one["trigger"]["schedule"]["cron"] for one in fixture("code-in-the-middle").workflows.values()]
    assert schedules == ["0 6 * * 1-5", "0 */6 * * *"]


def test_fields_that_a_set_node_does_not_make_are_those_before_it() -> None:
    steps = fixture("error-workflow").workflows["tell-about-errors"]["steps"]
    assert steps[0]["set"] == {"what": "{{.trigger.event.workflow}}"}
    assert steps[2]["title"] == "Run {{.trigger.event.run}} failed"
    assert steps[2]["text"] == "{{.trigger.event.error}}"


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ({"field": "seconds", "secondsInterval": 45}, {"every": "45s"}),
        ({"field": "minutes", "minutesInterval": 15}, {"every": "15m"}),
        ({"field": "hours", "triggerAtMinute": 10}, {"cron": "10 * * * *"}),
        ({"field": "hours", "hoursInterval": 6}, {"cron": "0 */6 * * *"}),
        ({"field": "hours", "hoursInterval": 24}, {"cron": "0 0 * * *"}),
        ({"field": "hours", "hoursInterval": 5}, {"every": "5h"}),
        ({"field": "hours", "hoursInterval": 36}, {"every": "36h"}),
        ({"field": "days", "daysInterval": 2, "triggerAtHour": 4}, {"cron": "0 4 */2 * *"}),
        ({"field": "weeks", "triggerAtDay": [1, 3], "triggerAtHour": 9}, {"cron": "0 9 * * 1,3"}),
        ({"field": "months", "triggerAtDayOfMonth": 15}, {"cron": "0 0 15 * *"}),
        ({}, {"cron": "0 0 * * *"}),
    ],
)
def test_schedules(interval: dict[str, Any], expected: dict[str, str]) -> None:
    trigger = node("When", "scheduleTrigger", {"rule": {"interval": [interval]}}, 1.2)
    assert only(chain(trigger, POST))["trigger"] == {"schedule": expected}


def errors_of(made: Imported) -> dict[Any, str]:
    return {finding.path[1]: finding.message for finding in made.findings if finding.severity == "error"}


def warnings_of(made: Imported) -> list[str]:
    return [finding.message for finding in made.findings if finding.severity == "warning"]


def test_days_that_are_counted_anew_each_month_are_told() -> None:
    rule = {"rule": {"interval": [{"daysInterval": 3}]}}
    made = translate(chain(node("When", "scheduleTrigger", rule, 1.2), POST), file="x.json")
    assert any("every 3 days is counted anew from the first of each month" in text for text in warnings_of(made))


def test_what_a_failed_run_does_not_have_here_is_told() -> None:
    tell = node("Tell", "telegram", {"chatId": "1", "text": "={{ $json.execution.lastNodeExecuted }}"}, 1.2)
    made = translate(chain(node("Error", "errorTrigger"), tell), file="x.json")
    assert "a failed run has no execution.lastNodeExecuted here" in errors_of(made)["Tell"]


@pytest.mark.parametrize(
    ("operation", "reason"), [("sendAndWait", "it waits for an answer"), ("reply", "reply has no step")]
)
def test_mail_that_is_more_than_sent_is_left_to_a_person(operation: str, reason: str) -> None:
    mail = node("Ask", "emailSend", {"operation": operation, "toEmail": "a@x.example", "message": "Delete it?"}, 2.1)
    made = translate(chain(HOOK, mail, POST), file="x.json")
    assert reason in errors_of(made)["Ask"]
    assert [step["action"] for step in made.workflows["test"]["steps"]] == ["approve", "http"]


@pytest.mark.parametrize(
    ("kind", "parameters", "told"),
    [
        ("emailSend", {"toEmail": "a@x.example", "text": "x", "options": {"ccEmail": "b@x.example"}}, "ccEmail"),
        ("emailSend", {"toEmail": "a@x.example", "html": "<b>x</b>"}, "its HTML is sent as text"),
        ("telegram", {"chatId": "1", "text": "x", "replyMarkup": "inlineKeyboard"}, "replyMarkup"),
        ("telegram", {"chatId": "1", "text": "x", "replyMarkup": "none"}, ""),
        ("slack", {"channel": "#a", "text": "x", "otherOptions": {"thread_ts": {"value": 1}}}, "thread_ts"),
        ("httpRequest", {"url": "https://x.example/", "options": {"proxy": "http://p.example"}}, "proxy"),
    ],
)
def test_settings_of_a_node_that_a_step_does_not_have_are_told(kind: str, parameters: Any, told: str) -> None:
    made = translate(chain(HOOK, node("X", kind, parameters, 3)), file="x.json")
    found = [text for text in warnings_of(made) if "not taken over" in text or "sent as text" in text]
    assert errors_of(made) == {}
    assert [told in text for text in found] == ([True] if told else [])


def test_two_methods_of_one_path_have_two_addresses() -> None:
    form = node("Form", "webhook", {"path": "in"})
    made = translate(export(HOOK, form, post("A"), post("B"), Hook=[["A"]], Form=[["B"]]), file="x.json")
    assert [one["trigger"]["webhook"]["id"] for one in made.workflows.values()] == ["in", "in-2"]
    assert any("here it is /webhooks/generic/in-2" in text for text in warnings_of(made))


def test_a_list_of_addresses_that_may_send_is_told() -> None:
    hook = node("Hook", "webhook", {"httpMethod": "POST", "path": "in", "options": {"ipWhitelist": "10.0.0.1"}})
    assert any("ipWhitelist" in text for text in warnings_of(translate(chain(hook, POST), file="x.json")))


def after_fetch(expression: str, version: float = 4.2, **parameters: Any) -> Imported:
    fetch = node("Fetch", "httpRequest", {"url": "https://x.example/", **parameters}, version)
    shape = {"assignments": {"assignments": [{"name": "x", "value": expression}]}}
    return translate(chain(HOOK, fetch, node("Shape", "set", shape, 3.4)), file="x.json")


def answered(**response: Any) -> dict[str, Any]:
    return {"options": {"response": {"response": response}}}


@pytest.mark.parametrize(
    ("parameters", "expression", "expected"),
    [
        ({}, "={{ $json.data }}", ".steps.fetch.response.data"),
        (answered(fullResponse=True), "={{ $json.body.id }}", ".steps.fetch.response.id"),
        (answered(fullResponse=True), "={{ $json.statusCode }}", ".steps.fetch.status_code"),
        (answered(fullResponse=True), "={{ $('Fetch').item.json.headers.ETag }}", ".steps.fetch.headers.etag"),
        (answered(responseFormat="text"), "={{ $json.data }}", ".steps.fetch.response"),
        (answered(responseFormat="text", outputPropertyName="page"), "={{ $json.page }}", ".steps.fetch.response"),
        (answered(responseFormat="text", fullResponse=True), "={{ $json.data }}", ".steps.fetch.response"),
    ],
)
def test_an_answer_as_a_whole_or_as_text(parameters: dict[str, Any], expression: str, expected: str) -> None:
    made = after_fetch(expression, **parameters)
    assert made.workflows["test"]["steps"][1]["set"] == {"x": "{{" + expected + "}}"}


@pytest.mark.parametrize(
    ("parameters", "expression"),
    [
        (answered(fullResponse=True), "={{ $json.headers.link }}"),
        (answered(fullResponse=True), "={{ JSON.stringify($json) }}"),
        (answered(responseFormat="text"), "={{ $json.id }}"),
    ],
)
def test_what_a_step_does_not_keep_of_an_answer_is_told(parameters: dict[str, Any], expression: str) -> None:
    assert "of an answer" in errors_of(after_fetch(expression, **parameters))["Shape"]


@pytest.mark.parametrize(
    ("version", "parameters"),
    [
        (4.2, {"sendQuery": True, "specifyQuery": "json", "jsonQuery": '={"q": "{{ $json.body.a }}", "n": 2}'}),
        (2, {"jsonParameters": True, "queryParametersJson": '={"q": "{{ $json.body.a }}", "n": 2}'}),
    ],
)
def test_a_query_that_is_written_as_json(version: float, parameters: dict[str, Any]) -> None:
    fetch = node("Fetch", "httpRequest", {"url": "https://x.example/", **parameters}, version)
    assert only(chain(HOOK, fetch))["steps"][0]["query"] == {"q": "{{.trigger.event.a}}", "n": 2}


def test_a_secret_of_a_query_that_stands_in_plain_is_not_copied() -> None:
    pairs = [{"name": "appid", "value": "0123456789"}, {"name": "keywords", "value": "rain"}]
    given = {"url": "https://x.example/", "sendQuery": True, "queryParameters": {"parameters": pairs}}
    made = translate(chain(HOOK, node("Weather", "httpRequest", given, 4.2)), file="x.json")
    query = {"appid": "${N8N_WEATHER_APPID}", "keywords": "rain"}
    assert made.workflows["test"]["steps"][0]["query"] == query
    assert made.variables["N8N_WEATHER_APPID"].value == "0123456789"


def test_a_raw_body_leaves_the_headers_of_its_request() -> None:
    headers = {"parameters": [{"name": "X-Team", "value": "shop"}]}
    raw = {"sendBody": True, "contentType": "raw", "rawContentType": "text/csv", "body": "a;b"}
    given = {"url": "https://x.example/", "method": "PUT", "sendHeaders": True, "headerParameters": headers, **raw}
    step = only(chain(HOOK, node("Put", "httpRequest", given, 4.2)))["steps"][0]
    assert step["headers"] == {"X-Team": "shop", "Content-Type": "text/csv"}


@pytest.mark.parametrize(("version", "expected"), [(3, {"a.b": "1"}), (4.2, {"a": {"b": "1"}})])
def test_dots_in_the_names_of_a_body(version: float, expected: dict[str, Any]) -> None:
    given = {"sendBody": True, "bodyParameters": {"parameters": [{"name": "a.b", "value": "1"}]}}
    post = node("Post", "httpRequest", {"method": "POST", "url": "https://x.example/", **given}, version)
    assert only(chain(HOOK, post))["steps"][0]["json"] == expected


@pytest.mark.parametrize(("options", "expected"), [({}, {"a": {"b": "1"}}), ({"dotNotation": False}, {"a.b": "1"})])
def test_dots_in_the_names_that_are_set(options: dict[str, Any], expected: dict[str, Any]) -> None:
    given = {"assignments": {"assignments": [{"name": "a.b", "value": "1"}]}, "options": options}
    assert only(chain(HOOK, node("Shape", "set", given, 3.4)))["steps"][0]["set"] == expected


@pytest.mark.parametrize(
    ("operator", "right", "expected"),
    [
        (("string", "equals"), "200", 'string(event.a) == "200"'),
        (("string", "notContains"), "x", '!string(event.a).contains("x")'),
        (("string", "lengthGt"), 5, "size(string(event.a)) > 5"),
        (("array", "lengthGt"), "5", "size(event.a) > 5"),
        (("number", "gte"), "5", "double(event.a) >= 5.0"),
        (("number", "lt"), "={{ $json.body.b }}", "double(event.a) < double(event.b)"),
        (("boolean", "true"), "", "event.a"),
    ],
)
def test_conditions_that_convert_types(operator: tuple[str, str], right: Any, expected: str) -> None:
    of = dict(zip(("type", "operation"), operator, strict=True))
    entry = {"leftValue": "={{ $json.body.a }}", "rightValue": right, "operator": of}
    conditions = {"conditions": [entry], "combinator": "and", "options": {"typeValidation": "loose"}}
    filtered = node("Only", "filter", {"conditions": conditions})
    assert only(chain(HOOK, filtered, POST))["steps"][0]["condition"] == expected


@pytest.mark.parametrize(
    ("operator", "left", "right", "expected"),
    [
        (("string", "notEquals"), "={{ $json.body.a }}", "x", 'event.a != "x"'),
        (("string", "startsWith"), "={{ $json.body['a b'] }}", "x", 'event["a b"].startsWith("x")'),
        (("string", "notContains"), "={{ $json.body.a[0].b }}", "x", '!event.a[0].b.contains("x")'),
        (("number", "lt"), "={{ $json.body.n }}", "5", "event.n < 5"),
        (("boolean", "true"), "={{ $json.body.ok }}", "", "event.ok"),
        (("string", "exists"), "={{ $json.body.a }}", "", "has(event.a) && event.a != null"),
        (("string", "notExists"), "={{ $json.body.a }}", "", "!(has(event.a)) || event.a == null"),
        (("string", "exists"), "={{ $json.body['a b'] }}", "", '"a b" in event && event["a b"] != null'),
        (("array", "contains"), "={{ $json.body.tags }}", "x", '"x" in event.tags'),
        (("array", "empty"), "={{ $json.body.tags }}", "", "size(event.tags) == 0"),
    ],
)
def test_conditions(operator: tuple[str, str], left: str, right: str, expected: str) -> None:
    entry = {
        "leftValue": left,
        "rightValue": right,
        "operator": dict(zip(("type", "operation"), operator, strict=True)),
    }
    filtered = node("Only", "filter", {"conditions": {"conditions": [entry], "combinator": "and"}})
    assert only(chain(HOOK, filtered, POST))["steps"][0]["condition"] == expected


@pytest.mark.parametrize(
    "expression",
    [
        "={{ $json.body.items.map(i => i.id) }}",
        "={{ $now.toISO() }}",
        "={{ $json.headers.host }}",
        "={{ $('Nowhere').item.json.x }}",
        "={{ 1 + 1 }}",
        "={{ process.exit() }}",
    ],
)
def test_what_is_more_than_a_value_is_not_guessed(expression: str) -> None:
    text = chain(
        HOOK, node("Shape", "set", {"assignments": {"assignments": [{"name": "x", "value": expression}]}}, 3.4)
    )
    made = translate(text, file="x.json")
    (workflow,) = made.workflows.values()
    assert workflow["steps"][0]["action"] == "approve"
    assert [finding.path for finding in made.findings if finding.severity == "error"] == [("nodes", "Shape")]


def test_what_stands_beside_an_expression_stays_text() -> None:
    values = {
        "assignments": [{"name": "x", "value": "={ {{ $json.body.a }} } ${HOME}"}, {"name": "y", "value": "{{no}}"}]
    }
    workflow = only(chain(HOOK, node("Shape", "set", {"assignments": values}, 3.4)))
    assert workflow["steps"][0]["set"] == {"x": "{ {{.trigger.event.a}} } $${HOME}", "y": "{{`{{`}}no{{`}}`}}"}


def test_a_dollar_before_a_value_is_no_reference() -> None:
    values = {"assignments": [{"name": "x", "value": "=Total: ${{ $json.body.total }}"}]}
    workflow = only(chain(HOOK, node("Shape", "set", {"assignments": values}, 3.4)))
    assert workflow["steps"][0]["set"] == {"x": "Total: $${{.trigger.event.total}}"}


def test_what_two_branches_made_differently_is_not_guessed() -> None:
    shape = {"assignments": {"assignments": [{"name": "x", "value": "1"}]}}
    last = node("Last", "httpRequest", {"url": "=https://x.example/{{ $json.x }}"}, 4.2)
    nodes = (HOOK, if_node("Which"), node("A", "set", shape, 3.4), node("B", "set", shape, 3.4), last)
    made = translate(export(*nodes, Hook=[["Which"]], Which=[["A"], ["B"]], A=[["Last"]], B=[["Last"]]), file="x.json")
    assert "depends on the branch" in next(one.message for one in made.findings if one.severity == "error")


@pytest.mark.parametrize(
    ("kind", "entry", "expected"),
    [
        ("number", {}, "event.n < 0"),
        ("number", {"operation": "larger"}, "event.n > 0"),
        ("string", {"operation": "notEqual"}, 'event.n != ""'),
        ("boolean", {}, "event.n == false"),
        ("dateTime", {"value2": "2026-01-01"}, 'timestamp(event.n) > timestamp("2026-01-01")'),
        ("string", {"operation": "regex", "value2": "/^a.c$/gi"}, 'event.n.matches("(?i)^a.c$")'),
        ("string", {"operation": "notRegex", "value2": "^a"}, '!event.n.matches("^a")'),
    ],
)
def test_what_an_export_leaves_out_is_what_the_first_generation_has_there(
    kind: str, entry: dict[str, Any], expected: str
) -> None:
    conditions = {"conditions": {kind: [{"value1": "={{ $json.body.n }}", **entry}]}}
    assert only(chain(HOOK, node("Only", "filter", conditions, 1), POST))["steps"][0]["condition"] == expected


@pytest.mark.parametrize(
    ("kind", "combine"), [("if", {"combineOperation": "any"}), ("filter", {"combineConditions": "OR"})]
)
def test_conditions_of_the_first_generation_of_which_one_is_enough(kind: str, combine: dict[str, str]) -> None:
    entries = [{"value1": "={{ $json.body.n }}", "value2": number, "operation": "equal"} for number in (1, 2)]
    filtered = node("Only", kind, {"conditions": {"number": entries}, **combine}, 1)
    assert only(chain(HOOK, filtered, POST))["steps"][0]["condition"] == "event.n == 1 || event.n == 2"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("equals", 'event.a.matches("(?i)^A\\\\+b$")'),
        ("notEquals", '!event.a.matches("(?i)^A\\\\+b$")'),
        ("contains", 'event.a.matches("(?i)A\\\\+b")'),
        ("notStartsWith", '!event.a.matches("(?i)^A\\\\+b")'),
        ("endsWith", 'event.a.matches("(?i)A\\\\+b$")'),
        ("regex", 'event.a.matches("(?i)A+b")'),
    ],
)
def test_a_comparison_that_does_not_regard_case_is_a_pattern(operation: str, expected: str) -> None:
    entry = {
        "leftValue": "={{ $json.body.a }}",
        "rightValue": "A+b",
        "operator": {"type": "string", "operation": operation},
    }
    conditions = {"options": {"caseSensitive": False}, "conditions": [entry], "combinator": "and"}
    filtered = node("Only", "filter", {"conditions": conditions, "options": {"ignoreCase": True}})
    assert only(chain(HOOK, filtered, POST))["steps"][0]["condition"] == expected


def test_two_values_without_regard_to_case_are_left_to_a_person() -> None:
    operator = {"type": "string", "operation": "equals"}
    entry = {"leftValue": "={{ $json.body.a }}", "rightValue": "={{ $json.body.b }}", "operator": operator}
    conditions = {"options": {"caseSensitive": False}, "conditions": [entry]}
    made = translate(chain(HOOK, node("Only", "filter", {"conditions": conditions}), POST), file="x.json")
    assert "upper and lower case" in next(one.message for one in made.findings if one.severity == "error")


def switch(version: float, rules: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    parameters = {"value1": "={{ $json.body.n }}", "rules": {"rules": rules}, **more}
    return node("Which", "switch", parameters, version)


def post(name: str) -> dict[str, Any]:
    return {**POST, "name": name}


def ids(steps: list[dict[str, Any]]) -> list[str]:
    return [step["id"] for step in steps]


def test_rules_of_a_switch_that_lead_to_one_output_each_have_its_steps() -> None:
    # the first version leaves out the number of the first output
    rules = [{"operation": "equal", "value2": 1}, {"operation": "equal", "value2": 2, "output": 1}]
    rules.append({"operation": "equal", "value2": 3})
    text = export(HOOK, switch(1, rules), post("A"), post("B"), Hook=[["Which"]], Which=[["A"], ["B"], [], []])
    (step,) = only(text)["steps"]
    assert [(case["when"], ids(case["steps"])) for case in step["cases"]] == [
        ("event.n == 1", ["a"]),
        ("event.n == 2", ["b"]),
        ("event.n == 3", ["a_2"]),
    ]
    assert "default" not in step


@pytest.mark.parametrize(
    ("version", "more", "expected"),
    [
        (1, {"fallbackOutput": 1}, ["b_2"]),
        (3.2, {"options": {"fallbackOutput": "extra"}}, ["c"]),
        (3, {"options": {"fallbackOutput": 0}}, ["a_2"]),
        (3.2, {"options": {"fallbackOutput": "none"}}, []),
        (3.2, {}, []),
    ],
)
def test_what_no_rule_of_a_switch_fits_goes_where_it_did(
    version: float, more: dict[str, Any], expected: list[str]
) -> None:
    rules = [{"operation": "equal", "value2": number, "output": number} for number in (0, 1)]
    nodes = (HOOK, switch(version, rules, **more), post("A"), post("B"), post("C"))
    (step,) = only(export(*nodes, Hook=[["Which"]], Which=[["A"], ["B"], ["C"]]))["steps"]
    assert ids(step.get("default", [])) == expected


def test_a_switch_to_every_output_that_fits_is_left_to_a_person() -> None:
    rules = [{"operation": "equal", "value2": number} for number in (0, 1)]
    which = switch(3.2, rules, options={"allMatchingOutputs": True})
    made = translate(export(HOOK, which, post("A"), post("B"), Hook=[["Which"]], Which=[["A"], ["B"]]), file="x.json")
    assert "every output that fits" in next(one.message for one in made.findings if one.severity == "error")


def test_what_n8n_drops_does_not_come_to_the_node_where_the_ways_meet() -> None:
    rules = [{"operation": "equal", "value2": number, "output": number} for number in (0, 1)]
    nodes = (HOOK, switch(3.2, rules), post("A"), post("B"), post("C"))
    steps = only(export(*nodes, Hook=[["Which"]], Which=[["A"], ["B"]], A=[["C"]], B=[["C"]]))["steps"]
    assert ids(steps) == ["which", "c"]
    assert steps[0]["default"] == [{"id": "which_ends", "action": "filter", "condition": "false"}]


def test_a_filter_beside_another_way_ends_its_own_way_alone() -> None:
    conditions = {"conditions": {"number": [{"value1": "={{ $json.body.n }}", "operation": "larger"}]}}
    nodes = (HOOK, node("Only", "filter", conditions, 1), post("A"), post("B"), post("C"))
    steps = only(export(*nodes, Hook=[["Only", "B"]], Only=[["A"]], A=[["C"]], B=[["C"]]))["steps"]
    assert ids(steps) == ["only", "b", "c"]
    assert (steps[0]["action"], ids(steps[0]["then"])) == ("if", ["a"])


def test_what_is_dropped_beside_another_way_ends_its_own_way_alone() -> None:
    nodes = (HOOK, if_node("Which"), post("A"), post("B"), post("C"))
    steps = only(export(*nodes, Hook=[["Which", "B"]], Which=[["A"], []], A=[["C"]], B=[["C"]]))["steps"]
    assert ids(steps) == ["which", "b", "c"]
    assert (ids(steps[0]["then"]), steps[0].get("else", [])) == (["a"], [])


def test_what_follows_an_error_output_is_told_and_the_rest_is_translated() -> None:
    fetch = {**POST, "name": "Fetch", "onError": "continueErrorOutput"}
    made = translate(export(HOOK, fetch, post("A"), post("B"), Hook=[["Fetch"]], Fetch=[["A"], ["B"]]), file="x.json")
    (workflow,) = made.workflows.values()
    assert ids(workflow["steps"]) == ["fetch", "a"]
    assert "on_error" not in workflow["steps"][0]
    assert [one.message for one in made.findings if "error output is left out: B" in one.message]


@pytest.mark.parametrize(
    ("version", "more", "expected"),
    [
        (3.4, {}, "steps.shape.response"),
        (3.4, {"includeOtherFields": True}, "trigger.event"),
        (3.2, {}, "trigger.event"),
        (3.2, {"include": "none"}, "steps.shape.response"),
        (2, {}, "trigger.event"),
        (2, {"keepOnlySet": True}, "steps.shape.response"),
    ],
)
@pytest.mark.parametrize("is_raw", [False, True])
def test_a_field_that_was_not_set_is_where_that_version_has_it(
    version: float, more: dict[str, Any], expected: str, is_raw: bool
) -> None:
    fields = {"assignments": {"assignments": [{"name": "x", "value": "1"}]}}
    shape = node(
        "Shape", "set", {**({"mode": "raw", "jsonOutput": '{"x": "1"}'} if is_raw else fields), **more}, version
    )
    last = node("Last", "httpRequest", {"url": "=https://x.example/{{ $json.body.other }}"}, 4.2)
    url = only(chain(HOOK, shape, last))["steps"][1]["url"]
    assert url.startswith(f"https://x.example/{{{{.{expected}")


@pytest.mark.parametrize(
    ("amount", "unit", "expected"), [(0.5, "hours", "1800s"), (2, "minutes", "2m"), (1.5, "seconds", "2s")]
)
def test_a_wait_of_a_part_of_an_hour(amount: float, unit: str, expected: str) -> None:
    wait = node("Wait", "wait", {"amount": amount, "unit": unit}, 1.1)
    assert only(chain(HOOK, wait, POST))["steps"][0]["for"] == expected


def test_each_node_that_is_left_out_with_what_leads_to_it_is_named() -> None:
    unclear = if_node("Unclear", "={{ $json.body.x + 1 }}")
    last = {**POST, "name": "Last"}
    made = translate(
        export(HOOK, unclear, POST, last, Hook=[["Unclear"]], Unclear=[["Post"]], Post=[["Last"]]), file="x"
    )
    told = [finding.path for finding in made.findings if "no way to it could be translated" in finding.message]
    assert told == [("nodes", "Post"), ("nodes", "Last")]


def test_the_workflow_that_hears_of_failures_is_told() -> None:
    document = json.loads(chain(HOOK, POST)) | {"settings": {"errorWorkflow": "42"}}
    paths = [finding.path for finding in translate(json.dumps(document), file="x.json").findings]
    assert ("settings", "errorWorkflow") in paths


def test_connections_from_what_is_no_node_are_told() -> None:
    document = json.loads(chain(HOOK, POST))
    document["connections"]["0c1e-88"] = document["connections"].pop("Hook")
    made = translate(json.dumps(document), file="x.json")
    assert any("no node are left out: 0c1e-88" in finding.message for finding in made.findings)


def test_a_reference_in_the_name_of_a_workflow_stays_text() -> None:
    document = {**json.loads(chain(HOOK, POST)), "name": "Cost of ${x}"}
    assert only(json.dumps(document))["description"] == "From the n8n workflow Cost of $${x}"


def test_a_loop_is_told_and_left_out() -> None:
    text = export(
        HOOK, POST, if_node("Again", "={{ $json.x }}"), Hook=[["Post"]], Post=[["Again"]], Again=[["Post"], []]
    )
    made = translate(text, file="x.json")
    assert any("goes back to Post" in finding.message for finding in made.findings)
    (workflow,) = made.workflows.values()
    assert [step["id"] for step in workflow["steps"]] == ["post"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "syntax"),
        ("not json", "syntax"),
        ("[" * 100_000, "syntax"),
        ("{}", "missing"),
        ("7", "missing"),
        ("null", "missing"),
        ('{"nodes": {}}', "missing"),
        ('[{"nodes": 1}, 2]', "missing"),
        ('{"nodes": [1, {"name": 2}, {"name": "x", "type": null}], "connections": []}', "wrong_type"),
    ],
)
def test_what_is_no_export_is_told(text: str, code: str) -> None:
    made = translate(text, file="x.json")
    assert (made.workflows, made.findings[0].code) == ({}, code)


ANY_SHAPE: list[Any] = [None, 7, 1e400, "x", [], [[]], {"x": 1}, [None], True]


@pytest.mark.parametrize("value", ANY_SHAPE)
@pytest.mark.parametrize(
    "kind", ["httpRequest", "set", "if", "filter", "switch", "scheduleTrigger", "webhook", "wait", "slack"]
)
def test_parameters_of_any_shape_are_survived(kind: str, value: Any) -> None:
    names = (
        "rule",
        "conditions",
        "assignments",
        "rules",
        "url",
        "path",
        "values",
        "options",
        "headerParameters",
        "amount",
    )
    made = translate(chain(HOOK, node("X", kind, dict.fromkeys(names, value)), POST), file="x.json")
    assert made.workflows or made.findings


@pytest.mark.parametrize("value", ANY_SHAPE)
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("scheduleTrigger", ("rule", "interval")),
        ("scheduleTrigger", ("rule", "interval", 0, "daysInterval")),
        ("cron", ("triggerTimes", "item")),
        ("cron", ("triggerTimes", "item", 0, "mode")),
        ("rssFeedReadTrigger", ("pollTimes", "item")),
        ("if", ("conditions", "conditions")),
        ("if", ("conditions", "string", 0, "operation")),
        ("httpRequest", ("headerParameters", "parameters")),
        ("httpRequest", ("options", "timeout")),
        ("set", ("assignments", "assignments")),
    ],
)
def test_what_is_inside_of_parameters_may_have_any_shape(kind: str, path: tuple[str | int, ...], value: Any) -> None:
    inside = value
    for part in reversed(path):
        inside = [inside] if part == 0 else {part: inside}
    one = node("X", kind, {"url": "https://x.example/", "feedUrl": "https://x.example/", **inside})
    made = translate(chain(HOOK, one, POST), file="x.json"), translate(chain(one, POST), file="x.json")
    assert all(each.workflows or each.findings for each in made)


def test_ten_thousand_nodes_are_refused_at_once() -> None:
    nodes = [HOOK, *(node(f"N{number}", "noOp") for number in range(10_000))]
    made = translate(chain(*nodes), file="x.json")
    assert "at most 2,000" in made.findings[0].message


def test_a_long_chain_is_translated_up_to_the_limit_of_steps() -> None:
    made = translate(chain(HOOK, *(dict(POST, name=f"P{number}") for number in range(1_900))), file="x.json")
    (workflow,) = made.workflows.values()
    assert len(workflow["steps"]) == 1_000
    assert any("more than 1000 steps" in finding.message for finding in made.findings)


def test_branches_in_branches_and_ways_in_ways_come_to_an_end() -> None:
    ifs = [if_node(f"I{number}") for number in range(300)]
    deep: dict[str, list[list[str]]] = {"Hook": [["I0"]]}
    wide: dict[str, list[list[str]]] = {"Hook": [["I0", "I1"]]}
    for number in range(298):
        deep[f"I{number}"] = [[f"I{number + 1}"], [f"I{number + 2}"]]
        wide[f"I{number}"] = [[f"I{number + 1}", f"I{number + 2}"], []]
    for connections in (deep, wide):
        made = translate(export(HOOK, *ifs, POST, **connections, I298=[["Post"]], I299=[["Post"]]), file="x.json")
        assert any("inside each other" in finding.message or "steps" in finding.message for finding in made.findings)


ODD_NODES = {
    "a trigger": (node("Hook", "scheduleTrigger", {"rule": {"interval": 7}}), POST),
    "a step": (
        HOOK,
        node("Post", "httpRequest", {"url": "https://x.example/", "queryParameters": {"parameters": 1}}, 4.2),
    ),
    "an operation": (HOOK, node("Post", "filter", {"conditions": {"string": [{"value1": "", "operation": [[]]}]}}, 1)),
}


@pytest.mark.parametrize("nodes", ODD_NODES.values(), ids=list(ODD_NODES))
def test_a_node_with_a_value_of_another_kind_is_left_to_a_person(nodes: tuple[dict[str, Any], ...]) -> None:
    imported = translate(chain(*nodes), file="x.json")
    assert imported.workflows
    assert [finding.severity for finding in imported.findings if "Hook" in finding.path or "Post" in finding.path]

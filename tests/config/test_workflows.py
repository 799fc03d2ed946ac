"""Workflow files and what they compile to."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harken.config.feed_sources import source_for
from harken.config.loaded import Loaded
from harken.feed import INTERNAL, Digest, Feed, Spacing, Trigger
from harken.schedule import At, Cron, Every
from harken.services import registry
from harken.services.webhook import CheckedIncoming
from harken.source import Host
from tests.config.makers import codes, lines, poll, read, workflow

FULL = """
name: triage
description: What to look at first
trigger:
  type: poll
  condition: event.urgency == "high"
  overlap: queue
  concurrency_key: "{{.trigger.event.service.id}}"
  priority: 5
  gather: {digest: {window: 5m, max: 20, by: "{{.trigger.event.service.id}}"}}
  poll:
    integration: pagerduty
    query:
      user_id: "PXYZ"
      services: ["@jsmith", "team:platform", In Progress, someone@example.com]
      statuses: [triggered, acknowledged]
    interval: 1h30m
    startup: backfill
    backfill: 4h
    lookback: 5m
    identity: change
    first: deliver
    max_per_tick: 10
    dispatch_delay_ms: 1500
    input_mapping:
      incident: "{{.trigger.event.id}}"
      nested: {title: "{{.trigger.event.title}}", fixed: 3}
inputs: {incident: {type: string}}
steps:
  - id: triage
    action: llm
    model: balanced
    prompt: |
      {{.incident}} on {{.trigger.event.x}}
outputs: {text: "{{.steps.triage.response}}"}
"""


def one(directory: Path, trigger: str, **more: Any) -> tuple[Loaded, Trigger, Feed]:
    loaded = read(directory, {"workflows/w.yaml": workflow("w", trigger)}, **more)
    assert not loaded.refused, lines(loaded.findings)
    (found,) = loaded.triggers
    return loaded, found, next(feed for feed in loaded.feeds if feed.name == found.feed)


def refusal(directory: Path, trigger: str) -> str:
    loaded = read(directory, {"workflows/w.yaml": workflow("w", trigger)})
    assert list(loaded.refused) == ["workflow:w"]
    return "\n".join(lines(loaded.findings))


def test_a_full_poll_workflow_compiles_to_a_feed_a_trigger_and_a_workflow(tmp_path: Path) -> None:
    loaded = read(tmp_path, {"workflows/t.yaml": FULL}, environ={"PAGERDUTY_TOKEN": "tok-en"})
    assert not loaded.findings
    (trigger,) = loaded.triggers
    feed = next(feed for feed in loaded.feeds if feed.name == trigger.feed)
    assert feed.name.startswith("pagerduty-")
    assert (feed.kind, feed.integration, feed.schedule) == ("pagerduty", "pagerduty", Every(seconds=5400))
    assert (feed.identity, feed.lookback, feed.first) == ("change", 300, "deliver")
    assert feed.query["services"] == ["@jsmith", "team:platform", "In Progress", "someone@example.com"]
    flow = loaded.workflows["triage"]
    assert trigger == Trigger(
        name="triage",
        feed=feed.name,
        workflow="triage",
        workflow_rev=flow.rev,
        condition='event.urgency == "high"',
        mapping={"incident": "{{.trigger.event.id}}", "nested": {"title": "{{.trigger.event.title}}", "fixed": 3}},
        overlap="queue",
        concurrency_key="{{.trigger.event.service.id}}",
        gather=Digest(window=300, max=20, by="{{.trigger.event.service.id}}"),
        spacing=Spacing(per_tick=10, delay=1.5),
        priority=5,
        startup="backfill",
        backfill=14_400,
        source="workflows/t.yaml",
    )
    assert list(flow.definition) == ["inputs", "steps", "outputs"]
    assert "tok-en" in loaded.secrets


def test_a_poll_has_defaults_and_its_kind_may_go_by_an_alias(tmp_path: Path) -> None:
    loaded, trigger, feed = one(tmp_path, "poll: {integration: webhook_poll, query: {url: 'https://x.example'}}")
    assert (feed.kind, feed.integration, feed.schedule) == ("json", "json", Every(seconds=30))
    assert (feed.identity, feed.lookback, feed.first, trigger.startup) == ("once", 120, "baseline", "since_last")
    assert feed.query == {
        "url": "https://x.example",
        "method": "GET",
        "headers": {},
        "items_path": "",
        "max_per_tick": 20,
        "allow_private_networks": False,
    }
    assert loaded.integrations["json"].model is None


def test_an_empty_query_is_a_warning_where_everything_is_optional(tmp_path: Path) -> None:
    loaded, _, _ = one(tmp_path, "poll: {integration: pagerduty}", environ={"PAGERDUTY_TOKEN": "tok-en"})
    assert codes(loaded.findings) == ["empty_query"]


@pytest.mark.parametrize(
    ("url", "interval", "fine"),
    [
        ("https://x.example", "10s", True),
        ("https://x.example", "9s", False),
        ("http://127.0.0.1:8", "1s", True),
        ("http://[::1]/", "1s", True),
        ("http://localhost/", "500ms", False),
        ("https://localhost.example", "5s", False),
    ],
)
def test_the_floor_of_an_interval_depends_on_whose_api_it_is(
    tmp_path: Path, url: str, interval: str, fine: bool
) -> None:
    loaded = read(tmp_path, {"workflows/w.yaml": workflow("w", poll(url, f"interval: {interval}"))})
    assert codes(loaded.findings) == ["too_often"] * (not fine)


def test_a_poll_may_have_a_schedule_that_keeps_the_floor(tmp_path: Path) -> None:
    _, _, feed = one(tmp_path, poll(rest="schedule: '0 9 * * 1-5'"))
    assert feed.schedule == Cron(expression="0 9 * * 1-5")
    assert "may not be read that often" in refusal(tmp_path, poll(rest="schedule: '*/5 * * * * *'"))
    assert "stands beside schedule" in refusal(tmp_path, poll(rest="schedule: '0 9 * * *', interval: 30s"))


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("startup: backfill", "trigger.poll.startup: needs backfill:"),
        ("startup: ignore_historical, backfill: 1h", "does not go with startup: ignore_historical"),
        ("backfill: 25h", "trigger.poll.backfill: must be at most 24h"),
        ("interval: 30", "trigger.poll.interval: a duration needs a unit. Write 30s"),
        ("interval: 1m1h", "'1m1h' is not a duration"),
        ("max_per_tick: 0", "trigger.poll.max_per_tick"),
    ],
)
def test_poll_settings_that_do_not_fit_are_refused(tmp_path: Path, rest: str, message: str) -> None:
    assert message in refusal(tmp_path, poll(rest=rest))


def test_backfill_goes_with_since_last(tmp_path: Path) -> None:
    _, trigger, _ = one(tmp_path, poll(rest="backfill: 1h"))
    assert (trigger.startup, trigger.backfill) == ("since_last", 3600)


def test_what_belongs_to_the_trigger_may_stand_beside_the_poll_but_not_twice(tmp_path: Path) -> None:
    _, trigger, _ = one(
        tmp_path, poll() + ", startup: ignore_historical, input_mapping: {a: '{{.x}}'}, max_per_tick: 3"
    )
    assert (trigger.startup, trigger.mapping) == ("ignore_historical", {"a": "{{.x}}"})
    assert trigger.spacing == Spacing(per_tick=3)
    assert "stands in poll: as well" in refusal(tmp_path, poll(rest="startup: since_last") + ", startup: since_last")


def test_max_per_tick_of_a_query_spaces_runs_and_does_not_divide_feeds(tmp_path: Path) -> None:
    spaced = "poll: {integration: json, query: {url: 'https://api.example/items', max_per_tick: 5}}"
    loaded = read(tmp_path, {"workflows/a.yaml": workflow("a", spaced), "workflows/b.yaml": workflow("b", poll())})
    assert [trigger.spacing for trigger in loaded.triggers] == [Spacing(per_tick=5), None]
    assert len({trigger.feed for trigger in loaded.triggers}) == 1


def test_equal_polls_share_a_feed_with_the_shortest_interval(tmp_path: Path) -> None:
    files = {
        "workflows/a.yaml": workflow("a", poll(rest="interval: 5m")),
        "workflows/b.yaml": workflow("b", poll(rest="interval: 20s")),
        "workflows/c.yaml": workflow("c", poll(rest="lookback: 1h")),
        "workflows/d.yaml": workflow("d", poll("https://other.example")),
    }
    loaded = read(tmp_path, files)
    feeds = {trigger.name: trigger.feed for trigger in loaded.triggers}
    assert feeds["a"] == feeds["b"]
    assert len(set(feeds.values())) == 3
    assert next(feed.schedule for feed in loaded.feeds if feed.name == feeds["a"]) == Every(seconds=20)


def test_polls_with_different_written_tokens_do_not_share_a_feed(tmp_path: Path) -> None:
    def asking(token: str) -> str:
        return f"poll: {{integration: json, query: {{url: 'https://x.example', headers: {{Authorization: {token}}}}}}}"

    files = {"workflows/a.yaml": workflow("a", asking("one")), "workflows/b.yaml": workflow("b", asking("two"))}
    assert len({trigger.feed for trigger in read(tmp_path, files).triggers}) == 2


def test_the_name_of_a_feed_is_the_same_in_every_process(tmp_path: Path) -> None:
    _, _, feed = one(tmp_path, poll())
    assert feed.name == "json-42770927"


@pytest.mark.parametrize(
    ("written", "schedule", "query"),
    [
        ("'0 9 * * *'", Cron(expression="0 9 * * *"), {"cron": "0 9 * * *", "tz": "UTC"}),
        (
            "{cron: '0 0 9 * * *', tz: Europe/Berlin}",
            Cron(expression="0 0 9 * * *", tz="Europe/Berlin"),
            {"tz": "Europe/Berlin"},
        ),
        ("{every: 5m, missed: all}", Every(seconds=300), {"every": 300.0, "missed": "all"}),
        ("{at: 2026-03-01T09:00:00Z}", At(instant=datetime(2026, 3, 1, 9, tzinfo=UTC)), {"at": "2026-03-01T09:00:00Z"}),
    ],
)
def test_schedules_compile_to_feeds_of_their_own(
    tmp_path: Path, written: str, schedule: Any, query: dict[str, Any]
) -> None:
    _, trigger, feed = one(tmp_path, f"schedule: {written}")
    assert (feed.name, feed.kind, feed.schedule) == ("schedule/w", "cron", schedule)
    assert (feed.lookback, feed.first, trigger.feed) == (0, "deliver", "schedule/w")
    assert query.items() <= dict(feed.query).items()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("'0 9 * *'", "trigger.schedule.cron: '0 9 * *' is not a cron line"),
        ("{cron: '0 9 * * *', tz: Mars/Base}", "no time zone 'Mars/Base'"),
        ("{cron: '0 9 * * *', every: 5m}", "a schedule is one of cron, every and at"),
        ("{}", "a schedule is one of cron, every and at"),
        ("{every: 500ms}", "every must be at least 1s"),
        ("{at: 2026-03-01T09:00:00}", "has no time zone"),
        ("{at: tomorrow}", "is not an instant"),
        ("{cron: '0 9 * * *', missed: none}", "trigger.schedule.missed: must be 'coalesce', 'all' or 'skip'"),
        ("5", "must be a mapping, not a number"),
    ],
)
def test_schedules_that_are_none_are_refused(tmp_path: Path, written: str, message: str) -> None:
    assert message in refusal(tmp_path, f"schedule: {written}")


@pytest.mark.parametrize(
    "provider",
    ["alertmanager", "azure_devops", "github", "gitlab", "grafana", "jira", "pagerduty", "sentry", "slack", "stripe"],
)
def test_a_known_sender_needs_its_secret_and_no_account(tmp_path: Path, provider: str) -> None:
    plugins = registry()
    _, _, feed = one(tmp_path, f"webhook: {{provider: {provider}, id: in, secret: s}}", plugins=plugins)
    assert (feed.kind, feed.path, feed.way, feed.identity) == (provider, f"{provider}/in", "push", "change")
    unsigned = workflow("w", f"webhook: {{provider: {provider}, id: in}}")
    refused = read(tmp_path, {"workflows/w.yaml": unsigned}, plugins=plugins)
    assert "trigger.webhook.secret" in lines(refused.findings)[0]


def test_a_schema_of_a_webhook_is_read_and_a_wrong_one_refused_with_its_place(tmp_path: Path) -> None:
    plugins = registry()
    loaded, _, feed = one(tmp_path, "webhook: {secret: s, schema: {required: [id]}}", plugins=plugins)
    assert feed.query["payload_schema"] == {"required": ["id"]}
    # as in a process that has the feed from the store alone
    stored = replace(loaded, queries={})
    nothing: Any = None
    host = Host(http=nothing, clock=nothing, random=nothing)
    assert isinstance(source_for(feed, stored, plugins, host), CheckedIncoming)
    wrong = workflow("w", "webhook: {secret: s, schema: {properties: {id: {pattern: x}}}}")
    [line] = lines(read(tmp_path, {"workflows/w.yaml": wrong}, plugins=plugins).findings)
    assert "trigger.webhook.schema.properties.id: has pattern, which cannot be checked" in line


SCHEMA = """{
\t"type": "object",
\t"properties": {
\t\t"id": {"type": "string"},
\t\t"size": {"anyOf": [{"type": "integer"}, {"type": "null"}]}
\t}
}
"""


def with_schema(directory: Path, text: str, name: str = "workflows/deploy.json") -> Loaded:
    hook = workflow("w", f"webhook: {{secret: s, schema: {name}}}")
    return read(directory, {"workflows/w.yaml": hook, "workflows/deploy.json": text}, plugins=registry())


def test_the_schema_of_a_webhook_may_stand_in_a_file(tmp_path: Path) -> None:
    loaded = with_schema(tmp_path, SCHEMA)
    assert not loaded.findings
    [feed] = [feed for feed in loaded.feeds if feed.path]
    assert feed.query["payload_schema"]["properties"]["id"] == {"type": "string"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            SCHEMA.replace('"null"', '"nil"'),
            "deploy.json:5:52: trigger.webhook.schema.properties.size.anyOf[1].type: must",
        ),
        (
            SCHEMA.replace('"type": "string"', '"pattern": "x+"'),
            "deploy.json:4:9: trigger.webhook.schema.properties.id: has",
        ),
        (SCHEMA.replace('"size"', '"id"'), "workflows/deploy.json:5:3: "),
        (SCHEMA[:-3], "workflows/deploy.json:"),
        ("", "workflows/w.yaml:2:40: trigger.webhook.schema: workflows/deploy.json is empty"),
        ("[1]", "workflows/deploy.json:1:1: trigger.webhook.schema: is not a schema"),
        ('{"$ref": "#/none"}', "workflows/deploy.json:1:10: trigger.webhook.schema.$ref: leads to #/none"),
    ],
    ids=["a type", "a keyword", "a key twice", "cut off", "empty", "a list", "a reference"],
)
def test_what_is_wrong_in_the_file_of_a_schema_is_found_at_its_line(tmp_path: Path, text: str, said: str) -> None:
    loaded = with_schema(tmp_path, text)
    assert list(loaded.refused) == ["workflow:w"]
    assert said in "\n".join(lines(loaded.findings))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("workflows/none.json", "workflows/none.json:1:1: cannot be read: No such file"),
        ("../deploy.json", "../deploy.json is outside the directory of harken.yaml"),
        ("/etc/passwd.json", "/etc/passwd.json is outside the directory of harken.yaml"),
        ("deploy", "must be a schema, or the path of a .json file. Name it deploy.json"),
        ("'${file:workflows/deploy.json}'", "is a path; what ${…} reads is kept secret. Write the path alone"),
        ("7", "is not a schema"),
    ],
)
def test_a_schema_is_read_from_a_json_file_below_the_directory_alone(tmp_path: Path, name: str, said: str) -> None:
    loaded = with_schema(tmp_path, SCHEMA, name)
    assert said in "\n".join(lines(loaded.findings))
    assert list(loaded.refused) == ["workflow:w"]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("", 0),
        (", respond: at_once", 0),
        (", respond: when_done", 10),
        (", respond: when_done, respond_within: 1m", 60),
    ],
)
def test_a_webhook_says_for_how_long_its_sender_waits(tmp_path: Path, written: str, seconds: float) -> None:
    _, _, feed = one(tmp_path, f"webhook: {{secret: s{written}}}", plugins=registry())
    assert feed.respond_seconds == seconds


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("respond: later", "trigger.webhook.respond: must be 'at_once' or 'when_done'"),
        ("respond_within: 5s", "trigger.webhook.respond_within: needs respond: when_done"),
        ("respond: when_done, respond_within: 6m", "trigger.webhook.respond_within: must be at most 5m"),
        ("respond: when_done, respond_within: 0s", "trigger.webhook.respond_within: must be at most 5m"),
    ],
)
def test_a_wrong_patience_is_refused(tmp_path: Path, written: str, said: str) -> None:
    wrong = workflow("w", f"webhook: {{secret: s, {written}}}")
    loaded = read(tmp_path, {"workflows/w.yaml": wrong}, plugins=registry())
    assert said in lines(loaded.findings)[0]
    assert list(loaded.refused) == ["workflow:w"]


def test_a_window_that_outlasts_the_patience_of_senders_is_warned_about(tmp_path: Path) -> None:
    gathered = "webhook: {secret: s, respond: when_done}, gather: {digest: {window: 10s}}"
    loaded, _, _ = one(tmp_path, gathered, plugins=registry())
    [line] = lines(loaded.findings)
    assert "trigger.gather.digest.window: is not shorter than the 10s that a sender waits" in line


def test_a_webhook_is_a_pushed_feed_under_its_address(tmp_path: Path) -> None:
    loaded, _, feed = one(
        tmp_path, "webhook: {secret: '${HOOK_SECRET}', header: x-sig}", environ={"HOOK_SECRET": "s3cret-x"}
    )
    assert (feed.name, feed.way, feed.path, feed.kind) == ("webhook/generic/w", "push", "generic/w", "webhook")
    assert (feed.memory_seconds, feed.first, feed.lookback) == (84 * 3_600, "deliver", 0)
    assert "s3cret-x" in loaded.secrets
    _, _, other = one(tmp_path, "webhook: {id: other-1}")
    assert other.path == "generic/other-1"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{provider: githob}", "'githob' is not a provider of webhooks"),
        ("{provider: json}", "'json' is not a provider of webhooks. There are: generic"),
        ("{id: a/b}", "trigger.webhook.id"),
        ("{secrt: x}", "trigger.webhook.secrt: there is no such setting. Did you mean secret?"),
    ],
)
def test_webhooks_that_do_not_fit_are_refused(tmp_path: Path, written: str, message: str) -> None:
    assert message in refusal(tmp_path, f"webhook: {written}")


def test_a_name_that_fits_no_address_asks_for_an_id(tmp_path: Path) -> None:
    text = "name: My workflow\ntrigger: {type: webhook}\nsteps: []\n"
    assert "Add id:" in lines(read(tmp_path, {"workflows/w.yaml": text}).findings)[0]


def test_event_triggers_listen_to_what_harken_does(tmp_path: Path) -> None:
    _, trigger, feed = one(tmp_path, "event: {type: run.failed, workflow: 'a \"b\"'}, condition: event.attempt > 1")
    assert (feed.name, feed.way, trigger.types) == (INTERNAL, "internal", ("run.failed",))
    assert trigger.condition == '(event.workflow == "a \\"b\\"") && (event.attempt > 1)'
    assert one(tmp_path, "event: [a.b, c.d]")[1].types == ("a.b", "c.d")
    assert one(tmp_path, "event: a.b")[1].types == ("a.b",)
    assert "would listen to everything" in refusal(tmp_path, "event: {}")


@pytest.mark.parametrize("written", ["api: true", "api: {}", "type: api"])
def test_api_triggers_have_a_feed_of_their_own(tmp_path: Path, written: str) -> None:
    _, trigger, feed = one(tmp_path, written)
    assert (feed.name, feed.way, trigger.feed) == ("api/w", "internal", "api/w")


def test_several_triggers_listen_to_one_named_feed(tmp_path: Path) -> None:
    files = {
        "harken.yaml": "feeds: {items: {integration: json, query: {url: 'https://x'}, interval: 1m, jitter: 0}}",
        "workflows/a.yaml": workflow("a", "feed: items"),
        "workflows/b.yaml": workflow("b", "type: feed, feed: items, condition: event.x"),
    }
    loaded = read(tmp_path, files)
    assert [trigger.feed for trigger in loaded.triggers] == ["items", "items"]
    assert [(feed.name, feed.jitter) for feed in loaded.feeds] == [(INTERNAL, 0.1), ("items", 0.0)]
    assert "Did you mean items?" in lines(read(tmp_path, {"workflows/c.yaml": workflow("c", "feed: item")}).findings)[0]


def test_a_workflow_without_a_trigger_is_there_to_be_called(tmp_path: Path) -> None:
    loaded = read(tmp_path, {"workflows/w.yaml": "name: w\nsteps:\n  - {id: x, action: llm, prompt: hi}\n"})
    assert (list(loaded.workflows), loaded.triggers, loaded.findings) == (["w"], (), ())


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("type: pol", "trigger.type: there is no such trigger. Did you mean poll?"),
        ("type: poll, api: true", "has poll and api"),
        ("api: true, schedule: '0 9 * * *'", "has schedule and api"),
        ("condition: event.x", "says nothing about what to listen to"),
        ("type: poll", "trigger.poll.integration: is missing"),
        ("api: true, gather: {debounce: {window: 5m, max_wait: 1m}}", "max_wait: is shorter than window"),
        ("api: true, gather: {join: {}}", "trigger.gather.join.parts: is missing"),
        ("api: true, stale_after: soon", "trigger.stale_after: 'soon' is not a duration"),
        ("api: true, quiet_hours: {start: '25:00', end: '07:00'}", "trigger.quiet_hours.start"),
        ("api: true, budget: {tokens: 5}", "trigger.budget.tokens: there is no such setting"),
        ("api: true, concurrency_key: '{{bad}}'", "trigger.concurrency_key: it does not compile"),
        ("api: true, condition: bad", "trigger.condition: it does not compile. Write something else"),
        ("api: true, gather: {digest: {window: 5m, by: bad}}", "trigger.gather.digest.by: it does not compile"),
        ("feed: [a]", "must be the name of a feed"),
    ],
)
def test_triggers_that_do_not_fit_are_refused_with_a_reason(tmp_path: Path, written: str, message: str) -> None:
    assert message in refusal(tmp_path, written)


def test_an_integration_says_how_its_feeds_wait_after_too_many_calls(tmp_path: Path) -> None:
    files = {
        "harken.yaml": "integrations: {shop: {kind: json, backoff: {initial: 1s, max: 5s}}}",
        "workflows/w.yaml": workflow("w", "poll: {integration: shop, query: {url: 'https://x.example'}}"),
    }
    loaded = read(tmp_path, files)
    assert not loaded.findings
    assert [feed.backoff for feed in loaded.feeds if feed.kind == "json"] == [(1.0, 5.0)]


def test_a_key_that_looks_like_a_field_is_a_warning(tmp_path: Path) -> None:
    loaded, trigger, _ = one(tmp_path, "api: true, overlap: skip, concurrency_key: service.id")
    assert "Write {{.trigger.event.service.id}}" in lines(loaded.findings)[0]
    assert trigger.concurrency_key == "service.id"
    assert not one(tmp_path, "api: true, overlap: skip, concurrency_key: deploys")[0].findings


def test_a_revision_names_the_steps_and_not_what_starts_them(tmp_path: Path) -> None:
    first = one(tmp_path, "api: true")[0].workflows["w"].rev
    assert one(tmp_path, poll())[0].workflows["w"].rev == first
    files = {"workflows/w.yaml": workflow("w", steps="- {id: two, action: llm, prompt: hi}")}
    assert read(tmp_path, files).workflows["w"].rev != first


def test_kinds_take_their_account_from_the_configuration_before_the_environment(tmp_path: Path) -> None:
    files = {
        "harken.yaml": """
            integrations:
              pagerduty: {kind: pagerduty, token: from-file, rate_limit: 600/m, allow_private_networks: true}
            """,
        "workflows/w.yaml": workflow("w", "poll: {integration: pagerduty, query: {user_id: x}}"),
    }
    account = read(tmp_path, files, environ={"PAGERDUTY_TOKEN": "from-env"}).integrations["pagerduty"]
    assert account.model.token.get_secret_value() == "from-file"  # type: ignore[union-attr]
    assert (account.rate_limit, account.allow_private) == (10.0, True)
    assert "from-file" not in account.credential + repr(account)


@pytest.mark.parametrize(
    "step",
    [
        "{action: http, url: '{{.inputs.url}}', json: {pass: '${DESK_PASSWORD}'}}",
        "{action: http, url: 'https://{{.inputs.host}}/x', headers: {X-Desk: '${DESK_PASSWORD}'}}",
        "{if: 'true', then: [{action: http, url: '{{.inputs.base}}/x', body: 'p=${DESK_PASSWORD}'}]}",
    ],
)
def test_a_step_that_sends_a_secret_names_its_host(tmp_path: Path, step: str) -> None:
    files = {"workflows/w.yaml": workflow("w", steps=f"- {step}")}
    environ = {"DESK_PASSWORD": "s3cret-Zq9x7Lm2", "HOST": "desk.example.com"}
    loaded = read(tmp_path, files, environ=environ, check_workflow=lambda definition: [])
    (finding,) = loaded.findings
    assert (finding.path[-1], finding.code) == ("url", "step")
    assert finding.message.startswith("a step with credentials must name its host")
    named = step.replace("{{.inputs.url}}", "https://${HOST}/{{.inputs.x}}").replace("{{.inputs.host}}", "${HOST}")
    files = {"workflows/w.yaml": workflow("w", steps=f"- {named.replace('{{.inputs.base}}', 'https://${HOST}')}")}
    assert not read(tmp_path, files, environ=environ, check_workflow=lambda definition: []).findings

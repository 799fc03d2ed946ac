"""A wrong file gives every error with its position and a suggestion, and the rest runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.config.findings import Report
from harken.config.yaml.parser import parse
from harken.run.plan import Problem
from tests.config.makers import PLUGINS, codes, lines, poll, read, workflow
from tests.cpu_time import cpu_at_most


def test_a_directory_without_files_is_a_configuration_of_defaults(tmp_path: Path) -> None:
    loaded = read(tmp_path, {})
    assert not loaded.findings
    assert loaded.store == str(tmp_path / "harken.db")
    assert [feed.name for feed in loaded.feeds] == ["harken"]


def test_a_directory_that_is_not_there_blocks_the_start(tmp_path: Path) -> None:
    loaded = read(tmp_path / "none", {})
    assert codes(loaded.blocking) == ["unreadable"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("proxies: [10.0.0.5, nginx]", "nginx is neither an address nor a network"),
        ("proxies: [10.0.0.5/24]", "10.0.0.5/24 is neither an address nor a network"),
        ("max_connections: 0", "at least 1"),
        ("head_timeout: 10", "a duration needs a unit"),
        ("body_timeout: 0s", "above 0"),
    ],
)
def test_limits_of_the_listener_that_cannot_be_block_the_start(tmp_path: Path, written: str, said: str) -> None:
    loaded = read(tmp_path, {"harken.yaml": f"server: {{{written}}}\n"})
    [finding] = loaded.blocking
    assert said in finding.message


def test_ten_errors_in_one_file_are_all_reported_at_their_places(tmp_path: Path) -> None:
    text = """
    name: ten
    descripton: typo
    trigger:
      overlap: que
      priority: high
      condition: bad
      gather: {digest: {window: 5, max: -1}}
      poll:
        integration: json
        interval: 5 minutes
        lookbak: 1m
        startup: backfil
        backfill: 48h
        query: {ulr: x, url: 3, method: PUT}
        input_mapping: {a: '{{bad}}'}
    steps: {}
    """
    loaded = read(tmp_path, {"workflows/ten.yaml": text})
    assert [(finding.line, ".".join(map(str, finding.path))) for finding in loaded.findings] == [
        (2, "descripton"),
        (4, "trigger.overlap"),
        (5, "trigger.priority"),
        (6, "trigger.condition"),
        (7, "trigger.gather.digest.window"),
        (7, "trigger.gather.digest.max"),
        (10, "trigger.poll.interval"),
        (11, "trigger.poll.lookbak"),
        (12, "trigger.poll.startup"),
        (13, "trigger.poll.backfill"),
        (14, "trigger.poll.query.ulr"),
        (14, "trigger.poll.query.url"),
        (14, "trigger.poll.query.method"),
        (15, "trigger.poll.input_mapping.a"),
        (16, "steps"),
    ]
    assert list(loaded.refused) == ["workflow:ten"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sever: {}", "harken.yaml:1:1: sever: there is no such section. Did you mean server?"),
        ("server: {prot: 1}", "harken.yaml:1:10: server.prot: there is no such setting. Did you mean port?"),
        ("server: {port: 70000}", "harken.yaml:1:16: server.port: must be at most 65535"),
        ("server: 9091", "harken.yaml:1:9: server: must be a mapping, not a number"),
        ("server: [1]", "harken.yaml:1:9: server: must be a mapping, not a list"),
        (
            "log: {level: inf}",
            "harken.yaml:1:14: log.level: must be 'debug', 'info', 'warning' or 'error'. Did you mean info?",
        ),
        ("log: {level: 3}", "harken.yaml:1:14: log.level: must be 'debug', 'info', 'warning' or 'error'"),
        ("metrics: {enabled: maybe}", "harken.yaml:1:20: metrics.enabled: must be true or false, not text"),
        (
            "agent: {queue: {max_parallel_jobs: 0}}",
            "harken.yaml:1:36: agent.queue.max_parallel_jobs: must be at least 1",
        ),
        (
            "models: {providers: {x: {api_kye: k}}}",
            "harken.yaml:1:26: models.providers.x.api_kye: there is no such setting. Did you mean api_key?",
        ),
        (
            "store: mysql://x",
            "harken.yaml:1:8: store: there is no mysql store. "
            "Name a file, or postgresql://host/database, or redis://host/0",
        ),
        (
            "store: redis://",
            "harken.yaml:1:8: store: redis:// names no server. "
            "Name a file, or postgresql://host/database, or redis://host/0",
        ),
        ("shards: 0", "harken.yaml:1:9: shards: must be at least 1"),
        ("store: 3", "harken.yaml:1:8: store: must be text, not a number. Put quotes around it"),
        ("integrations: {x: {token: y}}", "harken.yaml:1:19: integrations.x.kind: is missing. Add kind:"),
        (
            "integrations: {x: {kind: json, token: y}}",
            "harken.yaml:1:32: integrations.x.token: json has no such setting. "
            "There are: allow_agents, allow_private_networks, backoff, base_url, kind, rate_limit",
        ),
        (
            "integrations: {x: {kind: pagerduty}}",
            "harken.yaml:1:19: integrations.x.token: is missing. Add token:, or run: harken integrations x configure",
        ),
        (
            "integrations: {x: {kind: json, rate_limit: fast}}",
            "harken.yaml:1:44: integrations.x.rate_limit: this is not a rate. "
            "Write calls per time, such as 10/s, 600/m or 5000/h",
        ),
        ("integrations: [x]", "harken.yaml:1:15: integrations: must be a mapping, not a list. Write key: value lines"),
        ("feeds: {x: }", "harken.yaml:1:12: feeds.x.integration: is missing. Add integration:"),
        (
            "feeds: {x: {integration: jsno}}",
            "harken.yaml:1:26: feeds.x.integration: there is no integration 'jsno'. Did you mean json?",
        ),
        (
            "feeds: {x: {integration: webhook}}",
            "harken.yaml:1:26: feeds.x.integration: webhook cannot be polled. "
            "Use another integration, or a webhook trigger",
        ),
        (
            "feeds: {x: {integration: pagerduty}}",
            "harken.yaml:1:26: feeds.x.integration: pagerduty has no account. "
            "Run: harken integrations pagerduty configure; or set PAGERDUTY_TOKEN",
        ),
        (
            "feeds: {harken: {integration: cron, query: {cron: x}}}",
            "harken.yaml:1:17: feeds.harken: this name is taken by Harken itself. Use another, without a slash",
        ),
        ("- a", "harken.yaml:1:1: must be a mapping, not a list. Write key: value lines"),
        ("hello", "harken.yaml:1:1: must be a mapping, not text. Write key: value lines"),
    ],
)
def test_wrong_settings_say_what_and_what_to_do(tmp_path: Path, text: str, line: str) -> None:
    assert line in lines(read(tmp_path, {"harken.yaml": text}).findings)


def test_a_wrong_section_blocks_the_start_and_its_siblings_are_read(tmp_path: Path) -> None:
    loaded = read(tmp_path, {"harken.yaml": "server: {port: x}\nlog: {level: debug}"})
    assert codes(loaded.blocking) == ["wrong_type"]
    assert loaded.settings.log.level == "debug"


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"a: [", b"\x00", b"", b"- a", b"name: 3\nsteps: []", b"steps: []"]
)
def test_a_file_that_is_no_workflow_is_refused_alone(tmp_path: Path, content: bytes) -> None:
    loaded = read(tmp_path, {"workflows/bad.yaml": content, "workflows/good.yaml": workflow("good")})
    assert set(loaded.workflows) == {"good"}
    assert list(loaded.refused) == ["file:workflows/bad.yaml"]


def test_a_workflow_with_a_bad_step_is_refused_by_name_at_the_step(tmp_path: Path) -> None:
    def check(definition: Any) -> list[Any]:
        flawed = [n for n, step in enumerate(definition["steps"]) if step["action"] == "lm"]
        return [
            Problem(path=("steps", n, "action"), message="no such action", suggestion="Did you mean llm?")
            for n in flawed
        ]

    files = {"workflows/a.yaml": workflow("a", steps="- {id: x, action: lm}"), "workflows/b.yaml": workflow("b")}
    loaded = read(tmp_path, files, check_workflow=check)
    assert lines(loaded.refused["workflow:a"]) == [
        "workflows/a.yaml:4:21: steps[0].action: no such action. Did you mean llm?"
    ]
    assert set(loaded.workflows) == {"b"}


def test_two_workflows_of_one_name_are_errors_at_both_places(tmp_path: Path) -> None:
    files = {
        "workflows/a.yaml": workflow("same"),
        "workflows/b.yaml": workflow("same"),
        "workflows/c.yaml": workflow("other"),
    }
    loaded = read(tmp_path, files)
    assert [(finding.file, finding.code) for finding in loaded.findings] == [
        ("workflows/a.yaml", "clash"),
        ("workflows/b.yaml", "clash"),
    ]
    assert set(loaded.workflows) == {"other"}


def test_two_webhooks_at_one_address_are_errors_at_both_places(tmp_path: Path) -> None:
    files = {
        "workflows/a.yaml": workflow("a", "webhook: {id: x}"),
        "workflows/b.yaml": workflow("b", "webhook: {id: x}"),
    }
    loaded = read(tmp_path, files)
    assert [(finding.file, finding.code) for finding in loaded.findings] == [
        ("workflows/a.yaml", "clash"),
        ("workflows/b.yaml", "clash"),
    ]
    assert not [feed for feed in loaded.feeds if feed.way == "push"]


def test_duplicate_feeds_refuse_only_that_feed(tmp_path: Path) -> None:
    feed = "{integration: json, query: {url: 'https://x'}}"
    text = f"feeds:\n  a: {feed}\n  b: {feed}\n  a: {{}}\n"
    loaded = read(tmp_path, {"harken.yaml": text})
    assert list(loaded.refused) == ["feed:a"]
    assert [feed.name for feed in loaded.feeds] == ["harken", "b"]


def test_what_needs_a_refused_item_is_refused_with_the_reason(tmp_path: Path) -> None:
    files = {
        "harken.yaml": "integrations: {pd: {kind: pagerduty}}\nfeeds: {f: {integration: pd}}",
        "workflows/a.yaml": workflow("a", "feed: f"),
        "workflows/b.yaml": workflow("b", "poll: {integration: pd, query: {user_id: x}}"),
    }
    loaded = read(tmp_path, files)
    assert set(loaded.refused) == {"integration:pd", "feed:f", "workflow:a", "workflow:b"}
    assert codes(loaded.refused["workflow:a"]) == ["depends"]


def test_links_that_lead_in_circles_and_odd_files_do_no_harm(tmp_path: Path) -> None:
    files = {
        "workflows/x.yaml/in.yaml": workflow("inner"),
        "workflows/deep/er/y.yml": workflow("deep"),
        "workflows/.z.yaml": "[",
        "workflows/t.txt": "[",
    }
    read(tmp_path, files)
    (tmp_path / "workflows/loop").symlink_to(tmp_path / "workflows")
    (tmp_path / "workflows/self.yaml").symlink_to("self.yaml")
    (tmp_path / "workflows/gone.yaml").symlink_to("nowhere")
    os.mkfifo(tmp_path / "workflows/pipe.yaml")
    loaded = read(tmp_path, {})
    assert set(loaded.workflows) == {"inner", "deep"}
    assert [(finding.file, finding.code) for finding in loaded.findings] == [
        ("workflows/gone.yaml", "unreadable"),
        ("workflows/pipe.yaml", "unreadable"),
        ("workflows/self.yaml", "unreadable"),
    ]


@pytest.mark.parametrize("link", ["workflows", "workflows/more"])
def test_directories_are_not_followed_out_of_the_tree(tmp_path: Path, link: str) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    read(elsewhere, {"a.yaml": workflow("a")})
    (home / link).parent.mkdir(parents=True)
    (home / link).symlink_to(elsewhere)
    loaded = read(home, {})
    assert [(finding.file, finding.code) for finding in loaded.findings] == [(link, "unreadable")]
    assert not loaded.workflows
    assert set(read(home, {"harken.yaml": "files: {allow: [../elsewhere]}"}).workflows) == {"a"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\n".join(f"k{number}: {number}" for number in range(300_000)), "more than 20,000 keys in one mapping"),
        (f"{{{', '.join(f'k{number}: 1' for number in range(300_000))}}}", "more than 20,000 keys in one mapping"),
        ("- {a: 1, b: 2, c: 3}\n" * 100_000, "more than 100,000 keys"),
    ],
    ids=["lines", "one line", "many mappings"],
)
def test_300_000_keys_are_refused_within_a_second(source: str, message: str) -> None:
    report = Report()
    with cpu_at_most(1):
        assert parse(source.encode(), "harken.yaml", report) is None
    assert [finding.message for finding in report.findings] == [message]


def test_workflows_that_is_a_file_is_reported(tmp_path: Path) -> None:
    assert codes(read(tmp_path, {"workflows": "x"}).findings) == ["unreadable"]


def test_harken_yaml_that_is_a_directory_blocks_the_start(tmp_path: Path) -> None:
    (tmp_path / "harken.yaml").mkdir()
    assert codes(read(tmp_path, {}).blocking) == ["unreadable"]


def test_a_plugin_whose_own_check_breaks_refuses_only_its_item(tmp_path: Path) -> None:
    from pydantic import BaseModel, field_validator

    from harken.source import Plugin
    from tests.config.makers import Built

    class Broken(BaseModel):
        x: int = 1

        @field_validator("x")
        @classmethod
        def _break(cls, value: int) -> int:
            raise KeyError(value)

    plugins = {**PLUGINS, "broken": Plugin(kind="broken", query=Broken, source=Built)}
    files = {
        "workflows/a.yaml": workflow("a", "poll: {integration: broken, query: {x: 2}}"),
        "workflows/b.yaml": workflow("b", poll()),
    }
    loaded = read(tmp_path, files, plugins=plugins)
    assert "KeyError" in lines(loaded.findings)[0]
    assert set(loaded.workflows) == {"b"}


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 99) | st.sampled_from(["5m", "json", "x", "${X}", "{{.a}}", "bad", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "trigger",
                    "poll",
                    "webhook",
                    "schedule",
                    "event",
                    "feed",
                    "api",
                    "type",
                    "query",
                    "integration",
                    "steps",
                    "interval",
                    "url",
                    "cron",
                    "every",
                    "at",
                    "gather",
                    "digest",
                    "condition",
                    "kind",
                    "startup",
                    "backfill",
                    "1",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    main=st.dictionaries(st.sampled_from(["server", "feeds", "integrations", "models", "store", "log", "x"]), _values),
    flow=_values,
)
def test_any_shape_gives_findings_and_no_traceback(tmp_path: Path, main: Any, flow: Any) -> None:
    import json

    loaded = read(tmp_path, {"harken.yaml": json.dumps(main), "workflows/w.yaml": json.dumps(flow)})
    assert loaded.generation

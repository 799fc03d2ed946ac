"""agentsmith.yml becomes trackers and projects: every key is taken over, or has a finding at its place."""

from __future__ import annotations

from typing import Any

import pytest

from harken.config.agentsmith import TranslatedConfig, as_yaml, translate
from harken.config.findings import Report
from harken.config.yaml.nodes import to_plain
from harken.config.yaml.parser import parse

INLINE = """\
projects:
  my-api:
    source: {type: GitHub, url: https://github.com/org/my-api, auth: token}
    tickets: {type: GitHub, url: https://github.com/org/my-api, auth: token}
    agent: {type: Claude, model: some-model}
    pipeline: fix-bug
    coding_principles_path: ./principles.md
    github_trigger:
      default_pipeline: fix-bug
      comment_keyword: "@agent-smith"
      pipeline_from_label:
        agent-smith: fix-bug
        security-review: security-scan
    polling: {enabled: true, interval_seconds: 30, jitter_percent: 15}
agent:
  queue: {max_parallel_jobs: 2, consume_block_seconds: 5, shutdown_grace_seconds: 30}
"""
CATALOGS = """\
secrets: {jira_token: "${JIRA_TOKEN}", hook: "${HOOK}"}
agents: {claude: {type: claude}}
repos:
  shop: {type: github, url: https://github.com/acme/shop, auth: github_token, default_branch: trunk}
connections:
  gh: {type: github, owner: acme, auth: github_token}
  ado: {type: azure_devops, organization: acme, project: Web, auth: pat}
trackers:
  board:
    type: jira
    url: https://jira.acme.example
    project: TL
    auth: jira_token
    endpoints: {search: /x}
    polling: {enabled: true}
pipeline_triggers: {fix: fix-bug}
queue: {max_parallel_jobs: 8}
projects:
  shop: {agent: claude, tracker: board, repos: [shop, gh/other], resolution: {tag: shop}, pipelines: [fix-bug]}
  api: {agent: claude, tracker: board, repos: [gh/api]}
  web: {agent: claude, tracker: board, repos: [{repo: ado/site, default_branch: dev}]}
  many: {agent: claude, tracker: board, repos: ["gh/api-*"]}
  older:
    tracker: board
    jira_trigger:
      project_resolution: {strategy: Area_Path, value: 'Shop\\Web'}
      assignee_name: Agent Smith
"""


def translated(text: str) -> TranslatedConfig:
    report = Report()
    tree = parse(text.encode(), "agentsmith.yml", report)
    assert tree is not None
    assert report.findings == []
    return translate(tree)


def left_out(found: TranslatedConfig) -> list[str]:
    return [f"{one.line} {'.'.join(map(str, one.path))}" for one in found.findings]


def test_what_both_have_is_taken_over_as_it_is_and_the_labels_keep_their_prefix() -> None:
    found = translated(INLINE)
    assert found.values == {
        "label_prefix": "agent-smith",
        "agent": {"queue": {"max_parallel_jobs": 2, "consume_block_seconds": 5, "shutdown_grace_seconds": 30}},
        "projects": {
            "my-api": {
                "tickets": {"type": "GitHub", "url": "https://github.com/org/my-api", "auth": "token"},
                "source": {"type": "GitHub", "url": "https://github.com/org/my-api"},
                "pipeline": "fix-bug",
                "polling": {"enabled": True, "interval_seconds": 30, "jitter_percent": 15},
                "github_trigger": {
                    "pipeline_from_label": {"agent-smith": "fix-bug", "security-review": "security-scan"},
                    "default_pipeline": "fix-bug",
                },
            }
        },
    }
    assert found.pipelines == ("fix-bug", "security-scan")


def test_what_is_not_taken_over_has_a_finding_at_its_place_that_says_what_to_do() -> None:
    found = translated(INLINE)
    assert left_out(found) == [
        "5 projects.my-api.agent",
        "7 projects.my-api.coding_principles_path",
        "10 projects.my-api.github_trigger.comment_keyword",
    ]
    assert all(one.severity == "warning" and one.fix for one in found.findings)


def test_entries_of_catalogs_are_put_where_they_are_used() -> None:
    values = translated(CATALOGS).values
    assert values["trackers"]["board"] == {
        "type": "jira",
        "url": "https://jira.acme.example",
        "project": "TL",
        "polling": {"enabled": True},
        "auth": "token",
        "token": "${JIRA_TOKEN}",
    }
    assert values["pipeline_from_label"] == {"fix": "fix-bug"}
    assert values["agent"] == {"queue": {"max_parallel_jobs": 8}}
    shop = {"type": "github", "url": "https://github.com/acme/shop", "default_branch": "trunk"}
    assert values["projects"]["shop"] == {"tracker": "board", "source": shop, "resolution": {"tag": "shop"}}
    assert values["projects"]["api"]["source"] == {"type": "github", "url": "https://github.com/acme/api"}
    assert values["projects"]["web"]["source"] == {
        "type": "azure_devops",
        "url": "https://dev.azure.com/acme/Web/_git/site",
        "default_branch": "dev",
    }
    assert "source" not in values["projects"]["many"]
    assert values["projects"]["older"]["resolution"] == {"area_path": "Shop\\Web"}


def test_further_repositories_patterns_and_ways_that_we_lack_are_told() -> None:
    found = left_out(translated(CATALOGS))
    for expected in (
        "2 agents",
        "14 trackers.board.endpoints",
        "19 projects.shop.agent",
        "19 projects.shop.pipelines",
        "19 projects.shop.repos.1",
        "22 projects.many.repos.0",
        "27 projects.older.jira_trigger.assignee_name",
    ):
        assert expected in found


def test_a_secret_of_a_webhook_goes_to_its_tracker() -> None:
    text = "secrets: {hook: '${HOOK}'}\nprojects:\n  a:\n    tickets: {type: jira, project: A}\n    jira_trigger: "
    assert translated(text + "{secret: hook}").values["projects"]["a"]["tickets"]["webhook_secret"] == "${HOOK}"
    elsewhere = "projects:\n  a:\n    tracker: board\n    jira_trigger: {secret: x}\n"
    assert left_out(translated(elsewhere)) == ["4 projects.a.jira_trigger.secret"]


def test_the_yaml_reads_back_as_the_same_values() -> None:
    for text in (INLINE, CATALOGS):
        found = translated(text)
        tree = parse(as_yaml(found).encode(), "harken.yaml", Report())
        assert tree is not None
        assert to_plain(tree) == found.values


@pytest.mark.parametrize(
    ("text", "told"),
    [("a: 1\n", "there is no projects: section"), ("- a\n", ""), ("projects:\n  a: 7\n", "")],
)
def test_a_file_of_another_shape_is_told_and_breaks_nothing(text: str, told: str) -> None:
    found = translated(text)
    assert found.findings
    assert any(told in one.message for one in found.findings)


@pytest.mark.parametrize("value", [7, None, [], {"a": 1}, "x", True])
@pytest.mark.parametrize("name", ["projects", "trackers", "secrets", "repos", "connections", "queue", "agent"])
def test_a_section_of_another_type_breaks_nothing(name: str, value: Any) -> None:
    import json

    translated(json.dumps({"projects": {"a": {"tracker": "t"}}, name: value}))
    translated(
        json.dumps({"projects": {"a": {"tracker": value, "repos": value, "resolution": value, "tickets": value}}})
    )

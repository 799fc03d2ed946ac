"""pollers.yaml: every field has its default, a bad job is refused alone, and all that is wrong is told at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest

from harken.config.reload_plan import carry_over, plan
from harken.feed import Spacing
from harken.schedule import At, Cron, Every
from tests.system.pollers.job_files import MAIN, TOKEN, job, jobs, lines, load


def test_the_seed_s_own_example_loads(tmp_path: Path) -> None:
    pollers = """
    pollers:
      enabled: true
      default_jitter_ms: 5000
      lease_ttl_factor: 2.0
      failure_alert_cooldown_secs: 3600
      breaker_threshold: 5
      jobs:
        - id: ana_blog_watch
          kind: rss
          agent: ana
          schedule: { every_secs: 600 }
          config:
            feed_url: https://example.com/feed.xml
            max_per_tick: 5
            message_template: "{title}\\n{link}"
            deliver: { channel: telegram, to: "1194292426" }
        - id: ana_jira_assigned
          kind: webhook_poll
          agent: ana
          schedule:
            cron: "0 */5 * * * *"
            tz: "America/Bogota"
            stagger_jitter_ms: 2000
          config:
            url: https://company.atlassian.net/rest/api/3/search
            method: GET
            headers:
              Authorization: "Bearer ${JIRA_TOKEN}"
              Accept: "application/json"
            items_path: "issues"
            id_field: "id"
            max_per_tick: 10
            message_template: "[{key}] {fields}"
            deliver: { channel: telegram, to: "1194292426" }
    """
    loaded = load(tmp_path, {"JIRA_TOKEN": "jira-token-0123456789"}, pollers=pollers)
    assert loaded.findings == ()
    assert {name: found.kind for name, found in loaded.jobs.items()} == {
        "ana_blog_watch": "rss",
        "ana_jira_assigned": "webhook_poll",
    }
    assert "jira-token-0123456789" not in repr(loaded.jobs) + repr(loaded.feeds) + repr(loaded.workflows)


def test_a_job_becomes_a_feed_a_trigger_and_a_workflow(tmp_path: Path) -> None:
    loaded = load(tmp_path, pollers=jobs(job(failure_to="{channel: telegram, to: 42}")))
    feed = next(feed for feed in loaded.feeds if feed.name == "poller/blog")
    assert (feed.schedule, feed.added_jitter, feed.jitter, feed.breaker) == (Every(seconds=600.0), 5.0, 0.0, 5)
    assert (feed.first, feed.tick_timeout) == ("baseline", 1_200.0)
    mine, alert = loaded.triggers
    assert (mine.name, mine.feed, mine.workflow, mine.spacing) == ("blog", "poller/blog", "blog", Spacing(per_tick=5))
    told = ("feed.opened", "feed.paused", "feed.recovered", "runs.held", "runs.dead", "runs.recovered")
    assert (alert.name, alert.types) == ("blog/alert", told)
    [step] = loaded.workflows["blog"].definition["steps"]
    assert (step["action"], step["channel"], step["to"]) == ("notify", "telegram", "1")


def test_every_default_is_in_the_settings_of_a_job(tmp_path: Path) -> None:
    loaded = load(tmp_path, pollers=jobs(job()))
    assert loaded.jobs["blog"].settings == {
        "id": "blog",
        "kind": "rss",
        "agent": "ana",
        "schedule": {"every_secs": 600.0, "stagger_jitter_ms": 5_000},
        "config": {
            "feed_url": "https://example.com/f.xml",
            "type": "rss.entry",
            "allow_private_networks": False,
            "max_per_tick": 5,
            "dispatch_delay_ms": 0,
            "message_template": "{title}\n{link}",
            "first": "baseline",
            "identity": "once",
            "deliver": {"channel": "telegram", "to": "1"},
        },
        "failure_to": None,
        "paused_on_boot": False,
    }


def test_settings_for_all_jobs_reach_each_of_them(tmp_path: Path) -> None:
    settings = "  default_jitter_ms: 100\n  breaker_threshold: 2\n  lease_ttl_factor: 0.01\n"
    feed = load(tmp_path, pollers=jobs(job(), settings=settings)).feeds[-1]
    assert (feed.added_jitter, feed.breaker, feed.tick_timeout) == (0.1, 2, 30.0)


@pytest.mark.parametrize(
    ("written", "schedule"),
    [
        ("{cron: '0 */5 * * * *', tz: America/New_York}", Cron(expression="0 */5 * * * *", tz="America/New_York")),
        ("{cron: '*/15 * * * *'}", Cron(expression="*/15 * * * *")),
        ("{at: '2026-04-26T15:00:00Z'}", At(instant=datetime(2026, 4, 26, 15, tzinfo=UTC))),
        ("{every_secs: 60, stagger_jitter_ms: 0}", Every(seconds=60.0)),
        ("{every: 15m}", Every(seconds=900.0)),
        ("'*/15 * * * *'", Cron(expression="*/15 * * * *")),
    ],
)
def test_a_schedule_is_an_interval_a_cron_line_or_an_instant(tmp_path: Path, written: str, schedule: object) -> None:
    assert load(tmp_path, pollers=jobs(job(schedule=written))).feeds[-1].schedule == schedule


def test_a_job_may_be_written_in_the_words_of_a_workflow(tmp_path: Path) -> None:
    pollers = """
    pollers:
      jobs:
        - id: blog
          integration: rss
          schedule: {every: 10m}
          config: {feed_url: 'https://example.com/f.xml', message_template: '{title}'}
          deliver: {channel: telegram, to: '1'}
    agents: {ana: {telegram: telegram}}
    """
    loaded = load(tmp_path, pollers=pollers)
    assert lines(loaded) == []
    old = "{feed_url: 'https://example.com/f.xml', message_template: '{title}', deliver: {channel: telegram, to: '1'}}"
    other = tmp_path / "old"
    other.mkdir()
    agents = "agents: {ana: {telegram: telegram}}\n"
    assert loaded.jobs == load(other, pollers=jobs(job(config=old)) + agents).jobs


ACCOUNTS = f"""
integrations:
  telegram: {{kind: telegram, token: '{TOKEN}'}}
  pd: {{kind: pagerduty, token: abcdef}}
  ana-google: {{kind: google, client_id: a, client_secret: b, refresh_token: c}}
"""
DELIVER = "{channel: telegram, to: '1'}"


def test_an_integration_of_a_job_is_an_account_by_its_name(tmp_path: Path) -> None:
    written = f"{{id: oncall, integration: pd, agent: ana, schedule: {{every: 1m}}, deliver: {DELIVER}}}"
    loaded = load(tmp_path, main=ACCOUNTS, pollers=jobs(written))
    feed = next(feed for feed in loaded.feeds if feed.name == "poller/oncall")
    assert (loaded.jobs["oncall"].kind, feed.kind, feed.integration) == ("pagerduty", "pagerduty", "pd")


def test_kind_and_integration_may_both_be_given_and_must_agree(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        main=ACCOUNTS,
        pollers=jobs(
            job("fine", integration="rss"),
            job("other", integration="pd"),
            f"{{id: typo, integration: pdd, agent: ana, schedule: {{every: 1m}}, deliver: {DELIVER}}}",
            f"{{id: google, integration: ana-google, agent: ana, schedule: {{every: 1m}}, deliver: {DELIVER}}}",
            f"{{id: none, agent: ana, schedule: {{every: 1m}}, deliver: {DELIVER}}}",
        ),
    )
    assert list(loaded.jobs) == ["fine"]
    assert lines(loaded) == [
        "4:1.integration: pd is an integration of pagerduty, not of rss",
        "5:2.integration: there is no integration 'pdd'",
        "6:3.integration: google cannot be polled",
        "7:4.kind: is missing",
    ]
    assert "kind: gmail" in loaded.findings[2].fix


def test_deliver_stands_in_config_or_beside_it_but_not_in_both(tmp_path: Path) -> None:
    loaded = load(tmp_path, pollers=jobs(job(deliver=DELIVER)))
    assert lines(loaded) == ["3:0.deliver: stands in config: as well"]


@pytest.mark.parametrize(
    ("agents", "other", "expected"),
    [
        ("agents: {bea: {telegram: telegram}}\n", "", "bea"),
        ("", "ana", "ana"),
        ("agents: {ana: {telegram: telegram}, bea: {telegram: telegram}}\n", "ana", None),
        ("", "", None),
    ],
    ids=["the only one that is listed", "the only one that a job names", "two are listed", "none at all"],
)
def test_the_agent_may_be_left_out_when_there_is_one(
    tmp_path: Path, agents: str, other: str, expected: str | None
) -> None:
    entries = [job("mine").replace("agent: ana, ", ""), *([job("other", agent=other)] if other else [])]
    loaded = load(tmp_path, pollers=jobs(*entries) + agents)
    assert (loaded.jobs["mine"].agent if "mine" in loaded.jobs else None) == expected
    assert lines(loaded) == ([] if expected else ["3:0.agent: is missing"])


def test_a_template_of_a_job_that_cannot_be_read_is_found_at_load(tmp_path: Path) -> None:
    config = (
        "{feed_url: 'https://x.y/z', message_template: '{{.trigger.event.title', deliver: {channel: telegram, to: 1}}"
    )
    (line,) = lines(load(tmp_path, pollers=jobs(job(config=config))))
    assert "{{" in line


def test_a_typo_refuses_its_job_alone_by_name_and_place(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        pollers=jobs(
            job("good"),
            job("kind", kind="rs"),
            job("when", schedule="{every: 60}"),
            job("often", schedule="{every_secs: 2}"),
            job("zone", schedule="{cron: '0 9 * * *', tz: Mars/Olympus}"),
            job("two", schedule="{every_secs: 60, at: '2026-04-26T15:00:00Z'}"),
            job("where", config="{feed_url: 'https://x.y/z', deliver: {chanel: telegram, to: '1'}}"),
            job("nowhere", config="{feed_url: 'https://x.y/z'}"),
            job("message", config="{feed_url: 'https://x.y/z', mesage: a, deliver: {channel: telegram, to: '1'}}"),
            job("out", config="{feed_url: 'https://x.y/z', deliver: {channel: rss, to: '1'}}"),
            "just text",
        ),
    )
    assert list(loaded.jobs) == ["good"]
    assert lines(loaded) == [
        "4:1.kind: there is no kind 'rs'",
        "5:2.schedule.every: a duration needs a unit",
        "6:3.schedule: rss may not be read that often",
        "7:4.schedule.cron: there is no time zone 'Mars/Olympus'",
        "8:5.schedule: a schedule is one of every_secs, every, cron and at",
        "9:6.config.deliver.channel: is missing",
        "9:6.config.deliver.chanel: there is no such setting",
        "10:7.config.deliver: is missing",
        "11:8.config.mesage: there is no such setting",
        "12:9.config.deliver.channel: 'rss' cannot deliver messages",
        "13:10: must be a mapping, not text",
    ]
    assert [found.fix for found in loaded.findings[:1]] == ["Did you mean rss?"]
    assert "poller:kind" in loaded.refused


def test_another_mistake_says_nothing_about_how_often_this_machine_may_be_read(tmp_path: Path) -> None:
    near = "{feed_url: 'http://127.0.0.1:1/f.xml', mesage: a, deliver: {channel: telegram, to: '1'}}"
    loaded = load(tmp_path, pollers=jobs(job(schedule="{every_secs: 1}", config=near)))
    assert lines(loaded) == ["3:0.config.mesage: there is no such setting"]


def test_a_job_without_an_agent_is_told_of_everything_else_as_well(tmp_path: Path) -> None:
    wrong = "{feedurl: 'https://x.y/z', deliver: {chanel: telegram, to: '1'}}"
    rows = jobs(f"{{id: a, kind: rss, schedule: {{every: 60}}, config: {wrong}}}")
    assert sorted(lines(load(tmp_path, pollers=rows))) == [
        "3:0.agent: is missing",
        "3:0.config.deliver.chanel: there is no such setting",
        "3:0.config.deliver.channel: is missing",
        "3:0.config.feed_url: is missing",
        "3:0.config.feedurl: there is no such setting",
        "3:0.schedule.every: a duration needs a unit",
    ]


def test_a_wrong_setting_for_all_hides_nothing_that_is_wrong_with_a_job(tmp_path: Path) -> None:
    loaded = load(tmp_path, pollers=jobs(job("good"), job("kind", kind="rs"), settings="  breaker_treshold: 3\n"))
    assert not loaded.jobs
    assert lines(loaded) == ["2:: there is no such setting", "5:1.kind: there is no kind 'rs'"]


def test_a_channel_whose_integration_was_refused_is_not_unknown(tmp_path: Path) -> None:
    out = "{feed_url: 'https://x.y/z', deliver: {channel: tg, to: '1'}}"
    loaded = load(
        tmp_path, main="integrations: {tg: {kind: telegram, token: nonsense}}\n", pollers=jobs(job(config=out))
    )
    assert lines(loaded)[-1] == "3:0.config.deliver.channel: the integration tg was refused"


@pytest.mark.parametrize("id", ["'a b'", "_a", "'a/b'", "é", f"{'x' * 121}"])
def test_an_id_that_cannot_be_one_is_told_in_words(tmp_path: Path, id: str) -> None:
    assert "an id has up to 120 letters" in lines(load(tmp_path, pollers=jobs(job(id))))[0]


def test_the_nearest_kind_may_be_one_of_its_other_names(tmp_path: Path) -> None:
    loaded = load(tmp_path, pollers=jobs(job(kind="webhook_pol")))
    assert [found.fix for found in loaded.findings] == ["Did you mean webhook_poll?"]


def test_an_id_that_stands_twice_is_an_error_at_both_places(tmp_path: Path) -> None:
    loaded = load(tmp_path, pollers=jobs(job("a"), job("b"), job("a")))
    assert list(loaded.jobs) == ["b"]
    assert lines(loaded) == [
        "3:0.id: the id a is taken by pollers.yaml:5 as well",
        "5:2.id: the id a is taken by pollers.yaml:3 as well",
    ]


def test_an_alias_of_a_whole_job_is_an_id_that_stands_twice(tmp_path: Path) -> None:
    loaded = load(tmp_path, pollers=f"pollers:\n  jobs:\n    - &a {job('a')}\n    - *a\n    - {job('b')}\n")
    assert list(loaded.jobs) == ["b"]
    assert [(found.line, found.message) for found in loaded.refused["poller:a"]] == 2 * [
        (3, "the id a is taken by pollers.yaml:3 as well")
    ]


def test_a_workflow_and_a_job_cannot_have_one_name(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    tmp_path.joinpath("workflows", "blog.yaml").write_text("name: blog\nsteps: []\n")
    loaded = load(tmp_path, pollers=jobs(job()))
    assert (dict(loaded.jobs), dict(loaded.workflows), loaded.triggers) == ({}, {}, ())
    assert {"poller:blog", "workflow:blog"} <= set(loaded.refused)


def test_jobs_may_stand_in_both_files(tmp_path: Path) -> None:
    loaded = load(tmp_path, main=MAIN + jobs(job("a")), pollers=jobs(job("b"), settings="  breaker_threshold: 7\n"))
    assert (sorted(loaded.jobs), {feed.breaker for feed in loaded.feeds[1:]}) == (["a", "b"], {7})


def test_settings_may_stand_in_one_file_only(tmp_path: Path) -> None:
    settings = "  breaker_threshold: 7\n"
    loaded = load(tmp_path, main=MAIN + jobs(settings=settings), pollers=jobs(settings=settings))
    assert [found.code for found in loaded.findings] == ["duplicate"]


def test_without_a_section_there_are_no_pollers(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert (loaded.pollers, dict(loaded.jobs)) == (None, {})


def test_switched_off_nothing_of_it_runs(tmp_path: Path) -> None:
    loaded = load(tmp_path, pollers=jobs(job(), settings="  enabled: false\n"))
    assert (loaded.pollers, dict(loaded.jobs), loaded.triggers) == (None, {}, ())


def test_a_secret_that_is_written_into_an_address_is_known_and_not_kept(tmp_path: Path) -> None:
    where = "http://bob:pa%2Fss@x.y/z?q=a%20b&key=NEWS&api_token=lit-0123456789"
    config = f"{{feed_url: '{where}', deliver: {{channel: webhook, to: 'https://a.b/c?access_token=hook-0123456789'}}}}"
    loaded = load(tmp_path, pollers=jobs(job("a", config=config)))
    kept = "http://bob:**********@x.y/z?q=a%20b&key=NEWS&api_token=**********"
    [feed] = [feed for feed in loaded.feeds if feed.name == "poller/a"]
    assert (feed.query["feed_url"], loaded.jobs["a"].settings["config"]["feed_url"]) == (kept, kept)
    assert loaded.queries["poller/a"].model_dump()["feed_url"] == where
    assert loaded.secrets >= {"pa/ss", "lit-0123456789", "hook-0123456789"}


def test_a_secret_in_a_header_or_a_variable_is_known_by_its_name(tmp_path: Path) -> None:
    headers = "{PRIVATE-TOKEN: glpat-0123456789, X-Sort-Key: updated_at, Accept: application/vnd.x+json2}"
    config = f"{{url: 'https://x.y/z', headers: {headers}, deliver: {{channel: telegram, to: '1'}}}}"
    loaded = load(tmp_path, pollers=jobs(job("a", kind="webhook_poll", config=config)))
    assert {value for value in loaded.secrets if value in headers} == {"glpat-0123456789"}


def test_what_is_told_of_a_job_does_not_grow_with_what_it_says(tmp_path: Path) -> None:
    long = 200_000 * "x"
    loaded = load(tmp_path, pollers=jobs(job(long, kind=long), job("b")))
    assert (list(loaded.refused), list(loaded.jobs)) == (["poller:pollers.yaml:3"], ["b"])
    assert max(len(str(found)) for found in loaded.findings) < 2_000


def test_a_job_without_a_kind_is_told(tmp_path: Path) -> None:
    loaded = load(tmp_path, pollers=jobs(job("a", kind="''"), job("b")))
    assert ([(found.line, found.path[-1]) for found in loaded.findings], list(loaded.jobs)) == ([(3, "kind")], ["b"])


class TestWhereStateIsKept:
    def test_state_db_names_the_file_when_nothing_else_does(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, pollers=jobs(settings="  state_db: ./data/poller.db\n"))
        assert loaded.store == str(tmp_path / "data/poller.db")

    def test_a_file_that_names_the_store_and_cannot_be_read_lets_nothing_start_on_another(self, tmp_path: Path) -> None:
        good = jobs(job(), settings="  state_db: ./data/poller.db\n")
        old, broken = load(tmp_path, pollers=good), load(tmp_path, pollers=good + "  : [")
        assert [found.message for found in broken.blocking] == ["it names the store, and cannot be read"]
        assert carry_over(old, broken).store == old.store

    def test_a_file_that_cannot_be_read_and_names_no_store_blocks_nothing(self, tmp_path: Path) -> None:
        assert not load(tmp_path, pollers=jobs(job()) + "  : [").blocking

    def test_a_store_wins_with_a_warning(self, tmp_path: Path) -> None:
        settings = "  state_db: ./data/poller.db\n"
        loaded = load(tmp_path, main=MAIN + "store: mine.db\n", pollers=jobs(settings=settings))
        assert loaded.store == str(tmp_path / "mine.db")
        assert [(found.severity, found.code) for found in loaded.findings] == [("warning", "ignored")]


class TestAgents:
    ACCOUNTS = """
    integrations:
      tg-ana: {kind: telegram, token: '123456:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghi', allow_agents: [ana]}
      tg-all: {kind: telegram, token: '654321:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghi'}
    agents:
      ana: {telegram: tg-ana}
      bob: {telegram: tg-all}
      eve: {}
    """

    def test_an_agent_s_messages_go_through_its_own_account(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, main=self.ACCOUNTS, pollers=jobs(job("a"), job("b", agent="bob")))
        assert loaded.findings == ()
        assert {name: found.deliver.integration for name, found in loaded.jobs.items()} == {
            "a": "tg-ana",
            "b": "tg-all",
        }

    def test_an_agent_without_an_account_delivers_nothing(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, main=self.ACCOUNTS, pollers=jobs(job("e", agent="eve")))
        assert lines(loaded) == ["3:0.config.deliver.channel: the agent eve has no account of telegram"]

    def test_an_agent_that_is_not_there_is_told_once(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, main=self.ACCOUNTS, pollers=jobs(job("x", agent="anna")))
        assert [(found.message, found.fix) for found in loaded.findings] == [
            ("there is no agent 'anna'", "Did you mean ana?")
        ]

    @pytest.mark.parametrize("everybody", ["'*'", "['*']", "[bob, '*']"])
    def test_an_integration_may_be_for_everybody(self, tmp_path: Path, everybody: str) -> None:
        main = self.ACCOUNTS.replace("[ana]", everybody)
        assert load(tmp_path, main=main, pollers=jobs(job("a"))).findings == ()

    def test_an_integration_may_be_for_some_agents_only(self, tmp_path: Path) -> None:
        config = "{feed_url: 'https://x.y/z', deliver: {channel: tg-ana, to: '1'}}"
        loaded = load(tmp_path, main=self.ACCOUNTS, pollers=jobs(job("b", agent="bob", config=config)))
        assert lines(loaded) == ["3:0.config.deliver.channel: the integration tg-ana is not for the agent bob"]

    def test_a_binding_that_leads_nowhere_is_told(self, tmp_path: Path) -> None:
        wrong = "  zoe: {telegram: tg-zoe}\n  pat: {telegrm: tg-all}\n  ida: {slack: tg-all}\n"
        main = dedent(self.ACCOUNTS) + wrong
        loaded = load(tmp_path, main=main)
        assert [found.message for found in loaded.findings] == [
            "there is no integration 'tg-zoe'",
            "there is no service 'telegrm'",
            "tg-all is an integration of telegram, not of slack",
        ]

    def test_an_account_by_its_name_is_for_agents_that_are_bound_to_it_or_named_by_it(self, tmp_path: Path) -> None:
        through = "{{feed_url: 'https://x.y/z', deliver: {{channel: {}, to: '1'}}}}".format
        written = (job("own", config=through("tg-ana")), job("other", config=through("tg-all")))
        loaded = load(tmp_path, main=self.ACCOUNTS, pollers=jobs(*written))
        assert lines(loaded) == ["4:1.config.deliver.channel: the agent ana is not bound to tg-all"]
        main = self.ACCOUNTS.replace("allow_agents: [ana]", "allow_agents: [ana, eve]")
        loaded = load(tmp_path, main=main, pollers=jobs(job("e", agent="eve", config=through("tg-ana"))))
        assert loaded.findings == ()

    def test_an_agent_that_stands_in_both_files_has_no_account(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, main=self.ACCOUNTS, pollers="agents: {ana: {telegram: tg-all}}\n" + jobs(job("a")))
        assert [found.message for found in loaded.findings] == [
            "the agent ana stands in harken.yaml as well",
            "the agent ana was refused",
        ]

    def test_a_binding_with_a_typo_sends_nothing_through_everybody_s_account(self, tmp_path: Path) -> None:
        main = "integrations: {mine: {kind: ntfy, token: tk_1}}\nagents: {ana: {ntfyy: mine}}\n"
        config = "{feed_url: 'https://x.y/z', deliver: {channel: ntfy, to: private}}"
        loaded = load(tmp_path, main=main, pollers=jobs(job("a", config=config)))
        assert dict(loaded.jobs) == {}
        assert [found.message for found in loaded.findings] == [
            "there is no service 'ntfyy'",
            "the agent ana was refused",
        ]

    def test_a_bad_binding_refuses_only_the_jobs_that_need_it(self, tmp_path: Path) -> None:
        main = self.ACCOUNTS.replace("ana: {telegram: tg-ana}", "ana: {telegram: tg-ana, slack: tg-all}")
        loaded = load(tmp_path, main=main, pollers=jobs(job("a")))
        assert (list(loaded.jobs), list(loaded.refused)) == (["a"], ["agent:ana"])

    def test_a_service_without_accounts_needs_no_binding(self, tmp_path: Path) -> None:
        config = "{feed_url: 'https://x.y/z', deliver: {channel: webhook, to: 'https://a.b/c'}}"
        loaded = load(tmp_path, main=self.ACCOUNTS, pollers=jobs(job("e", agent="eve", config=config)))
        assert loaded.findings == ()


class TestReload:
    def test_a_job_is_one_item_of_the_plan(self, tmp_path: Path) -> None:
        failing = job("b", failure_to="{channel: telegram, to: 42}")
        old = load(tmp_path, pollers=jobs(job("a"), failing, job("gone")))
        new = load(
            tmp_path, pollers=jobs(job("a", schedule="{every_secs: 60}"), failing, job("new"), job("typo", kind="x"))
        )
        made = plan(old, new)
        assert (made.add, made.replace, made.remove) == (("poller:new",), ("poller:a",), ("poller:gone",))
        assert "poller:b" in made.keep
        assert made.refused == ("poller:typo",)

    def test_a_job_that_was_edited_into_a_typo_goes_on_as_it_was(self, tmp_path: Path) -> None:
        old = load(tmp_path, pollers=jobs(job("a", failure_to="{channel: telegram, to: 42}"), job("b")))
        new = load(tmp_path, pollers=jobs(job("a", kind="rsss"), job("b")))
        after = carry_over(old, new)
        assert after.jobs["a"] == old.jobs["a"]
        assert {trigger.name for trigger in after.triggers} == {"a", "a/alert", "b"}
        assert "poller/a" in {feed.name for feed in after.feeds}

    def test_a_job_whose_account_was_taken_away_ends(self, tmp_path: Path) -> None:
        mine = TestAgents.ACCOUNTS.replace("allow_agents: [ana]", "allow_agents: [bob]")
        old = load(tmp_path, main=TestAgents.ACCOUNTS, pollers=jobs(job("a")))
        new = load(tmp_path, main=mine, pollers=jobs(job("a")))
        after, made = carry_over(old, new), plan(old, new)
        assert (dict(after.jobs), after.triggers) == ({}, ())
        assert (made.remove, made.notes) == (("poller:a",), ("agent:ana: refused, so its old version stays",))

    def test_when_the_whole_file_is_broken_all_its_jobs_go_on(self, tmp_path: Path) -> None:
        old = load(tmp_path, pollers=jobs(job("a"), job("b")))
        after = carry_over(old, load(tmp_path, pollers="pollers: [\n"))
        assert replace(after, findings=(), refused={}, origins=old.origins) == replace(old, findings=(), refused={})

    def test_a_wrong_setting_keeps_the_old_settings_and_jobs(self, tmp_path: Path) -> None:
        old = load(tmp_path, pollers=jobs(job("a"), settings="  breaker_threshold: 9\n"))
        after = carry_over(old, load(tmp_path, pollers=jobs(job("a"), settings="  breaker_threshold: many\n")))
        assert (after.pollers, list(after.jobs)) == (old.pollers, ["a"])

    def test_a_file_that_is_gone_ends_its_jobs(self, tmp_path: Path) -> None:
        old = load(tmp_path, pollers=jobs(job("a")))
        tmp_path.joinpath("pollers.yaml").unlink()
        after = carry_over(old, load(tmp_path))
        assert (after.pollers, dict(after.jobs), after.triggers) == (None, {}, ())

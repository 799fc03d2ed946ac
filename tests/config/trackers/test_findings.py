"""What is wrong with trackers and projects is told with its place, and disables nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from harken.config.files import read_tree
from harken.config.findings import Place, Report
from harken.config.interpolate import Lookup
from harken.config.resolver import Resolver
from harken.config.settings import Settings
from harken.config.trackers.project_from_spec import Known
from harken.config.trackers.read import Section, Taken, read_tickets
from harken.config.yaml.nodes import Table
from harken.runs import Workflow
from harken.services import registry
from tests.config.trackers.makers import TOKENS, found, read

TRACKER = "trackers:\n  acme: {type: github, organization: acme, polling: {enabled: true}}\n"
GOOD = "  good: {tracker: acme, resolution: {repo: good}, pipeline: fix-bug}\n"


@pytest.mark.parametrize(
    ("project", "line"),
    [
        (
            "{tracker: acme, resolution: {repo: x}, pipeline: fix-bugs}",
            "projects.bad.pipeline: there is no workflow 'fix-bugs' for this pipeline. Did you mean fix-bug?",
        ),
        (
            "{tracker: acme, resolution: {repo: x}, pipeline_from_label: {fix: fixbug}}",
            "projects.bad.pipeline_from_label.fix: there is no workflow 'fixbug' for this pipeline. "
            "Did you mean fix-bug?",
        ),
        (
            "{tracker: acme, resolution: {repo: x}, github_trigger: {default_pipeline: nope}}",
            "projects.bad.github_trigger.default_pipeline: there is no workflow 'nope' for this pipeline. "
            "There are: fix-bug, security-scan",
        ),
        (
            "{tracker: acmee, pipeline: fix-bug}",
            "projects.bad.tracker: there is no tracker 'acmee'. Did you mean acme?",
        ),
        (
            "{tracker: acme, pipeline: fix-bug}",
            "projects.bad: its repository is not known. Add source: {url: …}, or resolution: {repo: owner/name}",
        ),
        (
            "{tracker: acme, source: {url: 'https://git.example.com/acme/x'}, pipeline: fix-bug}",
            "projects.bad.source.url: names no repository at https://api.github.com, where the tracker is, "
            "so it is not known whose tickets these are. Add resolution: {repo: owner/name}",
        ),
        (
            "{tracker: acme, resolution: {repo: x, area_path: Shop}, pipeline: fix-bug}",
            "projects.bad.resolution.area_path: a ticket of github has no area. Use tag",
        ),
        (
            "{pipeline: fix-bug}",
            "projects.bad: says nothing about its tickets. "
            "Add tracker: with the name of one, or tickets: {type: …, url: …}",
        ),
        (
            "{tracker: acme, tickets: {type: github, url: 'https://github.com/a/b'}, pipeline: fix-bug}",
            "projects.bad: has tracker: and tickets:. Keep one of them",
        ),
        (
            "{tracker: acme, resolution: {repo: x}, pipeline: fix-bug, pollling: {}}",
            "projects.bad.pollling: there is no such setting. Did you mean polling?",
        ),
        (
            "{tracker: acme, resolution: {repo: x}, pipeline: fix-bug, polling: {enabled: true, interval_seconds: 2}}",
            "projects.bad.polling.interval_seconds: github may not be read that often. Read it every 10s at most",
        ),
        (
            "{tracker: acme, resolution: {repo: x}, pipeline_from_label: {'HARKEN:Done': fix-bug}}",
            "projects.bad.pipeline_from_label.HARKEN:Done: HARKEN:Done is a label by which tickets show where their "
            "run is. Choose another, or another label_prefix",
        ),
        (
            "{tracker: acme, resolution: {repo: x}, pipeline: fix-bug, trust: {label: ana}}",
            "projects.bad.trust.label: must be write, triage, anyone or a list of names. For one person write [ana]",
        ),
        (
            "{tracker: acme, source: {url: 'https://me:pass@github.com/acme/x'}, pipeline: fix-bug}",
            "projects.bad.source.url: an address has no user or password here. "
            "Write it without: git signs in by itself, or with a secret of the step",
        ),
        (
            "{tracker: acme, resolution: {repo: '${UNSET}'}, pipeline: fix-bug}",
            "projects.bad.resolution.repo: the environment has no UNSET. Set UNSET, or write ${UNSET:-default}",
        ),
        ("nonsense", "projects.bad: must be a mapping, not text. Write key: value lines"),
    ],
)
def test_a_bad_project_is_left_out_alone(tmp_path: Path, project: str, line: str) -> None:
    loaded = read(tmp_path, f"{TRACKER}projects:\n  bad: {project}\n{GOOD}")
    assert list(loaded.refused) == ["project:bad"]
    assert [text.partition(": ")[2] for text in found(loaded)] == [line]
    assert all(text.startswith("harken.yaml:4:") for text in found(loaded))
    assert [trigger.name for trigger in loaded.triggers] == ["acme/good"]
    assert loaded.trackers["acme"].locations == ("acme/good",)
    assert not loaded.blocking


@pytest.mark.parametrize(
    ("tracker", "line"),
    [
        (
            "{type: bugzilla}",
            "trackers.bad.type: 'bugzilla' is no tracker of tickets. There are: azure_devops",
        ),
        ("{type: githb}", "trackers.bad.type: 'githb' is no tracker of tickets. Did you mean github?"),
        ("{url: 'https://github.com/a/b'}", "trackers.bad.type: is missing. Add type:"),
        ("{type: github, url: 'github.com/a/b'}", "trackers.bad.url: this is not an http address. Write"),
        ("{type: github, url: 'https://github.com/a/b', organization: c}", "trackers.bad.url: is of a, not of c"),
        ("{type: github, project: api}", "trackers.bad.project: api is no whole name. Write owner/name"),
        ("{type: azure_devops, organization: a}", "trackers.bad.project: is missing. Add project:"),
        ("{type: github, organization: a, tokn: x}", "trackers.bad.tokn: there is no such setting"),
        ("{type: github, organization: a, integration: nope}", "trackers.bad.integration: there is no integration"),
        ("{type: gitlab, project: a/b, integration: gh}", "trackers.bad.integration: gh is an integration of github"),
        ("{type: github, integration: gh, token: x}", "trackers.bad.integration: stands beside token"),
        (
            "{type: github, integration: gh, url: 'https://git.acme.com/a/b'}",
            "trackers.bad.integration: the account gh is of https://api.github.com, the tracker at "
            "https://git.acme.com/api/v3. Write token",
        ),
        ("{type: jira, url: 'https://j.acme.com', label_prefix: 'a b'}", "trackers.bad.label_prefix: this cannot be"),
        ("{type: github, organization: a, auth: [x]}", "trackers.bad.auth: must be token, basic, pat or a token"),
    ],
)
def test_a_bad_tracker_is_left_out_with_its_projects_and_no_others(tmp_path: Path, tracker: str, line: str) -> None:
    text = (
        f"integrations:\n  gh: {{kind: github, token: '${{GITHUB_TOKEN}}'}}\n{TRACKER}  bad: {tracker}\n"
        f"projects:\n{GOOD}  lost: {{tracker: bad, pipeline: fix-bug}}\n"
    )
    loaded = read(tmp_path, text)
    assert list(loaded.refused) == ["tracker:bad", "project:lost"]
    first, second = found(loaded)
    assert first.startswith("harken.yaml:5:")
    assert first.partition(": ")[2].startswith(line)
    assert second == "harken.yaml:8:19: projects.lost.tracker: the tracker bad was refused. Correct it first"
    assert [trigger.name for trigger in loaded.triggers] == ["acme/good"]


def test_a_stored_token_is_not_sent_to_the_server_that_another_variable_names(tmp_path: Path) -> None:
    text = (
        "trackers:\n  j: {type: jira, url: 'https://other.example'}\nprojects:\n  p: {tracker: j, pipeline: fix-bug}\n"
    )
    loaded = read(tmp_path, text, environ={**TOKENS, "JIRA_BASE_URL": "https://acme.atlassian.net"})
    assert "is of https://acme.atlassian.net, the tracker at https://other.example" in found(loaded)[0]
    assert not loaded.trackers


def test_a_tracker_signs_in_with_what_is_written_on_it(tmp_path: Path) -> None:
    text = """
    trackers:
      one: {type: gitlab, url: 'https://gitlab.acme.com/g/a', token: '${GITLAB_TOKEN}', polling: {enabled: true}}
      two: {type: gitlab, url: 'https://gitlab.acme.com/g/b', auth: '${GITLAB_TOKEN}', polling: {enabled: true}}
      three: {type: Jira, url: 'https://j.acme.com', auth: {type: basic, username: bot, password: '${GITLAB_TOKEN}'},
              polling: {enabled: true}}
    projects:
      a: {tracker: one, pipeline: fix-bug}
      b: {tracker: two, pipeline: fix-bug}
      c: {tracker: three, pipeline: fix-bug}
    """
    loaded = read(tmp_path, text, environ={"GITLAB_TOKEN": TOKENS["GITLAB_TOKEN"]})
    assert found(loaded) == []
    assert set(loaded.integrations) == {"tracker/one", "tracker/two", "tracker/three"}
    assert loaded.integrations["tracker/one"].credential == loaded.integrations["tracker/two"].credential
    assert getattr(loaded.integrations["tracker/three"].model, "username", "") == "bot"


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        ("resolution: {repo: a}", "resolution: {repo: a}", "every ticket of it belongs to the project one already"),
        ("resolution: {repo: a}", "resolution: {repo: a, tag: x}", "every ticket of it belongs to the project one"),
        ("resolution: {repo: a, tag: x}", "resolution: {repo: a}", ""),
        ("resolution: {repo: a, tag: x}", "resolution: {repo: a, tag: y}", ""),
        ("resolution: {repo: a}", "resolution: {repo: b}", ""),
    ],
)
def test_projects_that_want_the_same_tickets_are_told(tmp_path: Path, first: str, second: str, line: str) -> None:
    rest = "pipeline: fix-bug, tracker: acme"
    loaded = read(tmp_path, f"{TRACKER}projects:\n  one: {{{rest}, {first}}}\n  two: {{{rest}, {second}}}\n")
    assert not loaded.refused
    assert [line in text for text in found(loaded)] == [True] * bool(line)


def test_two_trackers_never_run_one_ticket_twice(tmp_path: Path) -> None:
    tickets = "tickets: {type: github, url: 'https://github.com/org/api'}, polling: {enabled: true}, pipeline: fix-bug"
    loaded = read(tmp_path, f"projects:\n  one: {{{tickets}}}\n  two: {{{tickets}}}\n")
    assert list(loaded.refused) == ["project:two"]
    assert "may be those of the project one of another tracker" in found(loaded)[0]
    assert [trigger.name for trigger in loaded.triggers] == ["one/one"]
    apart = read(
        tmp_path,
        f"projects:\n  one: {{{tickets}, resolution: {{tag: a}}}}\n  two: {{{tickets}, resolution: {{tag: b}}}}\n",
    )
    assert found(apart) == []


def test_statuses_that_projects_of_one_tracker_do_not_share_are_an_error_of_the_later_one(tmp_path: Path) -> None:
    text = """
    trackers:
      j: {type: jira, url: 'https://j.acme.com', project: TL, polling: {enabled: true}}
    projects:
      a: {tracker: j, resolution: {tag: a}, pipeline: fix-bug, jira_trigger: {done_status: Done}}
      b: {tracker: j, resolution: {tag: b}, pipeline: fix-bug, jira_trigger: {done_status: Closed}}
      c: {tracker: j, resolution: {tag: c}, pipeline: fix-bug, jira_trigger: {done_status: Done}}
    """
    loaded = read(tmp_path, text)
    assert list(loaded.refused) == ["project:b"]
    assert "has another done_status already" in found(loaded)[0]
    assert [project.name for project in loaded.trackers["j"].projects] == ["a", "c"]


@pytest.mark.parametrize(
    ("tracker", "line"),
    [
        ("type: github, project: a/b", "is only read every 15 minutes"),
        (
            "type: github, project: a/b, allow_unsigned: true",
            "anybody who knows the address can make us read the tracker",
        ),
        (
            "type: jira, url: 'https://acme.atlassian.net', polling: {enabled: true}",
            "in a public project that may be everybody",
        ),
        ("type: jira, url: 'https://acme.atlassian.net', polling: {enabled: true}, trust: {label: write}", ""),
        ("type: jira, url: 'https://jira.acme.com', polling: {enabled: true}", ""),
        ("type: github, project: a/b, webhook_secret: '${GITHUB_WEBHOOK_SECRET}'", ""),
        ("type: github, project: a/b, polling: {enabled: true}, extra_fields: [x]", "nothing is done with it"),
    ],
)
def test_what_is_odd_about_a_tracker_is_a_warning(tmp_path: Path, tracker: str, line: str) -> None:
    loaded = read(tmp_path, f"trackers:\n  t: {{{tracker}}}\nprojects:\n  p: {{tracker: t, pipeline: fix-bug}}\n")
    assert not loaded.refused
    assert [line in text for text in found(loaded)] == [True] * bool(line)


def test_a_tracker_without_projects_is_not_read(tmp_path: Path) -> None:
    loaded = read(tmp_path, TRACKER)
    assert ["no project uses it" in text for text in found(loaded)] == [True]
    assert [feed.name for feed in loaded.feeds] == ["harken"]


def test_without_any_pipeline_the_project_is_refused_unless_there_is_fix_bug(tmp_path: Path) -> None:
    text = f"{TRACKER}projects:\n  web: {{tracker: acme, resolution: {{repo: web}}}}\n"
    refused = read(tmp_path, text, pipelines=("security-scan",))
    assert "no ticket of it would start anything" in found(refused)[0]
    (tmp_path / "other").mkdir()
    assert read(tmp_path / "other", text).trackers["acme"].projects[0].routes.default == "fix-bug"


def test_a_pipeline_whose_workflow_is_refused_says_so(tmp_path: Path) -> None:
    bad = {"workflows/bad.yaml": "name: bad\nsteps: [{id: a, action: nope}]\ntrigger: {poll: {}}\n"}
    text = f"{TRACKER}projects:\n  web: {{tracker: acme, resolution: {{repo: web}}, pipeline: bad}}\n"
    loaded = read(tmp_path, text, files=bad)
    assert "the workflow bad was refused. Correct it first" in str(loaded.refused["project:web"][0])


def test_a_webhook_at_the_same_path_is_a_clash(tmp_path: Path) -> None:
    (tmp_path / "harken.yaml").write_text(
        "trackers:\n  acme: {type: github, project: a/b, webhook_secret: a-secret-0123456789}\n"
        "projects:\n  web: {tracker: acme, pipeline: fix-bug}\n"
    )
    tree = read_tree(tmp_path, "harken.yaml", Lookup(tmp_path, {}), Report())
    assert isinstance(tree, Table)
    resolver = Resolver(
        plugins=registry(), environ=TOKENS, references={}, check_condition=str, check_template=str, check_key=str
    )
    workflow = Workflow(name="fix-bug", rev="1", definition={"steps": []})
    known = Known(settings=Settings(), places={}, workflows={"fix-bug": workflow})
    taken = Taken(paths={"github/acme": Place("workflows/hook.yaml", 2)})
    trackers, projects = Section(node=tree.items["trackers"]), Section(node=tree.items["projects"])
    tickets = read_tickets(trackers, projects, resolver, known, taken)
    assert not tickets.trackers
    assert [str(one) for _, report in tickets.reports for one in report.findings if one.severity == "error"] == [
        "harken.yaml:2:9: trackers.acme: its webhook github/acme is taken by workflows/hook.yaml:2 as well. "
        "Call one of them something else"
    ]


def test_the_trigger_of_a_project_does_not_take_the_name_of_another(tmp_path: Path) -> None:
    job = """
    agents: {ana: {webhook: webhook}}
    trackers:
      leads: {type: github, project: a/b, polling: {enabled: true}}
    projects:
      alert: {tracker: leads, pipeline: fix-bug}
    pollers:
      jobs:
        - id: leads
          kind: rss
          agent: ana
          schedule: {every_secs: 60}
          config: {feed_url: 'https://example.com/feed', deliver: {channel: webhook, to: 'https://example.com/in'}}
          failure_to: {channel: webhook, to: 'https://example.com/in'}
    """
    loaded = read(tmp_path, job)
    assert "its trigger would be leads/alert" in str(loaded.refused["project:alert"])


def test_the_names_of_a_project_and_its_own_tracker_do_not_meet_those_of_others(tmp_path: Path) -> None:
    text = (
        "trackers:\n  web: {type: github, organization: acme, polling: {enabled: true}}\n"
        "projects:\n  web: {tickets: {type: github, url: 'https://github.com/a/b'}, pipeline: fix-bug}\n"
    )
    assert "stands under trackers: as well" in str(read(tmp_path, text).refused["project:web"][0])


@pytest.mark.parametrize("section", ["trackers", "projects"])
def test_a_section_that_is_no_mapping_blocks_the_start(tmp_path: Path, section: str) -> None:
    loaded = read(tmp_path, f"{section}: [a]")
    assert [finding.code for finding in loaded.blocking] == ["wrong_type"]


def test_a_secret_that_is_written_out_is_kept_from_findings(tmp_path: Path) -> None:
    secret = "a-secret-that-is-written-out-0815"
    text = f"trackers:\n  t: {{type: github, organization: a, auth: {secret}, done_status: [{secret}]}}\n"
    loaded = read(tmp_path, text)
    assert loaded.refused
    assert secret in loaded.secrets
    assert secret not in f"{found(loaded)}{loaded!r}"


def test_a_tracker_signs_in_as_an_app(tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    (tmp_path / "app.pem").write_text(pem)
    text = """
    trackers:
      hub: {type: github, project: acme/shop, app_id: 1234, private_key: '${file:app.pem}', polling: {enabled: true}}
    projects:
      shop: {tracker: hub, pipeline_from_label: {fix: fix-bug}}
    """
    loaded = read(tmp_path, text)
    assert found(loaded) == []
    assert getattr(loaded.integrations["tracker/hub"].model, "app_id", "") == "1234"
    assert pem.splitlines()[1] not in f"{loaded!r}{loaded.feeds}"


@pytest.mark.parametrize("name", ["preflight", "postflight"])
def test_a_step_with_the_name_of_one_that_tickets_add_is_found_before_a_run_dies_of_it(
    tmp_path: Path, name: str
) -> None:
    taken = f"name: taken\nsteps:\n  - {{id: {name}, action: transform, set: {{said: done}}}}\n"
    text = f"{TRACKER}projects:\n  bad: {{tracker: acme, resolution: {{repo: x}}, pipeline: taken}}\n{GOOD}"
    loaded = read(tmp_path, text, files={"workflows/taken.yaml": taken})
    assert list(loaded.refused) == ["project:bad"]
    assert [line.partition(": ")[2] for line in found(loaded)] == [
        f"projects.bad.pipeline: the step {name} of taken has the name of one that every run of a ticket has. "
        "Give it another id"
    ]


@pytest.mark.parametrize(
    ("tracker", "trust", "starts"),
    [
        ("{type: jira, url: 'https://j.acme.example', project: SHOP", "", False),
        ("{type: gitlab, project: a/b", "", False),
        ("{type: gitlab, project: a/b", ", trust: {label: triage}", False),
        ("{type: gitlab, project: a/b", ", trust: {label: [ana]}", True),
        ("{type: gitlab, project: a/b", ", trust: {label: anyone}", True),
        ("{type: github, project: a/b", "", True),
    ],
)
def test_tickets_that_could_never_start_as_their_author_is_unknown_are_told(
    tmp_path: Path, tracker: str, trust: str, starts: bool
) -> None:
    statuses = ", trigger_statuses: [Ready], polling: {enabled: true}}"
    text = f"trackers:\n  t: {tracker}{statuses}\nprojects:\n  p: {{tracker: t, pipeline: fix-bug{trust}}}\n"
    told = [line for line in found(read(tmp_path, text)) if "author of a ticket" in line]
    assert told == [] if starts else len(told) == 1
    labelled = text.replace("pipeline: fix-bug", "pipeline_from_label: {fix: fix-bug}")
    assert "author of a ticket" not in str(found(read(tmp_path, labelled)))

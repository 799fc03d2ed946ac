"""What an operator may do about tickets and trackers, on a GitHub that remembers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from harken.app import App
from harken.errors import Deferred, NotFound, Refused, RetryLater
from harken.operate.context import Context
from harken.operate.ticket_lookup import parse_name
from harken.operate.tickets import list_tickets
from harken.store import Store
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.gitlab import GitLab
from harken.tickets.write_pace import WritePace
from harken.timings import Timings
from tests.app.test_ticket_and_run_sync import PIPELINE, POLLED, PUSHED, at_work
from tests.services.whole import running, write

WAITING = """
name: fix-bug
steps:
  - {id: work, action: wait, for: 1h}
"""


@pytest.mark.parametrize(
    ("name", "location", "number"),
    [
        ("acme/shop#12", "acme/shop", "12"),
        ("group/sub/shop#3", "group/sub/shop", "3"),
        ("#12", "", "12"),
        (" 12 ", "", "12"),
        ("SHOP-7", "SHOP", "SHOP-7"),
        ("shop-7", "shop", "SHOP-7"),
        ("https://github.com/acme/shop/issues/12", "acme/shop", "12"),
        ("https://github.com/acme/shop/issues/12#issuecomment-5", "acme/shop", "12"),
        ("https://gitlab.example.com/group/sub/shop/-/issues/3", "group/sub/shop", "3"),
        ("https://dev.azure.com/acme/Shop/_workitems/edit/77?x=1", "Shop", "77"),
        ("https://acme.atlassian.net/browse/SHOP-7", "SHOP", "SHOP-7"),
    ],
)
def test_a_ticket_is_named_as_people_do(name: str, location: str, number: str) -> None:
    assert parse_name(name) == (location, number)


@pytest.mark.parametrize("name", ["", "shop", "--all", "../../x", "acme/shop#", "12; rm", "1" * 40])
def test_what_names_no_ticket_is_refused_with_the_forms(name: str) -> None:
    with pytest.raises(Refused, match="is not the name of a ticket"):
        parse_name(name)


async def call(app: App, operation: str, **params: Any) -> Any:
    return await app.operator.call(operation, **params)


def pace_of(app: App) -> WritePace:
    [name] = app.loaded.trackers
    return app.tickets.write_pace(name)


async def outcomes(app: App) -> list[str]:
    return [run["outcome"] for run in (await call(app, "runs.list"))["items"]]


@virtual
async def test_a_ticket_is_listed_and_shown_with_its_runs_and_the_next_command(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("agent-smith", by="leo", title="It breaks")
        await clock.sleep(300)
        name = f"acme/shop#{issue.number}"
        [row] = (await call(app, "tickets.list"))["items"]
        assert (row["ticket"], row["status"], row["shown"]) == (name, "done", "done")
        assert (row["pipeline"], row["project"]) == ("fix-bug", "my-api")
        assert (row["labelled_by"], row["tokens"], row["usd"], row["pull_request"]) == ("leo", 0, 0, "")
        assert (await call(app, "tickets.list", state="failed"))["items"] == []
        shown = await call(app, "tickets.show", ticket=name)
        assert (shown["standing"], shown["pipeline"], len(shown["runs"])) == ("claimed:done", "fix-bug", 1)
        assert (shown["memory"]["shown"], shown["labelled_by"]) == ("done", "leo")
        assert shown["next"].startswith("harken runs show ")
        assert (await call(app, "tickets.show", ticket=str(issue.number)))["ticket"] == name


@virtual
async def test_a_list_of_many_tickets_asks_the_store_as_often_as_one_of_few(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        asked: list[str] = []

        class Counting:
            """The store, with the names of the verbs that were called."""

            def __getattr__(self, name: str) -> Any:
                asked.append(name)
                return getattr(app.store, name)

        context = Context(cast(Store, Counting()), None, app.factory.loaded, clock, Timings())
        for tickets in (1, 6):
            while len(hub.repos["acme/shop"].issues) < tickets:
                hub.open("agent-smith", by="leo")
            await clock.sleep(600)
            asked.clear()
            rows = (await list_tickets(context))["items"]
            assert len(rows) == tickets
            assert sorted(asked) == ["documents", "events_by_id", "runs"]


@virtual
async def test_an_operator_claims_a_ticket_that_a_stranger_labelled(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("agent-smith", by="eve")
        await clock.sleep(300)
        assert "done" not in await outcomes(app)
        run = await call(app, "tickets.claim", ticket=f"acme/shop#{issue.number}")
        assert run["workflow"] == "fix-bug"
        await clock.sleep(600)
        assert (await outcomes(app)).count("done") == 1
        assert "harken:done" in issue.labels


@virtual
async def test_a_claim_names_its_pipeline_and_the_ticket_gets_the_label(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("bug", by="leo")
        await clock.sleep(60)
        name = f"acme/shop#{issue.number}"
        with pytest.raises(Refused, match="names one"):
            await call(app, "tickets.claim", ticket=name)
        with pytest.raises(Refused, match="has no pipeline deploy"):
            await call(app, "tickets.claim", ticket=name, pipeline="deploy")
        run = await call(app, "tickets.claim", ticket=name, pipeline="security-scan")
        assert run["workflow"] == "security-scan"
        await clock.sleep(600)
        assert sorted(issue.labels) == ["bug", "harken:done", "security-review"]
        assert await outcomes(app) == ["done"]


@virtual
async def test_what_an_operator_writes_takes_its_turn_with_everything_else(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        issues = [hub.open("agent-smith", by="leo") for _ in range(3)]
        await clock.sleep(300)
        for issue in issues:
            await call(app, "tickets.retry", ticket=str(issue.number))
        await clock.sleep(600)
        assert await outcomes(app) == ["done"] * 6
        writes = [seen.at for seen in hub.seen if seen.method != "GET"]
        assert min(later - earlier for earlier, later in pairwise(writes)) >= 1.0


@virtual
async def test_an_operator_hears_how_long_the_limit_of_writes_is_used_up(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("agent-smith", by="leo")
        await clock.sleep(300)
        name = f"acme/shop#{issue.number}"
        while (wait := pace_of(app).wait("", by_hand=True)) <= 2.0:
            await pace_of(app).take("", by_hand=True)
        with pytest.raises(Deferred, match="is used up for another") as deferred:
            await call(app, "tickets.retry", ticket=name)
        assert deferred.value.after == pytest.approx(wait, abs=1.0)
        assert "harken:done" in issue.labels
        await clock.sleep(wait)
        await call(app, "tickets.retry", ticket=name)
        assert len(await outcomes(app)) == 2


@virtual
async def test_an_operator_hears_how_long_the_platform_wants_us_to_wait(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("agent-smith", by="leo")
        await clock.sleep(300)
        hub.limit(120)
        with pytest.raises(RetryLater) as limited:
            await call(app, "tickets.release", ticket=f"acme/shop#{issue.number}")
        assert limited.value.after == pytest.approx(120, abs=2)


@virtual
async def test_a_retry_runs_the_pipeline_once_more(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("agent-smith", by="leo")
        name = f"acme/shop#{issue.number}"
        with pytest.raises(Refused, match="has had no run"):
            await call(app, "tickets.retry", ticket=name)
        await clock.sleep(300)
        assert await outcomes(app) == ["done"]
        await call(app, "tickets.retry", ticket=name)
        await clock.sleep(600)
        assert await outcomes(app) == ["done", "done"]
        assert sorted(issue.labels) == ["agent-smith", "harken:done"]


@virtual
async def test_a_run_at_work_is_cancelled_and_a_stuck_ticket_released(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        write(
            tmp_path,
            POLLED.format(url=hub.url),
            **{"fix-bug": WAITING, "security-scan": PIPELINE.format(name="security-scan")},
        )
        await call(app, "reload")
        await clock.sleep(60)
        issue = hub.open("agent-smith", by="leo")
        await clock.sleep(120)
        name = f"acme/shop#{issue.number}"
        for operation in ("tickets.claim", "tickets.retry"):
            with pytest.raises(Refused, match="has the run"):
                await call(app, operation, ticket=name)
        await call(app, "tickets.cancel", ticket=name)
        await clock.sleep(120)
        assert await outcomes(app) == ["cancelled"]
        assert sorted(issue.labels) == ["agent-smith"]
        assert (await call(app, "tickets.show", ticket=name))["runs"][0]["error"] == "cancelled by hand"
        with pytest.raises(Refused, match="no run that could be cancelled"):
            await call(app, "tickets.cancel", ticket=name)
        released = await call(app, "tickets.release", ticket=name)
        assert (released["cancelled"], released["claimed_again"]) == ("", True)
        await clock.sleep(120)
        assert (await outcomes(app))[1:] == ["cancelled"]
        released = await call(app, "tickets.release", ticket=name)
        assert (await call(app, "runs.show", id=released["cancelled"]))["error"] == "the ticket was released by hand"


@virtual
async def test_a_run_says_who_took_its_label_off(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        flows = {"fix-bug": WAITING, "security-scan": PIPELINE.format(name="security-scan")}
        write(tmp_path, POLLED.format(url=hub.url), **flows)
        await call(app, "reload")
        await clock.sleep(60)
        issue = hub.open("agent-smith", by="leo")
        await clock.sleep(120)
        hub.unlabel(issue, "agent-smith", by="leo")
        await clock.sleep(120)
        why = "the label agent-smith was taken off by leo"
        (run,) = (await call(app, "tickets.show", ticket=f"acme/shop#{issue.number}"))["runs"]
        assert (run["status"], run["error"]) == ("cancelled", why)
        assert (await call(app, "runs.show", id=run["id"]))["error"] == why
        assert f"Reason: `{why}`" in issue.comments[-1]["body"]


@virtual
async def test_a_ticket_is_released_however_many_runs_there_were_since(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harken.operate.tickets.SCANNED", 1)
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        flows = {"fix-bug": WAITING, "security-scan": PIPELINE.format(name="security-scan")}
        write(tmp_path, POLLED.format(url=hub.url), **flows)
        await call(app, "reload")
        await clock.sleep(60)
        stuck = hub.open("agent-smith", by="leo")
        await clock.sleep(60)
        for _ in range(3):
            hub.open("security-review", by="leo")
        await clock.sleep(60)
        name = f"acme/shop#{stuck.number}"
        assert (await call(app, "tickets.release", ticket=name))["cancelled"]
        assert len((await call(app, "tickets.show", ticket=name))["runs"]) >= 1


@virtual
async def test_a_test_of_a_tracker_tells_rights_routes_trust_and_forecast_and_writes_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock, POLLED.replace("interval_seconds: 30", "interval_seconds: 3000")) as (app, hub):
        await clock.sleep(60)
        trusted, stranger = hub.open("agent-smith", by="leo"), hub.open("security-review", by="eve")
        hub.seen.clear()
        [tracker] = (await call(app, "trackers.list"))["items"]
        answer = await call(app, "trackers.test", name=tracker["name"])
        [place] = answer["locations"]
        assert (answer["ok"], place["account"]) == (True, "mia")
        verdicts = {row["ticket"]: (row["pipeline"], row["trusted"]) for row in place["tickets"]}
        assert verdicts == {
            f"acme/shop#{trusted.number}": ("fix-bug", True),
            f"acme/shop#{stranger.number}": ("security-scan", False),
        }
        assert "harken:done" in place["missing_labels"]
        assert answer["webhooks"] is None
        assert (place["forecast"]["tickets"], place["forecast"]["writes"]) == (1, 4)
        assert {seen.method for seen in hub.seen} == {"GET"}


@virtual
async def test_a_tracker_whose_old_version_runs_on_says_so_in_the_list(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, PUSHED) as (app, _):
        text = (tmp_path / "harken.yaml").read_text()
        (tmp_path / "harken.yaml").write_text(text.replace("type: github", "type: githob"))
        await call(app, "reload")
        [tracker] = (await call(app, "trackers.list"))["items"]
        assert (tracker["name"], tracker["state"], tracker["projects"]) == ("acme", "closed", ["shop"])
        assert tracker["message"].startswith("the old version runs, as what is written now is refused: harken.yaml:")


LAB = """
trackers:
  lab: {{type: gitlab, project: acme/web/shop, base_url: "{url}", token: glpat-full, polling: {{enabled: true}}}}
projects:
  shop: {{tracker: lab, pipeline_from_label: {{fix: fix-bug}}}}
"""


@virtual
async def test_at_gitlab_an_old_ticket_with_the_label_in_capitals_is_forecast_and_claimed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    lab = GitLab(clock)
    async with lab.serve():
        for label in ("fix", "Fix"):
            lab.label(lab.open(age=8_000_000), label, by="leo")
        await clock.sleep(7_000_000)
        write(tmp_path, LAB.format(url=lab.url), **{"fix-bug": PIPELINE.format(name="fix-bug")})
        async with running(tmp_path, clock, {}) as app:
            [place] = (await call(app, "trackers.test", name="lab"))["locations"]
            assert place["forecast"]["tickets"] == 2
            await clock.sleep(1_300)
            found = (await call(app, "runs.list"))["items"]
            assert sorted(run["event_keys"][0].partition("@")[0] for run in found) == ["3#1", "3#2"]


@virtual
async def test_missing_labels_are_made_on_request(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, _):
        [tracker] = (await call(app, "trackers.list"))["items"]
        made = await call(app, "trackers.fix", name=tracker["name"])
        assert "harken:done" in made["made"]["acme/shop"]
        again = await call(app, "trackers.fix", name=tracker["name"])
        assert again["made"] == {"acme/shop": []}
        [place] = (await call(app, "trackers.test", name=tracker["name"]))["locations"]
        assert place["missing_labels"] == []


@virtual
async def test_webhooks_that_get_lost_are_told_by_the_test_and_by_the_doctor(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock, PUSHED) as (app, hub):
        await clock.sleep(60)
        assert (await call(app, "trackers.test", name="acme"))["webhooks"]["problem"] == ""
        hub.open("fix", by="leo")
        await clock.sleep(2_000)
        answer = await call(app, "trackers.test", name="acme")
        assert (answer["ok"], answer["webhooks"]["path"]) == (False, "/webhooks/github/acme")
        assert answer["webhooks"]["problem"] == "no webhook told 1 of 1 changes of tickets of acme"
        [check] = [one for one in (await call(app, "doctor"))["items"] if one["name"] == "webhooks"]
        assert (check["state"], check["fix"]) == ("warn", answer["webhooks"]["fix"])


@virtual
async def test_unknown_trackers_and_tickets_are_told_with_what_there_is(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, _):
        with pytest.raises(NotFound, match="there is no tracker nope"):
            await call(app, "trackers.test", name="nope")
        with pytest.raises(NotFound, match="no tracker has the tickets of acme/other"):
            await call(app, "tickets.show", ticket="acme/other#1")
        with pytest.raises(NotFound, match="shows no ticket"):
            await call(app, "tickets.show", ticket="acme/shop#4711")

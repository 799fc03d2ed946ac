"""A workflow on a Google calendar: the whole engine on virtual time, against the fake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.app import App
from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Answer
from harken.testing.fakes.google_calendar import GoogleCalendar
from harken.testing.fakes.ntfy import FakeNtfy
from tests.services.whole import fired, running

MAIN = """\
integrations:
  google:
    kind: google
    client_id: {client_id}
    client_secret: {client_secret}
    refresh_token: {refresh_token}
    base_url: "{base_url}"
    allow_private_networks: true
"""

WATCH = """\
name: watch
trigger:
  poll:
    integration: google_calendar
    query: {QUERY}
    interval: 60s
steps:
  - {id: note, action: transform, set: {text: "{{.trigger.event.summary}}"}}
"""

JOB = """\
pollers:
  jobs:
    - id: ana_calendar
      kind: google_calendar
      agent: ana
      schedule: {every_secs: 60}
      config:
        skip_cancelled: true
        deliver: {channel: ntfy, to: ana-calendar}
"""


def write(directory: Path, google: GoogleCalendar, query: str = "{calendar_id: primary}") -> None:
    (directory / "workflows").mkdir(exist_ok=True)
    (directory / "harken.yaml").write_text(MAIN.format(**google.account()))
    (directory / "workflows" / "watch.yaml").write_text(WATCH.replace("{QUERY}", query))


async def status(app: App) -> Any:
    return await app.operator.call("triggers.show", name="watch")


@virtual
async def test_each_change_runs_once_over_many_reads_and_a_restart(clock: VirtualClock, tmp_path: Path):
    google = GoogleCalendar(clock, cap=2)
    async with google.serve():
        write(tmp_path, google)
        for number in range(9):
            google.put(f"old{number}")
        await clock.sleep(3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            assert await fired(app) == {}
            for number in range(5):
                google.put(f"new{number}")
            google.put("old3", location="elsewhere")
            await clock.sleep(300)
            seen = {**dict.fromkeys([f"new{number}" for number in range(5)], 1), "old3": 1}
            assert await fired(app) == seen
            google.put("old3", location="elsewhere again")
            google.cancel("new0")
            await clock.sleep(300)
            assert await fired(app) == {**seen, "old3": 2}
        google.put("new1", summary="changed while we were away")
        google.put("late")
        await clock.sleep(2 * 86_400)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            assert await fired(app) == {**seen, "old3": 2, "new1": 2, "late": 1}
        assert google.refreshes <= 3, "a token serves all reads of its hour"


@virtual
async def test_a_crash_between_two_pages_loses_and_repeats_nothing(clock: VirtualClock, tmp_path: Path):
    google = GoogleCalendar(clock, cap=2)
    async with google.serve():
        write(tmp_path, google)
        async with running(tmp_path, clock) as app:
            await clock.sleep(90)
        for number in range(7):
            google.put(f"e{number}")
        await clock.sleep(300)
        # after a token and the first of four pages there is nothing, and later Google has forgotten where we were
        google.after = {len(google.seen) + 2: lambda: google.answers.append(Answer(status=503))}
        async with running(tmp_path, clock) as app:
            await clock.sleep(8)
            assert google.seen[-1].status == 503
        google.forget_pages()
        async with running(tmp_path, clock) as app:
            await clock.sleep(600)
            assert await fired(app) == dict.fromkeys([f"e{number}" for number in range(7)], 1)
        assert 400 in [seen.status for seen in google.seen], "the page was forgotten"


@virtual
async def test_a_forgotten_sync_token_pauses_until_the_cursor_is_reset(clock: VirtualClock, tmp_path: Path):
    google = GoogleCalendar(clock)
    async with google.serve():
        write(tmp_path, google)
        google.put("old")
        await clock.sleep(3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            google.expire()
            google.put("lost")
            await clock.sleep(300)
            shown = await status(app)
            assert shown["status"] == "paused"
            assert "--cursor" in str(shown)
            await app.operator.call("triggers.reset", name="watch", cursor=True, yes=True)
            await clock.sleep(300)
            google.put("new")
            await clock.sleep(300)
            assert (await status(app))["status"] == "healthy"
            assert await fired(app) == {"new": 1}


@virtual
async def test_a_forgotten_sync_token_may_be_replaced_without_a_person(clock: VirtualClock, tmp_path: Path):
    google = GoogleCalendar(clock, cap=2)
    async with google.serve():
        write(tmp_path, google, "{on_expired: rebaseline, skip_cancelled: false}")
        for number in range(9):
            google.put(f"old{number}")
        await clock.sleep(3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            google.expire()
            google.put("new")
            google.cancel("old1")
            await clock.sleep(300)
            assert (await status(app))["status"] == "healthy"
            assert await fired(app) == {"new": 1, "old1": 1}


@virtual
async def test_a_withdrawn_consent_pauses_and_names_the_command(clock: VirtualClock, tmp_path: Path):
    google = GoogleCalendar(clock)
    async with google.serve():
        write(tmp_path, google)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            google.revoke()
            await clock.sleep(300)
            shown = await status(app)
            assert shown["status"] == "paused"
            assert "harken integrations google configure" in str(shown)
            assert google.refreshes == 2, "it is not asked again and again"


@virtual
async def test_too_many_calls_slow_down_and_lose_nothing(clock: VirtualClock, tmp_path: Path):
    google = GoogleCalendar(clock)
    async with google.serve():
        write(tmp_path, google)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            google.limit(600)
            google.put("new")
            await clock.sleep(3600)
            assert (await status(app))["status"] == "healthy"
            assert await fired(app) == {"new": 1}


@virtual
async def test_one_of_two_accounts_is_named_where_it_has_to_be_mended(clock: VirtualClock, tmp_path: Path):
    google = GoogleCalendar(clock)
    async with google.serve():
        write(tmp_path, google)
        main, watch = tmp_path / "harken.yaml", tmp_path / "workflows" / "watch.yaml"
        _, _, settings = main.read_text().partition("  google:\n")
        main.write_text(f"{main.read_text()}  work:\n{settings}")
        watch.write_text(watch.read_text().replace("google_calendar\n", "google_calendar\n    account: work\n"))
        google.revoke()
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            assert "harken integrations work configure" in str(await status(app))


@virtual
async def test_all_that_use_one_account_share_its_token(clock: VirtualClock, tmp_path: Path):
    google = GoogleCalendar(clock)
    teams = [f"team{number}@example.com" for number in range(8)]
    google.calendars |= {team: {} for team in teams}
    async with google.serve():
        write(tmp_path, google)
        shown = (tmp_path / "workflows" / "watch.yaml").read_text()
        for number, team in enumerate(teams):
            text = shown.replace("primary", team).replace("name: watch", f"name: watch{number}")
            (tmp_path / "workflows" / f"watch{number}.yaml").write_text(text)
        async with running(tmp_path, clock):
            await clock.sleep(1800)
        asked = {seen.path for seen in google.seen if seen.path.endswith("/events")}
        assert len(asked) == 9
        assert google.refreshes == 1


@virtual
async def test_a_job_delivers_each_change_once_in_words(clock: VirtualClock, tmp_path: Path):
    google, phone = GoogleCalendar(clock), FakeNtfy(clock)
    async with google.serve(), phone.serve():
        ntfy = f'  ntfy: {{kind: ntfy, base_url: "{phone.url}", allow_private_networks: true}}\n'
        (tmp_path / "harken.yaml").write_text(MAIN.format(**google.account()) + ntfy)
        (tmp_path / "pollers.yaml").write_text(JOB)
        google.put("old")
        await clock.sleep(3600)
        async with running(tmp_path, clock):
            await clock.sleep(300)
            google.put("new", summary="Réunion 🎉", start={"date": "2026-03-02"})
            google.cancel("old")
            await clock.sleep(300)
        async with running(tmp_path, clock):
            await clock.sleep(300)
        texts = [one["message"] for one in phone.cached]
        assert texts == ["📅 Réunion 🎉 — 2026-03-02\nhttps://calendar.google.com/event?eid=new"]

"""A crontab becomes workflows with the same times, commands and environment; what cannot be is told with its line."""

from __future__ import annotations

from typing import Any

import pytest

from harken.config.importers import Imported
from harken.config.importers.crontab import translate
from harken.language.go_template import compile_template


def imported(text: str, **more: Any) -> Imported:
    return translate(text, file="crontab", zone="Europe/Berlin", **more)


def only(made: Imported) -> Any:
    (workflow,) = made.workflows.values()
    return workflow


def test_a_job_keeps_its_time_its_note_and_its_command() -> None:
    workflow = only(imported("# nightly backup\n30 2 * * 1-5 /usr/local/bin/backup.sh --all\n"))
    assert (workflow["name"], workflow["description"]) == ("backup", "nightly backup")
    schedule = {"cron": "30 2 * * 1-5", "tz": "Europe/Berlin", "missed": "skip"}
    assert workflow["trigger"]["schedule"] == schedule
    assert workflow["steps"][0]["command"] == "/usr/local/bin/backup.sh --all"


def test_variables_above_a_job_are_its_environment_and_its_zone() -> None:
    made = imported('A="x y"\nCRON_TZ=Asia/Tokyo\n@hourly one\nB=2\n@weekly two\n')
    one, two = made.workflows["one"], made.workflows["two"]
    assert one["trigger"]["schedule"] == {"cron": "0 * * * *", "tz": "Asia/Tokyo", "missed": "skip"}
    assert (one["steps"][0]["env"], two["steps"][0]["env"]) == ({"A": "x y"}, {"A": "x y", "B": "2"})


def test_the_zone_of_commands_is_not_that_of_the_schedule() -> None:
    workflow = only(imported("TZ=UTC\n0 9 * * * report\n"))
    assert workflow["trigger"]["schedule"]["tz"] == "Europe/Berlin"
    assert workflow["steps"][0]["env"] == {"TZ": "UTC"}


def test_another_shell_runs_the_command() -> None:
    step = only(imported("SHELL=/bin/bash\n@daily echo ${HOME}\n"))["steps"][0]
    assert step["command"] == ["/bin/bash", "-c", "echo $${HOME}"]


def test_what_follows_a_percent_sign_is_the_input() -> None:
    step = only(imported(r"@daily mail -s hello me%line one%100\%"))["steps"][0]
    assert (step["command"], step["stdin"]) == ("mail -s hello me", "line one\n100%\n")


def test_a_job_that_failed_is_not_tried_again() -> None:
    assert only(imported("@daily pay-invoices"))["trigger"]["max_attempts"] == 1


def test_a_job_runs_where_cron_runs_it() -> None:
    made = imported("@daily ./one.sh\nHOME=/srv/app\n@weekly ./two.sh\n")
    assert [workflow["steps"][0]["cwd"] for workflow in made.workflows.values()] == ["${HOME:-/}", "/srv/app"]


def test_braces_of_a_command_stay_braces() -> None:
    command = only(imported("@daily docker ps --format '{{.Names}}'"))["steps"][0]["command"]
    assert compile_template(command[2]).render({}).text == "docker ps --format '{{.Names}}'"


def test_a_system_crontab_has_users_which_are_told() -> None:
    made = imported("17 * * * * root cd / && run-parts /etc/cron.hourly\n", system=True)
    assert only(made)["steps"][0]["command"] == "cd / && run-parts /etc/cron.hourly"
    assert "it ran as root" in made.findings[0].message


def test_two_jobs_of_one_program_have_two_names() -> None:
    assert list(imported("@daily sync a\n@weekly sync b\n").workflows) == ["sync", "sync-2"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("@reboot /usr/bin/thing", "@reboot is no time"),
        ("0~30 1 * * * x", "random time"),
        ("not a line", "no line of a crontab"),
        ("* * * * *", "no line of a crontab"),
        ("MAILTO=ops@example.com", "not sent by mail"),
    ],
)
def test_what_cannot_be_translated_is_told_with_its_line(line: str, message: str) -> None:
    made = imported(f"\n{line}\n@daily other\n")
    assert [message in finding.message for finding in made.findings] == [True]
    assert made.findings[0].line == 2
    assert list(made.workflows) == ["other"]


def test_a_variable_that_may_be_a_secret_stands_nowhere_but_in_variables() -> None:
    made = imported("API_TOKEN=abc\nLEVEL=7\n@daily one\nAPI_TOKEN=def\n@daily two\nAPI_TOKEN=abc\n@daily three\n")
    env = {name: workflow["steps"][0]["env"] for name, workflow in made.workflows.items()}
    assert env["one"] == {"API_TOKEN": "${CRONTAB_API_TOKEN}", "LEVEL": "7"}
    assert [env[name]["API_TOKEN"] for name in ("two", "three")] == ["${CRONTAB_API_TOKEN_2}", "${CRONTAB_API_TOKEN}"]
    assert {name: one.value for name, one in made.variables.items()} == {
        "CRONTAB_API_TOKEN": "abc",
        "CRONTAB_API_TOKEN_2": "def",
    }


@pytest.mark.parametrize("heading", ["# m h  dom mon dow   command", "#minute hour day month weekday"])
def test_the_heading_of_the_columns_is_no_note_of_the_first_job(heading: str) -> None:
    assert "description" not in only(imported(f"{heading}\n@daily one\n"))


@pytest.mark.parametrize(
    "switched_off", ["#0 4 * * * /opt/old.sh", "# */5 1-3 1,15 jan MON-FRI x", "#@daily /opt/old.sh"]
)
def test_a_job_that_is_switched_off_is_no_note_of_the_next(switched_off: str) -> None:
    assert "description" not in only(imported(f"{switched_off}\n@daily one\n"))


@pytest.mark.parametrize("note", ["a b c d e f", "3 copies of the whole database", "@daily"])
def test_a_note_that_looks_a_little_like_a_job_is_kept(note: str) -> None:
    assert only(imported(f"# {note}\n@daily one\n"))["description"] == note


def test_a_reference_in_a_note_stays_text() -> None:
    assert only(imported("# cleans ${HOME}/tmp\n@daily one\n"))["description"] == "cleans $${HOME}/tmp"


@pytest.mark.parametrize("text", ["", "\x00\x01", "#\n" * 1_000, "=" * 10_000, "* " * 10_000, "%" * 10_000])
def test_anything_may_be_in_the_file(text: str) -> None:
    assert imported(text).workflows is not None


@pytest.mark.parametrize(
    "text",
    [
        "17 * * * * root cd / && run-parts /etc/cron.hourly",
        "0 5 * * * www-data /srv/clean\n@daily root\t[ -x /a ] && /a",
    ],
)
def test_the_user_of_a_system_crontab_is_noticed(text: str) -> None:
    (finding,) = imported(
        f"# m h dom mon dow user command\n{text}\n", is_user={"root", "www-data"}.__contains__
    ).findings
    assert str(finding).startswith("crontab:2:1: warning: every command begins with the name of a user (")
    assert "--system" in finding.fix


@pytest.mark.parametrize(
    "text",
    ["@daily root /a\n@daily /usr/bin/b", "@daily mail", "@daily mail -s hello", "@daily backup me", "@reboot root a"],
)
def test_a_command_that_is_called_like_a_user_is_none(text: str) -> None:
    assert [
        one for one in imported(text, is_user={"root", "mail"}.__contains__).findings if one.severity == "warning"
    ] == []

"""`harken integrations …`, against a depot that answers on loopback."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harken.app import App
from tests.cli.terminal import Terminal, at_a_terminal
from tests.credentials.parcel_server import TOKEN


@pytest.fixture
async def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Terminal]:
    async with at_a_terminal(tmp_path, monkeypatch, capsys) as found:
        yield found


async def row(terminal: Terminal, name: str) -> dict[str, object]:
    return next(row for row in await terminal.json("integrations", "list") if row["name"] == name)


async def test_a_credential_is_tried_then_stored_then_used(terminal: Terminal) -> None:
    terminal.watches("parcel")
    code, out, err = await terminal.configures("parcel")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "parcel knows us: id u7, name Ada, echo ***"
    assert "Stored in " in out
    found = await row(terminal, "parcel")
    assert (found["source"], found["base_url"]) == ("stored", terminal.depot.url)
    assert len(found["feeds"]) == 1  # type: ignore[arg-type]
    assert (await terminal.json("integrations", "parcel", "whoami"))["id"] == "u7"


async def test_what_needs_an_account_is_listed_and_what_can_do_without_is_not(terminal: Terminal) -> None:
    listed = {row["name"]: row["source"] for row in await terminal.json("integrations", "list")}
    # Kafka cannot say whose credential it has; it needs brokers all the same
    assert (listed["kafka"], listed["github"]) == ("missing", "missing")
    assert {"json", "s3", "webhook"} & set(listed) == set()


async def test_configure_says_what_the_names_in_queries_stand_for_and_which_are_unknown(terminal: Terminal) -> None:
    terminal.watches("parcel")
    _, out, _ = await terminal.configures("parcel")
    assert "watch: north is North depot (n1)" in out
    assert "watch: there is no depot south" in out


async def test_a_wrong_token_is_not_stored(terminal: Terminal) -> None:
    code, out, err = await terminal.configures("parcel", stdin="wr0ng-token-123456")
    assert code == 1
    assert "Nothing was stored" in err
    assert "wr0ng-token-123456" not in out + err
    assert (await row(terminal, "parcel"))["source"] == "missing"


async def test_without_a_test_it_is_stored_untried(terminal: Terminal) -> None:
    code, _, _ = await terminal.configures("parcel", "--no-test", stdin="wr0ng-token-123456")
    assert code == 0
    assert terminal.depot.seen == []
    code, _, err = await terminal.types("integrations", "parcel", "whoami")
    assert code == 1
    assert "wr0ng-token-123456" not in err


async def test_a_field_that_the_service_does_not_take_is_told_without_its_value(terminal: Terminal) -> None:
    code, _, err = await terminal.configures("parcel", stdin="user-5ecret-123456")
    assert code == 1
    assert "token: *** is a user token; a depot token is needed" in err
    code, _, err = await terminal.types("integrations", "parcel", "configure", "--user", "ada")
    assert (code, "token: is missing. Give --token" in err) == (1, True)
    code, _, err = await terminal.configures("parcel", "--colour", "red")
    assert (code, "parcel has no --colour" in err, "--base-url" in err) == (1, True, True)
    code, _, err = await terminal.types("integrations", "parcel", "configure", "--token")
    assert (code, "--token needs a value" in err) == (1, True)


async def test_a_secret_without_its_flag_is_refused_and_not_repeated(terminal: Terminal) -> None:
    code, out, err = await terminal.types("integrations", "parcel", "configure", TOKEN)
    assert (code, TOKEN in out + err, "parcel takes: --token" in err) == (1, False, True)


async def test_standard_input_is_one_value_only(terminal: Terminal) -> None:
    code, _, err = await terminal.types("integrations", "parcel", "configure", "--token", "-", "--user", "-", stdin="x")
    assert (code, "only one value, and --token has it" in err, "--user @PATH" in err) == (1, True, True)


async def test_a_secret_comes_from_a_file_and_on_the_command_line_is_warned_of(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    where = ("--base-url", terminal.depot.url, "--allow-private-networks")
    code, _, err = await terminal.types("integrations", "parcel", "configure", "--token", f"@{tmp_path}/token", *where)
    assert (code, err) == (0, "")
    code, _, err = await terminal.types("integrations", "parcel", "configure", f"--token={TOKEN}", *where, "--yes")
    assert code == 0
    assert err.startswith("warning: others on this machine can see --token")


async def test_the_environment_is_used_and_can_be_stored(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.watches("parcel")
    monkeypatch.setenv("PARCEL_TOKEN", TOKEN)
    assert (await row(terminal, "parcel"))["source"] == "environment"
    code, _, _ = await terminal.types(
        "integrations",
        "parcel",
        "configure",
        "--from-env",
        "--base-url",
        terminal.depot.url,
        "--allow-private-networks",
    )
    assert code == 0
    monkeypatch.delenv("PARCEL_TOKEN")
    assert (await row(terminal, "parcel"))["source"] == "stored"


async def test_what_is_stored_wins_over_the_environment(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    await terminal.configures("parcel")
    monkeypatch.setenv("PARCEL_TOKEN", "other-t0ken-123456")
    assert (await row(terminal, "parcel"))["source"] == "stored"
    assert (await terminal.json("integrations", "parcel", "whoami"))["name"] == "Ada"


async def test_a_second_account_has_a_name_of_its_own_and_is_used_by_it(terminal: Terminal) -> None:
    terminal.watches("parcel-eu")
    assert (await terminal.types("config", "check"))[0] == 1
    assert (await terminal.configures("parcel", "--name", "parcel-eu"))[0] == 0
    assert (await terminal.types("config", "check"))[0] == 0
    assert (await row(terminal, "parcel-eu"))["kind"] == "parcel"
    assert (await row(terminal, "parcel"))["source"] == "missing"
    assert (await terminal.json("integrations", "parcel-eu", "whoami"))["id"] == "u7"


@pytest.mark.parametrize("name", ["list", "json", "a/b", "a b"])
async def test_a_name_that_means_something_else_is_refused(terminal: Terminal, name: str) -> None:
    assert (await terminal.configures("parcel", "--name", name))[0] == 1
    assert (await terminal.types("secrets", "list"))[1] == "Nothing is stored.\n"


async def test_a_stored_credential_is_replaced_only_when_that_is_meant(terminal: Terminal) -> None:
    await terminal.configures("parcel")
    code, _, err = await terminal.configures("parcel")
    assert (code, "To replace it: --yes" in err) == (1, True)
    terminal.depot.token = "n3w-token-abcdef-555"
    code, _, _ = await terminal.types(
        "integrations", "parcel", "configure", "--token", "-", "--yes", stdin=terminal.depot.token
    )
    assert code == 0
    assert (await row(terminal, "parcel"))["base_url"] == terminal.depot.url


async def test_an_entry_in_the_file_takes_its_secret_from_the_store(terminal: Terminal) -> None:
    terminal.write(
        "harken.yaml",
        f"integrations:\n  eu: {{kind: parcel, base_url: '{terminal.depot.url}', allow_private_networks: true}}\n",
    )
    code, _, err = await terminal.types("integrations", "eu", "test")
    assert (code, "token" not in err or "missing" in err) == (1, True)
    code, _, _ = await terminal.types("integrations", "eu", "configure", "--token", "-", stdin=TOKEN)
    assert code == 0
    assert (await row(terminal, "eu"))["source"] == "stored"
    assert (await terminal.types("integrations", "eu", "test"))[:2] == (
        0,
        "eu (parcel, credential: stored) is id u7, name Ada, echo ***\neu works\n",
    )


async def test_a_credential_in_the_file_wins_and_that_is_said(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD_TOKEN", TOKEN)
    entry = f"{{kind: parcel, token: '${{OLD_TOKEN}}', base_url: '{terminal.depot.url}', allow_private_networks: true}}"
    terminal.write("harken.yaml", f"integrations:\n  eu: {entry}\n")
    code, _, err = await terminal.types("integrations", "eu", "configure", "--token", "-", stdin="other-t0ken-123456")
    assert (code, "it wins over the one that is stored" in err) == (0, True)
    assert (await row(terminal, "eu"))["source"] == "config"


async def test_test_prints_one_line_for_each_problem_and_exits_1(terminal: Terminal) -> None:
    terminal.watches("parcel")
    await terminal.configures("parcel")
    code, out, _ = await terminal.types("integrations", "parcel", "test")
    assert code == 1
    assert "watch: there is no depot south. See: harken integrations parcel whoami" in out.splitlines()
    terminal.depot.depots["south"] = "South depot"
    assert (await terminal.types("integrations", "parcel", "test"))[0] == 0
    terminal.depot.token = "revoked"
    answer = await terminal.json("integrations", "parcel", "test")
    assert (answer["ok"], len(answer["problems"]), answer["checks"]) == (False, 1, [])
    assert TOKEN not in str(answer)


async def test_a_plugin_that_breaks_is_a_problem_without_its_words(terminal: Terminal) -> None:
    await terminal.configures("parcel")
    terminal.depot.rude = 418
    code, out, err = await terminal.types("integrations", "parcel", "test")
    assert code == 1
    assert "broke with ValueError" in out
    assert TOKEN not in out + err


async def test_a_dry_run_of_a_trigger_checks_its_names(terminal: Terminal) -> None:
    terminal.watches("parcel")
    await terminal.configures("parcel")
    code, out, _ = await terminal.types("triggers", "test", "watch")
    assert code == 1
    assert "north is North depot (n1)" in out
    assert "there is no depot south" in out
    answer = await terminal.json("triggers", "test", "watch")
    assert answer["found"] == {"north": "North depot (n1)"}
    assert len(answer["unknown"]) == 1


async def test_remove_takes_only_what_is_stored(terminal: Terminal) -> None:
    await terminal.configures("parcel")
    assert (await terminal.types("integrations", "parcel", "remove"))[0] == 1
    code, out, _ = await terminal.types("integrations", "parcel", "remove", "--yes")
    assert (code, "revoke it at the service" in out) == (0, True)
    assert (await row(terminal, "parcel"))["source"] == "missing"
    assert (await terminal.types("integrations", "parcel", "remove", "--yes"))[0] == 1


async def test_help_works_at_each_level_and_the_order_is_told(terminal: Terminal) -> None:
    for words in (["integrations"], ["integrations", "parcel"], ["integrations", "parcel", "configure"]):
        code, out, _ = await terminal.types(*words, "--help")
        assert (code, out.startswith("Usage: harken")) == (0, True)
    code, out, _ = await terminal.types("integrations", "parcel", "configure", "fields")
    assert "--token  API token of your depot, from Settings (secret, PARCEL_TOKEN with --from-env)" in out.splitlines()
    assert "token" in [one["name"] for one in await terminal.json("integrations", "parcel", "configure", "fields")]
    code, _, err = await terminal.types("integrations", "configure", "parcel")
    assert (code, "harken integrations NAME configure" in err) == (2, True)


async def test_names_that_are_not_there_get_a_suggestion(terminal: Terminal) -> None:
    for verb in ("configure", "test", "whoami"):
        code, _, err = await terminal.types("integrations", "parcl", verb)
        assert (code, "Did you mean parcel?" in err) == (1, True)
    code, _, err = await terminal.types("integrations", "rss", "configure")
    assert (code, "rss needs no account" in err) == (1, True)


async def test_a_step_uses_a_stored_account_by_its_name(terminal: Terminal) -> None:
    steps = "steps:\n  - {id: n, action: parcel-eu.note, text: hello}\n"
    terminal.write("workflows/w.yaml", f"name: w\n{steps}")
    code, out, _ = await terminal.types("config", "check")
    assert (code, "there is no action 'parcel-eu.note'" in out) == (1, True)
    await terminal.configures("parcel", "--name", "parcel-eu")
    assert (await terminal.types("config", "check", "--strict"))[0] == 0


async def test_a_new_credential_reaches_the_running_controller_and_frees_what_had_stopped(terminal: Terminal) -> None:
    terminal.watches("parcel")
    await terminal.configures("parcel")
    terminal.depot.token = "r0tated-token-777777"
    async with App.start(terminal.directory, port=0) as app:
        (feed,) = [feed for feed in app.loaded.feeds if feed.kind == "parcel"]
        await app.controller.tick(feed.name)
        assert (await app.store.state(feed.name)).health.state == "paused"
        generation = app.loaded.generation
        code, out, _ = await terminal.types(
            "integrations", "parcel", "configure", "--token", "-", "--yes", stdin=terminal.depot.token
        )
        assert code == 0
        assert "The running controller uses it now" in out
        assert "watch had stopped and is read again" in out
        assert (await app.controller.tick(feed.name))["result"] == "nothing_new"
        assert (await app.store.state(feed.name)).health.clean
        assert app.loaded.generation == generation
        rows = await terminal.json("integrations", "list")
        assert [row["error"] for row in rows if row["name"] == "parcel"] == [""]


async def test_a_pause_that_a_person_set_stays(terminal: Terminal) -> None:
    terminal.watches("parcel")
    await terminal.configures("parcel")
    terminal.depot.token = "r0tated-token-777777"
    async with App.start(terminal.directory, port=0) as app:
        (feed,) = [feed for feed in app.loaded.feeds if feed.kind == "parcel"]
        await app.controller.tick(feed.name)
        await app.store.pause("watch", "holiday")
    code, out, _ = await terminal.types(
        "integrations", "parcel", "configure", "--token", "-", "--yes", stdin=terminal.depot.token
    )
    assert code == 0
    assert "harken triggers resume watch" in out
    assert (await terminal.json("triggers", "show", "watch"))["paused"] == "holiday"


async def test_without_a_controller_the_store_itself_is_told(terminal: Terminal) -> None:
    terminal.watches("parcel")
    await terminal.configures("parcel", "--no-test", stdin="wr0ng-token-123456")
    async with App.start(terminal.directory, port=0) as app:
        (feed,) = [feed for feed in app.loaded.feeds if feed.kind == "parcel"]
        await app.controller.tick(feed.name)
    assert "bad token ***" in str((await row(terminal, "parcel"))["error"])
    code, out, _ = await terminal.configures("parcel", "--yes")
    assert (code, "watch had stopped and is read again" in out) == (0, True)
    assert (await row(terminal, "parcel"))["error"] == ""


async def test_secrets_are_stored_listed_and_removed_and_stand_for_references(terminal: Terminal) -> None:
    terminal.write("workflows/w.yaml", "name: w\ntrigger: {webhook: {secret: '${secret:hook}'}}\nsteps: []\n")
    assert "Store it: harken secrets set hook" in (await terminal.types("config", "check"))[1]
    code, out, err = await terminal.types("secrets", "set", "hook", stdin="s3cret-value-123\n")
    assert (code, "s3cret" in out + err) == (0, False)
    assert await terminal.json("secrets", "list") == [{"name": "hook"}]
    assert (await terminal.types("config", "check"))[0] == 0
    assert (await terminal.types("secrets", "remove", "hook"))[0] == 1
    assert (await terminal.types("secrets", "remove", "hook", "--yes"))[0] == 0
    assert (await terminal.types("secrets", "remove", "hook", "--yes"))[0] == 1


async def test_a_file_that_others_may_read_is_told_at_its_use_and_other_items_run(terminal: Terminal) -> None:
    terminal.watches("parcel")
    terminal.write("workflows/other.yaml", "name: other\ntrigger: {schedule: {every: 10s}}\nsteps: []\n")
    await terminal.configures("parcel")
    os.chmod(terminal.directory / "harken.db.secrets" / "sealed.json", 0o644)
    code, out, _ = await terminal.types("config", "check")
    assert (code, "others may read" in out, "chmod 600" in out) == (1, True, True)
    listed = {row["name"]: row["status"] for row in await terminal.json("triggers", "list")}
    assert listed == {"other": "new", "watch": "refused"}
    code, _, err = await terminal.types("integrations", "list")
    assert (code, "others may read" in err) == (0, True)

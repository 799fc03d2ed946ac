from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config.makers import codes, lines, poll, read, workflow


def prompt(text: str) -> str:
    return workflow("w", steps=f"- {{id: one, action: llm, prompt: '{text}'}}")


def test_variables_are_replaced_in_any_value(tmp_path: Path) -> None:
    files = {"harken.yaml": "server: {host: '${HOST}', port: '${PORT:-8080}'}\nlog: {level: '${LEVEL:-debug}'}"}
    loaded = read(tmp_path, files, environ={"HOST": "::1", "LEVEL": ""})
    assert (loaded.settings.server.host, loaded.settings.server.port) == ("::1", 8080)
    assert loaded.settings.log.level == "debug"


def test_an_unset_variable_is_an_error_at_its_place_and_disables_only_its_item(tmp_path: Path) -> None:
    files = {
        "harken.yaml": """
            integrations:
              one: {kind: pagerduty, token: '${ONE_TOKEN}'}
              two: {kind: pagerduty, token: '${TWO_TOKEN}'}
            """,
        "workflows/a.yaml": workflow("a", poll("${BASE}/items")),
        "workflows/b.yaml": workflow("b", poll()),
    }
    loaded = read(tmp_path, files, environ={"TWO_TOKEN": "t2"})
    assert lines(loaded.findings) == [
        "harken.yaml:2:33: integrations.one.token: the environment has no ONE_TOKEN. "
        "Set ONE_TOKEN, or write ${ONE_TOKEN:-default}",
        "workflows/a.yaml:2:50: trigger.poll.query.url: the environment has no BASE. "
        "Set BASE, or write ${BASE:-default}",
    ]
    assert set(loaded.integrations) == {"two", "json"}
    assert set(loaded.workflows) == {"b"}


def test_an_unset_variable_is_reported_once_and_not_for_what_it_leaves_behind(tmp_path: Path) -> None:
    loaded = read(tmp_path, {"harken.yaml": "server: {port: '${PORT}'}\nretention: {events: '${KEEP}'}"})
    assert codes(loaded.findings) == ["unset", "unset"]


def test_templates_and_escapes_are_left_as_they_are(tmp_path: Path) -> None:
    loaded = read(tmp_path, {"workflows/w.yaml": prompt("{{.x}} $5 $x $${HOME} {field}")})
    assert loaded.workflows["w"].definition["steps"][0]["prompt"] == "{{.x}} $5 $x ${HOME} {field}"


@pytest.mark.parametrize(
    "text", ["${}", "${a b}", "${a.b}", "${HOME", "${{ x }}", "${1A}", "${file:}", "${file:none.txt}", "${secret:x}"]
)
def test_what_is_no_reference_is_an_error_with_a_hint(tmp_path: Path, text: str) -> None:
    loaded = read(tmp_path, {"workflows/w.yaml": prompt(text)})
    assert loaded.findings[0].severity == "error"
    assert loaded.findings[0].fix
    assert not loaded.workflows


def test_files_are_read_beside_the_configuration_without_their_last_line_end(tmp_path: Path) -> None:
    files = {
        "harken.yaml": "integrations: {pd: {kind: pagerduty, token: '${file:run/token}'}}",
        "run/token": "abcdef\n",
    }
    loaded = read(tmp_path, files)
    assert loaded.integrations["pd"].model.token.get_secret_value() == "abcdef"  # type: ignore[union-attr]
    assert "abcdef" in loaded.secrets


@pytest.mark.parametrize("path", ["run", "/dev/zero", "big", "binary", "~nobody-at-all/x", "a\\0b"])
def test_files_that_cannot_be_used_are_errors(tmp_path: Path, path: str) -> None:
    files: dict[str, str | bytes] = {
        "harken.yaml": f'http: {{proxy: "${{file:{path}}}"}}',
        "run/x": "",
        "big": "x" * 1_100_000,
        "binary": b"\xff\xfe",
    }
    loaded = read(tmp_path, files)
    assert codes(loaded.blocking) == ["unset"]


def test_secrets_come_from_where_they_are_stored(tmp_path: Path) -> None:
    files = {"harken.yaml": "integrations: {pd: {kind: pagerduty, token: '${secret:pager}'}}"}
    loaded = read(tmp_path, files, secrets={"pager": "s3cret-pager"}.get)
    assert loaded.integrations["pd"].model.token.get_secret_value() == "s3cret-pager"  # type: ignore[union-attr]


def test_no_finding_shows_a_secret(tmp_path: Path) -> None:
    files = {
        "harken.yaml": """
            retention: {events: '${MY_TOKEN}'}
            log: {level: '${MY_TOKEN}'}
            server: {port: '${MY_TOKEN}'}
            store: '${MY_TOKEN}://x'
            """,
        "workflows/w.yaml": workflow("w", "poll: {integration: '${MY_TOKEN}', interval: '${MY_TOKEN}'}"),
    }
    loaded = read(tmp_path, files, environ={"MY_TOKEN": "it's hunter2"})
    assert len(loaded.findings) >= 6
    assert "hunter2" not in repr(loaded)


def test_what_is_stored_holds_references_in_place_of_secrets(tmp_path: Path) -> None:
    query = "{url: 'https://x.example/?t=${API_TOKEN}', headers: {Authorization: 'Bearer ${API_TOKEN}'}}"
    trigger = f"poll: {{integration: json, query: {query}}}"
    steps = "- {id: one, action: http, url: 'https://x.example', headers: {x-key: '${API_TOKEN}'}}"
    loaded = read(
        tmp_path, {"workflows/w.yaml": workflow("w", trigger, steps)}, environ={"API_TOKEN": "hunter2hunter2"}
    )
    assert not loaded.findings
    assert "hunter2" not in repr(loaded.definitions()) + repr(loaded)
    definition = loaded.workflows["w"].definition
    assert definition["steps"][0]["headers"] == {"x-key": "${API_TOKEN}"}
    assert loaded.reveal(definition)["steps"][0]["headers"] == {"x-key": "hunter2hunter2"}
    (feed,) = [feed for feed in loaded.feeds if feed.kind == "json"]
    assert feed.query["url"] == "https://x.example/?t=${API_TOKEN}"
    query_model: Any = loaded.queries[feed.name]
    assert query_model.headers["Authorization"].get_secret_value() == "Bearer hunter2hunter2"


def test_a_rotated_token_changes_neither_feed_nor_workflow(tmp_path: Path) -> None:
    files = {"workflows/w.yaml": workflow("w", poll("https://x.example/?t=${API_TOKEN}"))}
    before = read(tmp_path, files, environ={"API_TOKEN": "first-token"})
    after = read(tmp_path, files, environ={"API_TOKEN": "second-token"})
    assert before.definitions() == after.definitions()


@pytest.mark.parametrize("trigger", ["condition: \"event.x == '${A_TOKEN}'\"", "input_mapping: {x: '${A_TOKEN}'}"])
def test_a_secret_in_what_is_stored_with_runs_is_refused(tmp_path: Path, trigger: str) -> None:
    loaded = read(
        tmp_path, {"workflows/w.yaml": workflow("w", f"api: true, {trigger}")}, environ={"A_TOKEN": "hunter2"}
    )
    assert "a secret cannot stand here" in lines(loaded.findings)[0]


def test_secrets_that_stand_in_the_file_are_not_stored_either(tmp_path: Path) -> None:
    files = {
        "harken.yaml": "integrations: {pd: {kind: pagerduty, token: written-token}}",
        "workflows/h.yaml": workflow("h", "webhook: {secret: written-secret}"),
        "workflows/p.yaml": workflow(
            "p",
            "poll: {integration: json, query: {url: 'https://x', headers: {authorization: Bearer written-header}}}",
        ),
    }
    loaded = read(tmp_path, files)
    assert "written" not in repr(loaded)
    assert {"written-token", "written-secret", "written-header"} <= loaded.secrets


@pytest.mark.parametrize("path", ["{out}/token", "../outside/token", "link", "linked/token", "~/token"])
def test_a_file_reference_stays_below_the_configuration_directory_unless_allowed(tmp_path: Path, path: str) -> None:
    outside, home = tmp_path / "outside", tmp_path / "home"
    outside.mkdir()
    home.mkdir()
    (outside / "token").write_text("abcdef")
    (home / "link").symlink_to(outside / "token")
    (home / "linked").symlink_to(outside)
    given = path.replace("{out}", str(outside)).replace("~", str(outside))
    main = f"integrations: {{pd: {{kind: pagerduty, token: '${{file:{given}}}'}}}}\n"
    loaded = read(home, {"harken.yaml": main})
    (finding,) = loaded.findings
    assert (finding.code, finding.message) == ("unset", f"{given} is outside the directory of harken.yaml")
    assert "files: {allow:" in finding.fix
    for allowed in (str(outside), "../outside"):
        loaded = read(home, {"harken.yaml": f"{main}files: {{allow: ['{allowed}']}}\n"})
        assert loaded.integrations["pd"].model.token.get_secret_value() == "abcdef"  # type: ignore[union-attr]


def test_a_directory_whose_name_begins_like_ours_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home2").mkdir()
    (tmp_path / "home2/token").write_text("abcdef")
    loaded = read(tmp_path / "home", {"workflows/w.yaml": prompt("${file:../home2/token}")})
    assert codes(loaded.findings) == ["unset"]

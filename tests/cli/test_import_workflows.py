"""`harken import crontab`, `changedetection` and `n8n`: what they print loads, and nothing is overwritten."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from pathlib import Path

import pytest

from harken.cli.root import run
from harken.config.env_file import environment_of
from harken.operate.import_workflows import import_changedetection, import_crontab, import_n8n, local_zone
from harken.operate.load_and_check_configuration import load_directory

EXPORTS = Path(__file__).parents[1] / "config" / "importers" / "n8n"
CRONTAB = "# nightly\n30 2 * * * /usr/local/bin/backup.sh\n@reboot x\n"
WATCH = {"url": "https://shop.example/boots", "title": "Boots", "include_filters": ["p.price"]}
STORE = {
    "watching": {"u1": WATCH},
    "settings": {"application": {"notification_urls": ["tgram://123:secret-token/77"]}},
}
ACCOUNTS = {
    "SLACK_BOT_TOKEN": "xoxb-1-1-x",
    "TELEGRAM_BOT_TOKEN": "123456:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghi",
    "SMTP_HOST": "smtp.example",
    "SMTP_FROM": "a@smtp.example",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def errors(home: Path, **variables: str) -> list[str]:
    loaded = load_directory(home, {**os.environ, **ACCOUNTS, **variables})
    return [str(finding) for finding in loaded.findings if finding.severity == "error"]


@pytest.mark.parametrize("file", sorted(EXPORTS.glob("*.json")), ids=lambda file: file.stem)
def test_what_is_made_of_each_export_of_n8n_loads(file: Path, home: Path) -> None:
    made = import_n8n(file, home)
    assert made["written"]
    values = {variable["name"]: "https://stand-in.example" for variable in made["variables"]}
    assert errors(home, **values) == []
    assert not any("does not load" in finding["text"] for finding in made["findings"])


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("crontab", "# nothing but a note\n"),
        ("changedetection", '{"watching": {}}'),
        ("n8n", '{"nodes": [], "connections": {}}'),
    ],
)
def test_a_file_in_which_nothing_is_says_so(
    what: str, text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "file").write_text(text)
    assert run(["import", what, str(home / "file")]) != 0
    assert "there is nothing in" in capsys.readouterr().err


def test_crontab_is_written_with_what_it_needs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "crontab").write_text(CRONTAB)
    command = ["--config", str(home), "import", "crontab", str(home / "crontab"), "--tz", "Europe/Berlin"]
    assert run(command) == 1
    said = capsys.readouterr()
    assert said.out.startswith("# workflows/backup.yaml\nname: backup\n")
    assert "crontab:3:1: @reboot" in said.err
    assert run([*command, "--write"]) == 1
    assert (home / "harken.yaml").read_text() == "steps:\n  allow_shell: true\n"
    assert errors(home) == []


def test_no_workflow_is_overwritten_and_then_none_is_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "crontab").write_text("@daily first\n@daily second\n")
    (home / "workflows").mkdir()
    (home / "workflows" / "second.yaml").write_text("# mine\n")
    assert run(["--config", str(home), "import", "crontab", str(home / "crontab"), "--write"]) == 1
    assert "workflows/second.yaml is there already" in capsys.readouterr().err
    assert [file.name for file in (home / "workflows").iterdir()] == ["second.yaml"]
    assert (home / "workflows" / "second.yaml").read_text() == "# mine\n"


def test_settings_that_are_there_stay_and_it_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "harken.yaml").write_text("# mine\n")
    (home / "crontab").write_text("@daily first\n")
    assert run(["--config", str(home), "import", "crontab", str(home / "crontab"), "--write"]) == 0
    said = capsys.readouterr()
    assert "harken.yaml is there already and was left as it is" in said.err
    assert "allow_shell: true" in said.out
    assert (home / "harken.yaml").read_text() == "# mine\n"


def test_secrets_of_a_datastore_are_written_to_a_private_file_and_nowhere_else(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "w.json").write_text(json.dumps(STORE))
    assert run(["--config", str(home), "import", "changedetection", str(home / "w.json"), "--write", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["variables"] == [{"name": "CHANGEDETECTION_TGRAM", "meaning": "a notification address, tgram://…"}]
    assert "secret-token" not in json.dumps(made)
    assert (home / ".env").read_text() == "CHANGEDETECTION_TGRAM='tgram://123:secret-token/77'\n"
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    assert "secret-token" not in (home / "harken.yaml").read_text() + (home / "workflows" / "boots.yaml").read_text()
    assert errors(home, CHANGEDETECTION_TGRAM="tgram://123:secret-token/77") == []


def test_a_system_crontab_is_noticed_by_the_users_of_this_machine(home: Path) -> None:
    (home / "crontab").write_text("@daily root run-parts /etc/cron.daily\n")
    (finding,) = import_crontab(home / "crontab")["findings"]
    assert "Import it once more with --system" in finding["text"]


def test_secrets_of_a_crontab_are_written_to_a_private_file_and_nowhere_else(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "crontab").write_text("API_TOKEN=not-for-everybody\n@daily sync\n")
    command = ["--config", str(home), "import", "crontab", str(home / "crontab")]
    assert run(command) == 0
    assert "CRONTAB_API_TOKEN must be set" in capsys.readouterr().err
    assert run([*command, "--write"]) == 0
    assert "CRONTAB_API_TOKEN is in .env" in capsys.readouterr().err
    assert (home / ".env").read_text() == "CRONTAB_API_TOKEN='not-for-everybody'\n"
    assert "not-for-everybody" not in (home / "workflows" / "sync.yaml").read_text()
    assert errors(home, CRONTAB_API_TOKEN="not-for-everybody") == []


def test_of_a_watch_that_is_left_out_nothing_has_to_be_set(home: Path) -> None:
    watch = {"url": "file:///etc/passwd", "headers": {"Cookie": "sid=1"}, "notification_urls": ["discord://a/b"]}
    (home / "w.json").write_text(json.dumps({"watching": {"u1": watch, "u2": {"url": "https://x.example"}}}))
    made = import_changedetection(home / "w.json")
    assert [workflow["name"] for workflow in made["workflows"]] == ["x-example"]
    assert made["variables"] == []


def test_findings_are_in_the_order_of_the_lines(home: Path) -> None:
    (home / "crontab").write_text("61 * * * * one\n@reboot two\n0 12 ? * MON three\n")
    made = import_crontab(home / "crontab")
    assert [finding["text"].split(":")[1] for finding in made["findings"]] == ["1", "2", "3"]


@pytest.mark.parametrize("value", ["plain://a", "it's", "back\\slash", 'say "hi"'])
def test_what_env_has_is_what_the_file_had(value: str, home: Path) -> None:
    store = {"watching": {"u1": {"url": "https://x.example", "headers": {"Cookie": value}}}}
    (home / "w.json").write_text(json.dumps(store))
    assert run(["--config", str(home), "import", "changedetection", str(home / "w.json"), "--write"]) == 0
    with environment_of(home):
        assert os.environ["X_EXAMPLE_COOKIE"] == value


def test_a_backup_and_a_data_directory_are_read_like_the_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = home / "data"
    (data / "u1").mkdir(parents=True)
    (data / "u1" / "watch.json").write_text(json.dumps(WATCH))
    (data / "changedetection.json").write_text(json.dumps({"settings": STORE["settings"]}))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("url-watches.json", json.dumps(STORE))
    (home / "backup.zip").write_bytes(packed.getvalue())
    (home / "w.json").write_text(json.dumps(STORE))
    printed = []
    for source in ("data", "backup.zip", "w.json"):
        assert run(["--config", str(home), "import", "changedetection", str(home / source)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2]
    assert "selector: p.price" in printed[0]


@pytest.mark.parametrize("kind", ["crontab", "changedetection", "n8n"])
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"PK\x03\x04 no archive", b'{"a": '])
def test_a_file_that_is_something_else_is_told(
    kind: str, content: bytes, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "file").write_bytes(content)
    assert run(["--config", str(home), "import", kind, str(home / "file"), "--write"]) == 1
    said = capsys.readouterr().err
    assert said and "Traceback" not in said and "unexpected" not in said
    assert [file.name for file in home.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["crontab", "changedetection", "n8n"])
def test_a_file_that_is_not_there_is_told(kind: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", kind, str(home / "none")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_the_zone_of_this_machine_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert local_zone() == "Asia/Tokyo"
    monkeypatch.delenv("TZ")
    assert local_zone()

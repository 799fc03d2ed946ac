"""What workflow files compile to is kept: a load with it gives what one without it gives, whatever has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from harken.config.compiled_workflow_file_cache import MAGIC, KeptForms
from harken.config.loaded import Loaded
from harken.config.loader import load
from harken.operate.load_and_check_configuration import load_directory
from tests.config.makers import PLUGINS, accept, codes, poll, workflow, write

ROOT = Path(__file__).parents[2]
DIRECTORIES = sorted({path.parent.parent for path in ROOT.glob("examples/**/workflows/*.yaml")})
MAIN = """
integrations:
  pager: {kind: pagerduty, token: "${PAGER_TOKEN}"}
feeds:
  news: {integration: json, query: {url: "https://${HOST}/news"}, interval: 1m}
"""
FILES: Mapping[str, str] = {
    "harken.yaml": MAIN,
    "workflows/plain.yaml": workflow("plain", poll()),
    "workflows/cron.yaml": workflow("cron"),
    "workflows/named.yaml": workflow("named", "feed: news"),
    "workflows/host.yaml": workflow("host", poll("https://${HOST}/items")),
    "workflows/hidden.yaml": workflow(
        "hidden",
        "poll: {integration: json, query: {url: 'https://a.example/', headers: {authorization: '${API_TOKEN}'}}}",
    ),
    "workflows/open.yaml": workflow(
        "open", "poll: {integration: json, query: {url: 'https://a.example/', headers: {authorization: openly-told}}}"
    ),
    "workflows/hook.yaml": workflow("hook", "webhook: {secret: '${secret:hook}'}"),
    "workflows/pager.yaml": workflow("pager", "poll: {integration: pager, query: {user_id: P1}}"),
    "workflows/escaped.yaml": workflow("escaped", poll("https://a.example/$${API_TOKEN}")),
    "workflows/nested/manual.yaml": "name: manual\nsteps:\n  - {id: one, action: llm, prompt: '${API_TOKEN}'}\n",
    "workflows/wrong.yaml": workflow("wrong", "poll: {integration: nowhere}"),
    "workflows/odd.yaml": workflow("odd", "poll: {integration: pager, query: {}}"),
}
ENVIRON = {"HOST": "one.example", "API_TOKEN": "first-token-1", "PAGER_TOKEN": "pager-token-1"}
SECRETS = {"hook": "whsec-1"}


def read(directory: Path, kept: KeptForms | None, environ: Mapping[str, str], secrets: Mapping[str, str]) -> Loaded:
    return load(
        directory,
        plugins=PLUGINS,
        environ=environ,
        secrets=secrets.get,
        check_condition=accept,
        check_template=accept,
        check_key=accept,
        kept=kept,
    )


def compare(directory: Path, environ: Mapping[str, str] = ENVIRON, secrets: Mapping[str, str] = SECRETS) -> int:
    """Load with what is kept and without, and keep what was compiled. Returns how many files were not compiled."""
    kept = KeptForms(directory / "forms")
    found = read(directory, kept, environ, secrets)
    assert found == read(directory, None, environ, secrets)
    kept.save(worth=1)
    return kept.restored


@pytest.fixture
def site(tmp_path: Path) -> Path:
    directory = write(tmp_path / "site", FILES)
    assert compare(directory) == 0
    return directory


def test_what_is_good_and_holds_no_secret_is_not_compiled_again(site: Path) -> None:
    without = {"open", "escaped", "wrong", "odd"}
    kept = KeptForms(site / "forms")
    read(site, kept, ENVIRON, SECRETS)
    assert kept.restored == len(FILES) - 1 - len(without)


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_an_example_is_the_same_with_and_without(directory: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    files = [path for path in directory.rglob("*") if path.suffix in (".yaml", ".json") and path.is_file()]
    write(site, {path.relative_to(directory).as_posix(): path.read_bytes() for path in files})
    without = load_directory(site, {})
    _keep_all(site)
    assert load_directory(site, {}) == without


def _keep_all(site: Path) -> None:
    from harken.config.compiled_workflow_file_cache import forms_beside
    from harken.services import registry

    kept = forms_beside(site / "harken.db")
    load(site, plugins=registry(), environ={}, kept=kept)
    kept.save(worth=1)


@pytest.mark.parametrize(
    ("change", "compiled"),
    [
        pytest.param({"HOST": "two.example"}, 2, id="a variable, in a file and in the feed of another"),
        pytest.param({"API_TOKEN": "second-token-2"}, 0, id="a secret"),
        pytest.param({"PAGER_TOKEN": "pager-token-2"}, 0, id="the secret of an account"),
        pytest.param({"API_TOKEN": "pager-token-1"}, 1, id="two secrets that are equal"),
        pytest.param({"API_TOKEN": ""}, 2, id="a secret that is empty now"),
        pytest.param({"API_TOKEN": "a.example"}, 1, id="a secret that stands in other texts"),
    ],
)
def test_a_changed_environment_is_seen(site: Path, change: Mapping[str, str], compiled: int) -> None:
    before = compare(site)
    assert compare(site, {**ENVIRON, **change}) == before - compiled


def test_a_secret_that_is_gone_is_found_missing(site: Path) -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != "API_TOKEN"}
    compare(site, environ)
    assert "unset" in codes(read(site, KeptForms(site / "forms"), environ, SECRETS).findings)


def test_an_account_that_is_gone_is_missed(site: Path) -> None:
    write(site, {"harken.yaml": MAIN.replace("pager:", "other:")})
    compare(site)
    assert "workflow:pager" in read(site, KeptForms(site / "forms"), ENVIRON, SECRETS).refused


def test_of_two_files_with_one_name_neither_runs(site: Path) -> None:
    write(site, {"workflows/twice.yaml": FILES["workflows/plain.yaml"]})
    compare(site)
    compare(site)
    assert "plain" not in read(site, KeptForms(site / "forms"), ENVIRON, SECRETS).workflows


def test_forty_random_changes_give_the_same_with_and_without(site: Path) -> None:
    random, environ, secrets = Random(18), dict(ENVIRON), dict(SECRETS)
    names = [name for name in FILES if name.startswith("workflows/")]

    def edit() -> None:
        name = random.choice(names)
        write(site, {name: FILES[name] + f"# {random.random()}\n"})

    def swap() -> None:
        one, other = random.sample(names, 2)
        write(site, {one: FILES[other], other: FILES[one]})

    def remove() -> None:
        (site / random.choice(names)).unlink(missing_ok=True)

    def change_environ() -> None:
        environ[random.choice(list(ENVIRON))] = random.choice(["", "first-token-1", "a.example", "third-token"])

    def change_secret() -> None:
        secrets["hook"] = random.choice(["whsec-1", "whsec-2", "first-token-1"])

    def change_main() -> None:
        write(site, {"harken.yaml": MAIN.replace("1m", f"{random.randint(1, 3)}m")})

    changes: list[Callable[[], None]] = [edit, swap, remove, change_environ, change_secret, change_main]
    restored = 0
    for _ in range(40):
        random.choice(changes)()
        restored += compare(site, environ, secrets)
    assert restored > 100


def test_no_secret_is_in_the_file(site: Path) -> None:
    content = (site / "forms").read_bytes()
    assert b"plain" in content
    for secret in (*ENVIRON.values(), *SECRETS.values(), "openly-told"):
        assert (secret.encode() in content) is (secret == "one.example")
    assert (site / "forms").stat().st_mode & 0o777 == 0o600


def _signed(payload: bytes) -> bytes:
    return MAGIC + hashlib.sha256(payload).digest() + payload


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: content[: len(content) // 2], id="cut off"),
        pytest.param(lambda content: content.replace(b"plain", b"plaim", 1), id="a changed letter"),
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: b"\x80\x04" + content, id="something else"),
        pytest.param(lambda content: _signed(msgspec.msgpack.encode(["other code", {}])), id="of other code"),
        pytest.param(lambda content: _signed(msgspec.msgpack.encode({"forms": 3})), id="of another form"),
        pytest.param(lambda content: _signed(b"\x91" * 100_000), id="deep"),
    ],
)
def test_a_damaged_or_foreign_file_is_ignored_and_replaced(site: Path, damage: Callable[[bytes], bytes]) -> None:
    path = site / "forms"
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert compare(site) == 0
    assert path.read_bytes() == good


def test_a_file_that_others_may_write_is_ignored(site: Path) -> None:
    (site / "forms").chmod(0o666)
    assert compare(site) == 0


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    kept = KeptForms(tmp_path / "nowhere" / "forms")
    directory = write(tmp_path, FILES)
    read(directory, kept, ENVIRON, SECRETS)
    kept.save(worth=1)
    assert not (tmp_path / "nowhere").exists()


def test_a_change_of_one_file_of_many_writes_nothing(site: Path) -> None:
    before = (site / "forms").stat().st_mtime_ns
    write(site, {"workflows/plain.yaml": FILES["workflows/plain.yaml"] + "\n"})
    kept = KeptForms(site / "forms")
    read(site, kept, ENVIRON, SECRETS)
    kept.save()
    assert (site / "forms").stat().st_mtime_ns == before


def _kept_by_start(directory: Path) -> Any:
    return load_directory(directory, {}, keep=True)


def test_the_next_load_of_a_directory_with_many_workflows_uses_what_the_first_kept(tmp_path: Path) -> None:
    many = {f"workflows/w{n}.yaml": workflow(f"w{n}", poll(f"https://a.example/{n}")) for n in range(25)}
    directory = write(tmp_path / "site", many)
    first = _kept_by_start(directory)
    assert (directory / "harken.db.compiled").exists()
    assert load_directory(directory, {}) == first

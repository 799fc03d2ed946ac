"""A workflow file is replaced as a whole or not at all, and nothing outside workflows/ is read or written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harken.config.workflow_file_io import LARGEST, NEW, obstacle, read_file, replace_file, revision_of
from harken.errors import NotFound, Outdated, Refused

FILE = "workflows/deploys.yaml"
OLD, MORE = b"name: deploys\n", b"name: deploys\nsteps: []\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "workflows").mkdir()
    (tmp_path / FILE).write_bytes(OLD)
    return tmp_path


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory / "workflows"))


def test_a_file_is_replaced_and_keeps_its_mode(directory: Path) -> None:
    (directory / FILE).chmod(0o640)
    replace_file(directory, FILE, MORE, expect=revision_of(OLD))
    assert read_file(directory, FILE) == MORE
    assert stat.S_IMODE((directory / FILE).stat().st_mode) == 0o640
    assert names(directory) == ["deploys.yaml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_a_file_keeps_its_owner_and_group(directory: Path) -> None:
    os.chown(directory / FILE, 65534, 65533)
    replace_file(directory, FILE, MORE, expect=revision_of(OLD))
    found = (directory / FILE).stat()
    assert (found.st_uid, found.st_gid) == (65534, 65533)


def test_a_file_of_another_user_is_not_replaced(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: (directory / FILE).stat().st_uid + 1)
    assert obstacle(directory, FILE) == f"{FILE} belongs to another user than the one Harken runs as"
    with pytest.raises(Refused, match="another user"):
        replace_file(directory, FILE, MORE, expect=revision_of(OLD))
    assert (directory / FILE).read_bytes() == OLD


def test_a_file_that_was_changed_meanwhile_is_left_alone(directory: Path) -> None:
    (directory / FILE).write_bytes(b"by an editor")
    with pytest.raises(Outdated, match="was changed meanwhile"):
        replace_file(directory, FILE, MORE, expect=revision_of(OLD))
    assert (directory / FILE).read_bytes() == b"by an editor"


def test_a_new_file_is_made_only_where_there_is_none(directory: Path) -> None:
    replace_file(directory, "workflows/other.yaml", MORE, expect=NEW)
    assert (directory / "workflows/other.yaml").read_bytes() == MORE
    with pytest.raises(Outdated):
        replace_file(directory, FILE, MORE, expect=NEW)


@pytest.mark.parametrize(
    "file",
    ["../secrets.yaml", "/etc/passwd", "harken.yaml", "workflows", "workflows/../harken.yaml", "workflows/a\0", ""],
)
def test_nothing_outside_of_workflows_is_touched(directory: Path, file: str) -> None:
    with pytest.raises(Refused, match="is no file below workflows/"):
        read_file(directory, file)
    with pytest.raises(Refused, match="is no file below workflows/"):
        replace_file(directory, file, MORE, expect=NEW)


def test_a_link_is_not_followed(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.yaml").write_bytes(OLD)
    (directory / "workflows/linked.yaml").symlink_to(outside / "secret.yaml")
    (directory / "workflows/folder").symlink_to(outside)
    for file in ("workflows/linked.yaml", "workflows/folder/secret.yaml"):
        assert "is a symbolic link" in obstacle(directory, file)
        with pytest.raises(Refused, match="is a symbolic link"):
            read_file(directory, file)
        with pytest.raises(Refused, match="is a symbolic link"):
            replace_file(directory, file, MORE, expect=revision_of(OLD))
    assert (outside / "secret.yaml").read_bytes() == OLD


def test_what_is_no_file_or_too_large_is_not_read(directory: Path) -> None:
    os.mkfifo(directory / "workflows/pipe.yaml")
    (directory / "workflows/large.yaml").write_bytes(b"#" * (LARGEST + 1))
    with pytest.raises(Refused, match="not a regular file"):
        read_file(directory, "workflows/pipe.yaml")
    with pytest.raises(Refused, match="larger than 256 kB"):
        read_file(directory, "workflows/large.yaml")
    with pytest.raises(NotFound):
        read_file(directory, "workflows/gone.yaml")


def test_a_directory_without_the_right_to_write_is_an_obstacle(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert obstacle(directory, FILE) == "Harken may not write in workflows/"
    with pytest.raises(Refused, match="may not write"):
        replace_file(directory, FILE, MORE, expect=revision_of(OLD))


KILLED = """
import os, pathlib, signal, sys
from harken.config.workflow_file_io import replace_file, revision_of
directory = pathlib.Path(sys.argv[1])
os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
replace_file(directory, sys.argv[2], b"half of it", expect=revision_of(b"name: deploys\\n"))
"""


def test_a_process_that_is_killed_before_the_rename_leaves_the_old_file(directory: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(directory), FILE], check=False)
    assert done.returncode == -9
    assert (directory / FILE).read_bytes() == OLD
    [leftover, kept] = names(directory)
    assert (leftover.startswith(".deploys.yaml."), kept) == (True, "deploys.yaml")
    replace_file(directory, FILE, MORE, expect=revision_of(OLD))
    assert names(directory) == ["deploys.yaml"]

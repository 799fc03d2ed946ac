"""What the tests bring for themselves, beside another clone that does the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.downloads import debian

APT_OF_A_MACHINE_THAT_HAS_IT = """#!/bin/sh
echo "$*" >> "$APT_CALLS"
case "$*" in
    *" download "*) echo "E: Handler silently failed" >&2; exit 100 ;;
esac
"""
"""Nothing is to be installed, and `download` without a name fails as the real one does."""


@pytest.mark.skipif(os.getuid() != 0, reason="only root installs")
def test_a_package_that_another_clone_installed_meanwhile_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt, calls, cache = tmp_path / "bin/apt-get", tmp_path / "calls", tmp_path / "cache"
    apt.parent.mkdir()
    apt.write_text(APT_OF_A_MACHINE_THAT_HAS_IT)
    apt.chmod(0o755)
    (cache / "debian/dovecot-imapd/usr/sbin").mkdir(parents=True)
    (cache / "debian/dovecot-imapd/usr/sbin/dovecot").touch()
    monkeypatch.setattr(debian, "cache", lambda: cache)
    monkeypatch.setattr("tests.downloads.cache", lambda: cache)
    monkeypatch.setenv("PATH", f"{apt.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("APT_CALLS", str(calls))
    debian.fetch("dovecot-imapd")
    last = calls.read_text().splitlines()[-1]
    assert last.startswith("install ") and last.endswith(" dovecot-imapd")

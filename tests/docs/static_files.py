"""The site as hosts of static files serve it: compressed, and to be kept by the browser."""

from __future__ import annotations

import gzip
import mimetypes
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.docs.wheel import ROOT

__all__ = ["StaticFiles", "build_site"]


def build_site(place: Path) -> Path:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(place)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return place


class StaticFiles(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any, directory: Path) -> None:
        self._directory = directory
        super().__init__(*args)

    def do_GET(self) -> None:
        path = self._directory / (self.path.partition("?")[0].strip("/") or "index.html")
        content = gzip.compress(path.read_bytes()) if path.is_file() else b""
        self.send_response(200 if content else 404)
        self.send_header("Content-Type", mimetypes.guess_type(path.name)[0] or "application/octet-stream")
        self.send_header("Content-Length", str(len(content)))
        if content:
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Cache-Control", "max-age=31536000")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        return None

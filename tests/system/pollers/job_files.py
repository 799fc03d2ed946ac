"""Configurations with jobs, as they are written in files."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from harken.config.loaded import Loaded
from harken.operate.load_and_check_configuration import load_directory

TOKEN = "123456:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghi"
MAIN = f"integrations: {{telegram: {{kind: telegram, token: '{TOKEN}'}}}}\n"


def write(directory: Path, **files: str) -> Path:
    """`main` is harken.yaml and `pollers` is pollers.yaml; the main file has a telegram account unless it is given."""
    directory.joinpath("harken.yaml").write_text(dedent(files.get("main", MAIN)))
    if "pollers" in files:
        directory.joinpath("pollers.yaml").write_text(dedent(files["pollers"]))
    return directory


def load(directory: Path, environ: dict[str, str] | None = None, **files: str) -> Loaded:
    return load_directory(write(directory, **files), environ or {})


def lines(loaded: Loaded) -> list[str]:
    return [f"{found.line}:{'.'.join(map(str, found.path[2:]))}: {found.message}" for found in loaded.findings]


def job(id: str = "blog", **changes: str) -> str:
    """One job in a line, as YAML's flow style lets one write it."""
    factory = {
        "kind": "rss",
        "agent": "ana",
        "schedule": "{every_secs: 600}",
        "config": "{feed_url: 'https://example.com/f.xml', deliver: {channel: telegram, to: '1'}}",
        **changes,
    }
    return f"{{id: {id}, {', '.join(f'{key}: {value}' for key, value in factory.items())}}}"


def jobs(*entries: str, settings: str = "") -> str:
    rows = "".join(f"    - {entry}\n" for entry in entries)
    return f"pollers:\n{settings}  jobs:\n{rows}"

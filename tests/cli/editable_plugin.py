"""A plugin package as if it had been installed with --editable, without asking anybody for a build."""

from __future__ import annotations

import tomllib
from pathlib import Path


def plugged(package: Path, site: Path) -> Path:
    """A folder for PYTHONPATH in which the modules and entry points are what the package's pyproject.toml says."""
    project = tomllib.loads((package / "pyproject.toml").read_text())
    name, version = project["project"]["name"], project["project"]["version"]
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    for file in project["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]:
        (site / file).symlink_to((package / file).absolute())
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = project["project"]["entry-points"]["harken.services"]
    lines = [f"{kind} = {value}\n" for kind, value in points.items()]
    (info / "entry_points.txt").write_text("[harken.services]\n" + "".join(lines))
    return site

"""Loads and checks the files of a configuration as they are now, without a store or a controller."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harken.errors import Misconfigured, NotFound
from harken.operate.plain import Plain
from harken.operate.site import findings
from harken.operate.words import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

    from harken.config.loaded import Loaded
    from harken.source import Plugin

__all__ = ["config_findings", "load_directory", "of_workflows", "workflow_findings"]


def load_directory(directory: Path, environ: Mapping[str, str] | None = None) -> Loaded:
    """The configuration, checked against the services and steps that are installed here."""
    from harken.config.load import load
    from harken.run.workflow import check_workflow
    from harken.services import registry

    plugins = registry()
    checker = partial(check_workflow, actions=_actions(plugins))
    return load(directory, plugins=plugins, check_workflow=checker, environ=os.environ if environ is None else environ)


def config_findings(directory: Path) -> list[Plain]:
    """Every finding in the directory's files."""
    return list(findings(_loaded(directory)))


def workflow_findings(directory: Path, name: str = "") -> list[Plain]:
    """The findings in the files of workflows: of one, by its name or its file's, or of all."""
    loaded = _loaded(directory)
    rows = of_workflows(list(findings(loaded)), name)
    if name and not rows and name not in loaded.workflows:
        raise NotFound(f"there is no workflow {name}", fix=did_you_mean(name, loaded.workflows))
    return rows


def of_workflows(rows: list[Plain], name: str = "") -> list[Plain]:
    mine = [row for row in rows if "workflows" in Path(row["file"]).parts]
    return [row for row in mine if name in ("", Path(row["file"]).stem, Path(row["file"]).name, row["file"])]


def _loaded(directory: Path) -> Loaded:
    if not directory.is_dir():
        raise Misconfigured(
            f"there is no directory {directory}", fix="Name one with --config, or begin with: harken init"
        )
    return load_directory(directory)


def _actions(plugins: Mapping[str, Plugin]) -> dict[str, type[BaseModel]]:
    return {f"{kind}.{name}": act.params for kind, plugin in plugins.items() for name, act in plugin.actions.items()}

"""Loads and checks the files of a configuration as they are now, without a store or a controller."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from harken.credentials import Credentials
from harken.errors import Misconfigured, NotFound
from harken.operate.output_rows import Plain
from harken.suggest import suggest_fix

if TYPE_CHECKING:
    from pydantic import BaseModel

    from harken.config.accounts import AccountStore
    from harken.config.findings import Finding
    from harken.config.loaded import Loaded
    from harken.config.stored_trigger_compiler import RowCompiler
    from harken.config.workflows import Checker
    from harken.config.yaml.nodes import Node
    from harken.source import Plugin

__all__ = [
    "Site",
    "all_rows",
    "config_findings",
    "credentials_of",
    "finding_row",
    "finding_rows",
    "findings_with",
    "is_configured",
    "load_directory",
    "only_workflows",
    "row_compiler",
    "site_findings",
    "site_of",
    "workflow_findings",
    "workflow_tree",
]


def load_directory(
    directory: Path,
    environ: Mapping[str, str] | None = None,
    *,
    stored: AccountStore | None = None,
    wanted: Iterable[str] = (),
    texts: Mapping[str, bytes] = MappingProxyType({}),
    keep: bool = False,
) -> Loaded:
    """The configuration, checked against the services and steps that are installed here.

    `stored` replaces the credential store; accounts in `wanted` are resolved even if nothing uses them. `texts` stand
    for the workflow files of these names. With `keep` what the workflows compile to is written beside the store, for
    the next load.
    """
    from harken.config.compiled_workflow_file_cache import forms_beside
    from harken.config.files import find_store
    from harken.config.loader import load
    from harken.config.settings import local_base
    from harken.services import registry

    plugins = registry()
    given = os.environ if environ is None else environ
    base = local_base(find_store(directory, given), directory)
    credentials, kept = Credentials(base, given), forms_beside(base)
    loaded = load(
        directory,
        plugins=plugins,
        checker_for=lambda kinds: _checker(plugins, kinds),
        environ=given,
        secrets=credentials.secret,
        stored=stored or credentials,
        wanted=wanted,
        texts=texts,
        kept=kept,
    )
    if keep:
        kept.save()
    return loaded


def row_compiler(files: Loaded, environ: Mapping[str, str] | None = None) -> RowCompiler:
    """What compiles the rows of the store beside these files, with the services and secrets that are here."""
    from harken.config.stored_trigger_compiler import RowCompiler
    from harken.services import registry

    plugins = registry()
    credentials = credentials_of(files.directory, environ)
    return RowCompiler(
        files,
        plugins,
        lambda kinds: _checker(plugins, kinds),
        environ=environ,
        secrets=credentials.reader(),
        stored=credentials,
    )


def credentials_of(directory: Path, environ: Mapping[str, str] | None = None) -> Credentials:
    """The credential store of the configuration in this directory."""
    from harken.config.files import find_store
    from harken.config.settings import local_base

    given = os.environ if environ is None else environ
    return Credentials(local_base(find_store(directory, given), directory), given)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where a configuration is on this machine, and where its controller listens. A server has no `store_path`."""

    directory: Path
    store_path: Path | None = None
    host: str = "127.0.0.1"
    port: int = 9091


def site_of(loaded: Loaded | None) -> Site:
    if loaded is None:
        return Site(directory=Path.cwd())
    from harken.config.settings import is_url

    return Site(
        directory=loaded.directory,
        store_path=None if is_url(loaded.store) else Path(loaded.store),
        host=loaded.settings.server.host,
        port=loaded.settings.server.port,
    )


def config_findings(directory: Path) -> list[Plain]:
    """Every finding in the directory's files."""
    return all_rows(_loaded(directory))


def is_configured(directory: Path) -> bool:
    """Whether the directory has any file that Harken reads, right or wrong."""
    from harken.config.loaded import MAIN
    from harken.config.pollers.load import LEGACY, POLLERS

    # harken.yml is not read, and says so
    names = (MAIN, "harken.yml", POLLERS, *LEGACY, "workflows")
    return any(os.path.lexists(directory / name) for name in names)


def site_findings(loaded: Loaded, texts: Mapping[str, bytes] = MappingProxyType({})) -> list[Finding]:
    """What the files cannot show alone: nothing to do, and steps whose model cannot be asked from here.

    `texts` stand for the workflow files of these names."""
    from harken.config.findings import Place, Report
    from harken.config.loaded import MAIN
    from harken.config.workflows import check_providers

    report = Report()
    if not (loaded.workflows or loaded.jobs or loaded.agents or loaded.refused):
        message = "there are no workflows and no poller jobs, so nothing will happen"
        report.warn(Place(MAIN), (), message, "Begin with: harken init", "missing")
    for name, workflow in loaded.workflows.items():
        tree = workflow_tree(loaded, name, texts)
        check_providers(workflow.definition.get("steps"), loaded.settings.models, tree, report)
    return report.findings


def workflow_tree(loaded: Loaded, workflow: str, texts: Mapping[str, bytes] = MappingProxyType({})) -> Node:
    """The file of a workflow, for the places in it; of a job, only its name."""
    from harken.config.files import read_tree
    from harken.config.findings import Place, Report
    from harken.config.interpolate import Lookup
    from harken.config.loaded import MAIN, item
    from harken.config.yaml.nodes import Scalar

    file = loaded.origins.get(item("workflow", workflow))
    lookup = Lookup(loaded.directory, os.environ)
    tree = read_tree(loaded.directory, file, lookup, Report(), texts.get(file)) if file else None
    origin = loaded.origins.get(item("poller", workflow), MAIN)
    return tree or Scalar(value=None, place=Place(file or origin))


def workflow_findings(directory: Path, name: str = "") -> list[Plain]:
    """The findings in workflow files: all of them, or those of one workflow or file name."""
    loaded = _loaded(directory)
    rows = only_workflows(all_rows(loaded), name)
    if name and not rows and name not in loaded.workflows:
        raise NotFound(f"there is no workflow {name}", fix=suggest_fix(name, loaded.workflows))
    return rows


def findings_with(directory: Path, texts: Mapping[str, bytes]) -> list[Plain]:
    """Every finding that there would be if workflow files of these names had these texts."""
    return all_rows(load_directory(directory, texts=texts), texts)


def all_rows(loaded: Loaded, texts: Mapping[str, bytes] = MappingProxyType({})) -> list[Plain]:
    """The findings of a configuration, and those of `site_findings`."""
    return [*finding_rows(loaded), *map(finding_row, site_findings(loaded, texts))]


def only_workflows(rows: list[Plain], name: str = "") -> list[Plain]:
    mine = [row for row in rows if "workflows" in Path(row["file"]).parts]
    return [row for row in mine if name in ("", Path(row["file"]).stem, Path(row["file"]).name, row["file"])]


def finding_rows(loaded: Loaded | None) -> Iterator[Plain]:
    """Each finding as a flat row; `text` is the whole line that a terminal shows."""
    for found in loaded.findings if loaded else ():
        yield finding_row(found)


def finding_row(found: Finding) -> Plain:
    return {
        "severity": found.severity,
        "code": found.code,
        "file": found.file,
        "line": found.line,
        "column": found.column,
        "path": list(found.path),
        "message": found.message,
        "fix": found.fix,
        "excerpt": found.excerpt,
        "text": str(found),
    }


def _loaded(directory: Path) -> Loaded:
    if not directory.is_dir():
        raise Misconfigured(
            f"there is no directory {directory}", fix="Name one with --config, or begin with: harken init"
        )
    return load_directory(directory)


def _checker(plugins: Mapping[str, Plugin], kinds: Mapping[str, str]) -> Checker:
    from harken.run.compiled_workflows import check_workflow

    return partial(check_workflow, actions=_Actions(plugins, kinds))


class _Actions(Mapping[str, "type[BaseModel]"]):
    """The parameter model of each action, by `jira.comment` (kind) or `jira-eu.comment` (account).

    A service is imported when one of its actions is looked up; listing all names imports every service.
    """

    def __init__(self, plugins: Mapping[str, Plugin], kinds: Mapping[str, str]) -> None:
        self._plugins = plugins
        self._kinds = kinds

    def __getitem__(self, name: str) -> type[BaseModel]:
        owner, _, verb = name.rpartition(".")
        return self._plugins[self._kinds.get(owner, owner)].actions[verb].params

    def __iter__(self) -> Iterator[str]:
        owners = {**{kind: kind for kind in self._plugins}, **self._kinds}
        for owner, kind in owners.items():
            if kind in self._plugins:
                yield from (f"{owner}.{verb}" for verb in self._plugins[kind].actions)

    def __len__(self) -> int:
        return sum(1 for _ in self)

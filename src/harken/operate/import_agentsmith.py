"""`harken import agentsmith`: translate an agentsmith.yml into the trackers and projects of harken.yaml."""

from __future__ import annotations

from pathlib import Path

from harken.operate.import_file_io import read_source, write_new
from harken.operate.load_and_check_configuration import finding_row
from harken.operate.output_rows import Plain

__all__ = ["import_agentsmith"]

TARGET = "harken.yaml"


def import_agentsmith(file: Path, into: Path | None = None) -> Plain:
    """The sections of an agentsmith.yml as YAML, written to harken.yaml in `into` if one is given.

    `findings` has everything that was not taken over. `missing` are the pipelines that have no workflow there yet.
    Nothing is overwritten.
    """
    from harken.config.agentsmith import as_yaml, translate
    from harken.config.findings import Report
    from harken.config.yaml.parser import parse

    report = Report()
    tree = parse(read_source(file, "an agentsmith.yml"), file.name, report)
    translated = translate(tree) if tree is not None else None
    findings = [*report.findings, *(translated.findings if translated else ())]
    text = as_yaml(translated) if translated and translated.values else ""
    pipelines = translated.pipelines if translated else ()
    return {
        "projects": list(translated.values.get("projects", {})) if translated else [],
        "pipelines": list(pipelines),
        "missing": [name for name in pipelines if into is None or not _has_workflow(into, name)],
        "findings": [finding_row(finding) for finding in findings],
        "yaml": text,
        "written": write_new(into / TARGET, text) if into is not None and text else "",
    }


def _has_workflow(directory: Path, name: str) -> bool:
    return any((directory / "workflows" / f"{name}{ending}").exists() for ending in (".yaml", ".yml"))

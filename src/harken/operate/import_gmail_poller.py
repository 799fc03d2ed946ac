"""`harken import gmail-poller`: translate a gmail-poller.yaml into jobs for pollers.yaml."""

from __future__ import annotations

from pathlib import Path

from harken.operate.import_file_io import read_source, write_new
from harken.operate.load_and_check_configuration import finding_row
from harken.operate.output_rows import Plain

__all__ = ["import_gmail_poller"]

TARGET = "pollers.yaml"


def import_gmail_poller(file: Path, into: Path | None = None) -> Plain:
    """The jobs of a gmail-poller.yaml as YAML, written to pollers.yaml in `into` if one is given.

    Jobs with an error are left out; `findings` tells why. Nothing is overwritten.
    """
    from harken.config.findings import Report
    from harken.config.pollers.legacy_gmail import as_yaml, translate
    from harken.config.yaml.nodes import to_storable
    from harken.config.yaml.parser import parse

    report = Report()
    tree = parse(read_source(file, "a gmail-poller.yaml"), file.name, report)
    translated = translate(tree) if tree is not None else None
    made = translated.jobs if translated else ()
    usable = [job for job in made if job.usable]
    findings = [*report.findings, *(translated.findings if translated else ())]
    findings += [finding for job in made for finding in job.found]
    text = as_yaml(usable) if usable else ""
    return {
        "jobs": [to_storable(job.node) for job in usable],
        "findings": [finding_row(finding) for finding in sorted(findings, key=lambda one: (one.line, one.column))],
        "yaml": text,
        "written": write_new(into / TARGET, text) if into is not None and usable else "",
    }

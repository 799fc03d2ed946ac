"""`harken import crontab`, `changedetection` and `n8n`: workflows from what was written for another program.

What was translated is loaded once as a configuration of its own before it is handed out: a workflow that would be
refused is left out, and the reason is a finding.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harken.errors import Refused
from harken.operate.import_file_io import read_source, write_new
from harken.operate.load_and_check_configuration import finding_row, load_directory
from harken.operate.output_rows import Plain
from harken.private_files import write_private

if TYPE_CHECKING:
    from harken.config.findings import Finding
    from harken.config.importers import Imported

__all__ = ["import_changedetection", "import_crontab", "import_n8n"]

LARGEST = 16_000_000
_MAIN, _ENVIRONMENT = "harken.yaml", ".env"
_WATCHES, _SETTINGS, _WATCH, _TAG = "url-watches.json", "changedetection.json", "watch.json", "tag.json"
_ZONE_FILES = ("/etc/timezone",)
_ZONE_LINK = "/etc/localtime"


def import_crontab(file: Path, into: Path | None = None, *, zone: str = "", system: bool = False) -> Plain:
    """A workflow for each job of a crontab. Without `zone`, cron lines count in the time zone of this machine."""
    from harken.config.importers.crontab import translate

    text = _text(read_source(file, "a crontab, such as: crontab -l > crontab.txt"), file)
    made = translate(text, file=file.name, zone=zone or local_zone(), system=system, is_user=_is_user)
    return _finish(made, file, into)


def import_n8n(file: Path, into: Path | None = None) -> Plain:
    """A workflow for each trigger node of an export."""
    from harken.config.importers.n8n import translate

    return _finish(translate(_text(read_source(file, "an export of n8n"), file), file=file.name), file, into)


def import_changedetection(path: Path, into: Path | None = None) -> Plain:
    """A workflow for each watch: of url-watches.json, a backup, the data directory, or a list of addresses."""
    from harken.config.importers.changedetection import translate

    return _finish(translate(_datastore(path), file=path.name), path, into)


def _is_user(name: str) -> bool:
    """Whether this machine has a user of this name, as most have root."""
    if name == "root":
        return True
    try:
        import pwd

        pwd.getpwnam(name)
    except (ImportError, KeyError, ValueError):
        return False
    return True


def local_zone() -> str:
    """The name of this machine's time zone; UTC where it has none."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named and "/" in named and not named.startswith("/"):
        return named
    for file in _ZONE_FILES:
        try:
            found = Path(file).read_text().strip()
        except OSError:
            continue
        if found:
            return found
    target = os.path.realpath(_ZONE_LINK)
    return target.partition("/zoneinfo/")[2].removeprefix("posix/") or "UTC"


def _text(data: bytes, file: Path) -> str:
    if len(data) > LARGEST:
        raise Refused(f"{file} has more than {LARGEST // 1_000_000} MB", fix="Divide it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8 text", fix="Give the file itself, not an archive of it") from error


def _datastore(path: Path) -> Any:
    from harken.config.importers.changedetection import document_of_list

    if path.is_dir():
        return _assemble({str(one.relative_to(path)): one.read_bytes for one in _json_files(path)}, path)
    data = read_source(path, "url-watches.json, a backup or a list of addresses")
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                members = {one.filename: one for one in archive.infolist() if one.file_size <= LARGEST}
                return _assemble({name: partial(archive.read, one) for name, one in members.items()}, path)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise Refused(f"{path} is not a backup that can be read", fix="Make it again") from error
    text = _text(data, path)
    return _loaded(text, path) if text.lstrip()[:1] in ("{", "[") else document_of_list(text)


def _json_files(path: Path) -> list[Path]:
    wanted = (_WATCHES, _SETTINGS, f"*/{_WATCH}", f"*/{_TAG}")
    return [file for pattern in wanted for file in sorted(path.glob(pattern)) if file.stat().st_size <= LARGEST]


def _assemble(files: Mapping[str, Callable[[], bytes]], path: Path) -> Any:
    """Newer versions keep each watch in a file of its own; older ones have all in one."""
    names = {name.rsplit("/", 1)[-1]: name for name in files}
    if _WATCHES in names:
        return _loaded(_text(files[names[_WATCHES]](), path), path)
    watching: dict[str, Any] = {}
    tags: dict[str, Any] = {}
    for name, read in sorted(files.items()):
        for kind, found in ((_WATCH, watching), (_TAG, tags)):
            if name.endswith(f"/{kind}"):
                found[name.split("/")[-2]] = _loaded(_text(read(), path), path)
    if not watching:
        raise Refused(f"there are no watches in {path}", fix=f"Give the directory that has {_WATCHES}")
    main = _loaded(_text(files[names[_SETTINGS]](), path), path) if _SETTINGS in names else {}
    settings = main.get("settings", {}) if isinstance(main, dict) else {}
    application = settings.setdefault("application", {}) if isinstance(settings, dict) else {}
    if isinstance(application, dict):
        known = application.get("tags")
        application["tags"] = {**known, **tags} if isinstance(known, dict) else tags
    return {"watching": watching, "settings": settings}


def _loaded(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not JSON", fix="Give the file as the program wrote it") from error


def _finish(imported: Imported, source: Path, into: Path | None) -> Plain:
    from harken.config.yaml.writer import to_yaml

    if not imported.workflows and not imported.findings:
        raise Refused(
            f"there is nothing in {source} that could become a workflow", fix="Look whether it is the right file"
        )
    usable, refused = _checked(imported)
    files = {f"workflows/{name}.yaml": to_yaml(dict(imported.workflows[name])) for name in usable}
    settings = to_yaml(dict(imported.settings)) if imported.settings and usable else ""
    findings = sorted([*imported.findings, *refused], key=lambda finding: (finding.line, finding.column))
    # of those that only workflows have which were left out, nobody needs to know
    variables = {
        name: one for name, one in imported.variables.items() if f"${{{name}}}" in "".join((*files.values(), settings))
    }
    made: Plain = {
        "workflows": [
            {"name": name, "file": file, "yaml": text} for name, (file, text) in zip(usable, files.items(), strict=True)
        ],
        "settings": settings,
        "variables": [{"name": name, "meaning": one.meaning} for name, one in variables.items()],
        "findings": [finding_row(finding) for finding in findings],
        "written": [],
        "not_written": [],
        "set": [],
    }
    if into is not None and usable:
        values = {name: one.value for name, one in variables.items()}
        made["written"], made["not_written"] = _write(into, files, settings, values)
        if str(into / _ENVIRONMENT) in made["written"]:
            made["set"] = [name for name, value in values.items() if _quoted(value)]
    return made


def _write(
    into: Path, files: Mapping[str, str], settings: str, variables: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Write all workflows or none. harken.yaml and .env are written only where there are none."""
    there = [name for name in files if (into / name).exists()]
    if there:
        raise Refused(
            f"{', '.join(there[:5])} {'is' if len(there) == 1 else 'are'} there already",
            fix="Nothing was written. Move them away, or leave --write out and paste what is printed",
        )
    written = [write_new(into / name, text) for name, text in files.items()]
    left = []
    if settings and (into / _MAIN).exists():
        left.append(_MAIN)
    elif settings:
        written.append(write_new(into / _MAIN, settings))
    if variables and (into / _ENVIRONMENT).exists():
        left.append(_ENVIRONMENT)
    elif variables:
        text = "".join(f"{name}={_quoted(value)}\n" for name, value in variables.items())
        write_private(into / _ENVIRONMENT, text.encode())
        written.append(str(into / _ENVIRONMENT))
    return written, left


def _quoted(value: str) -> str:
    """The value as .env has it; empty, for a person to fill in, if no quotes can hold it."""
    mark = next((one for one in ("'", '"') if one not in value), "")
    # between double quotes a backslash would mean something
    holds = mark == "'" or (mark and "\\" not in value)
    return f"{mark}{value}{mark}" if value and holds and "\n" not in value else ""


def _checked(imported: Imported) -> tuple[list[str], list[Finding]]:
    """The workflows that load, and why the others do not."""
    from harken.config.findings import Finding, Place
    from harken.config.yaml.writer import to_yaml

    if not imported.workflows:
        return [], []
    with tempfile.TemporaryDirectory(prefix="harken-import-") as folder:
        place = Path(folder)
        (place / "workflows").mkdir()
        for name, workflow in imported.workflows.items():
            (place / "workflows" / f"{name}.yaml").write_text(to_yaml(dict(workflow)), encoding="utf-8")
        if imported.settings:
            (place / _MAIN).write_text(to_yaml(dict(imported.settings)), encoding="utf-8")
        stand_ins = {name: one.value or _stand_in(name) for name, one in imported.variables.items()}
        loaded = load_directory(place, {**os.environ, **_ACCOUNTS, **stand_ins})
    wrong: dict[str, Finding] = {}
    for finding in loaded.findings:
        if finding.severity == "error" and finding.file.startswith("workflows/"):
            name = finding.file.removeprefix("workflows/").removesuffix(".yaml")
            where = imported.places.get(name, Place("imported"))
            message = f"{name} was translated to what does not load: {finding.message}"
            wrong.setdefault(
                name,
                Finding(
                    file=where.file,
                    line=where.line,
                    column=where.column,
                    path=finding.path,
                    message=message,
                    fix=finding.fix,
                    code=finding.code,
                ),
            )
    return [name for name in imported.workflows if name not in wrong], list(wrong.values())


# accounts that messages need; the check is about what was translated, not about what is configured here
_ACCOUNTS = {
    "SLACK_BOT_TOKEN": "xoxb-0-0-stand-in",
    "TELEGRAM_BOT_TOKEN": "123456:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghi",
    "SMTP_HOST": "smtp.example",
    "SMTP_FROM": "harken@smtp.example",
    "IMAP_HOST": "imap.example",
    "IMAP_USERNAME": "harken",
    "IMAP_PASSWORD": "stand-in-for-a-password",
}


def _stand_in(name: str) -> str:
    return "https://stand-in.example" if "URL" in name else "stand-in-for-a-value"

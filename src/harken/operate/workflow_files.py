"""Operations on the files of workflows: read one as it is written, and replace it after a check."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harken.config.loaded import Loaded, item
from harken.config.workflow_file_io import LARGEST, NEW, obstacle, read_file, replace_file, revision_of
from harken.errors import HarkenError, Misconfigured, NotFound, Outdated, Refused, Unconditional
from harken.http.known_secret_redaction import hide_tokens, restore_tokens
from harken.operate.context import Context
from harken.operate.load_and_check_configuration import all_rows, findings_with
from harken.operate.output_rows import Plain
from harken.suggest import suggest_fix

__all__ = ["InvalidText", "source", "write"]

_NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class InvalidText(Misconfigured):
    """A text that is not written, because it has errors; `findings` has all of them."""

    def __init__(self, message: str, *, fix: str, findings: Sequence[Plain]) -> None:
        super().__init__(message, fix=fix)
        self.findings = findings


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """One file as it is on the disk. `text` has stand-ins for our own tokens."""

    directory: Path
    file: str
    text: str
    revision: str
    crlf: bool = False


async def source(context: Context, *, name: str) -> Plain:
    """The file of a workflow or of its trigger as it is written, and whether it can be changed from here.

    Our own tokens have stand-ins, which `workflows.write` replaces again."""
    loaded = _loaded(context)
    found = await asyncio.to_thread(_read, loaded, _file_of(loaded, name))
    reason = await asyncio.to_thread(obstacle, found.directory, found.file)
    return {
        "name": name,
        "file": found.file,
        "text": found.text,
        "revision": found.revision,
        "writable": not reason,
        "reason": reason,
    }


async def write(context: Context, *, name: str, text: str, dry_run: bool = False, match: str = "") -> Plain:
    """Replace the file of a workflow, after the checks of `harken workflows check`, and load it.

    `dry_run` only answers what would change and what is wrong. If-Match is the ETag of its source, or `"new"` for a
    workflow that has no file yet. A text with an error is not written."""
    if not match:
        fix = 'Read its source first, and send its ETag as If-Match: "…"'
        raise Unconditional(f"a change of {name} has to say which version it means", fix=fix)
    loaded, expect = _loaded(context), match.strip('"')
    before = await asyncio.to_thread(_before, loaded, name, expect)
    if expect != before.revision:
        raise Outdated(f"{before.file} was changed meanwhile", fix="Read it again, and change what is there now")
    content = await asyncio.to_thread(_content, loaded, before, text)
    findings = await asyncio.to_thread(_findings, loaded, before, content)
    reason = await asyncio.to_thread(obstacle, before.directory, before.file)
    answer: Plain = {
        "name": name,
        "file": before.file,
        "diff": await asyncio.to_thread(_diff, before, text),
        "findings": findings,
        "writable": not reason,
        "reason": reason,
        "written": False,
        "revision": before.revision,
        "reload": None,
    }
    if dry_run:
        return answer
    _refuse_errors(before.file, findings)
    await asyncio.to_thread(replace_file, before.directory, before.file, content, expect=expect)
    return answer | {"written": True, "revision": revision_of(content), "reload": await _reload(context)}


def _loaded(context: Context) -> Loaded:
    if context.loaded is None:
        raise NotFound("no configuration is loaded", fix="Start a controller: harken start")
    return context.loaded


def _file_of(loaded: Loaded, name: str) -> str:
    """The file of this workflow or trigger, or `name` itself. Raise Refused for what is defined elsewhere."""
    files = {file for file in loaded.origins.values() if file.startswith("workflows/")}
    if name in files:
        return name
    file = loaded.origins.get(item("workflow", name)) or loaded.origins.get(item("poller", name), "")
    if file in files:
        return file
    if file:
        raise Refused(f"{name} is defined in {file}", fix="Change it there; it is loaded by itself")
    if name in loaded.rows:
        raise Refused(f"{name} is a row in the store", fix="Change it with: harken triggers edit")
    raise NotFound(f"there is no file of {name}", fix=suggest_fix(name, loaded.workflows))


def _before(loaded: Loaded, name: str, expect: str) -> _File:
    try:
        return _read(loaded, _file_of(loaded, name))
    except NotFound:
        if expect != NEW or name in loaded.workflows or not _NEW_NAME.fullmatch(name):
            raise
    return _File(directory=loaded.directory, file=f"workflows/{name}.yaml", text="", revision=NEW)


def _read(loaded: Loaded, file: str) -> _File:
    content = read_file(loaded.directory, file)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8", fix="Change it with an editor on its machine") from error
    return _File(
        directory=loaded.directory,
        file=file,
        text=hide_tokens(text.replace("\r\n", "\n"), loaded.secrets),
        revision=revision_of(content),
        crlf="\r\n" in text,
    )


def _content(loaded: Loaded, before: _File, text: str) -> bytes:
    """What is written: tokens in place of their stand-ins, and the line ends that the file has."""
    try:
        whole: str = restore_tokens(text.replace("\r\n", "\n"), loaded.secrets)
        content = (whole.replace("\n", "\r\n") if before.crlf else whole).encode()
    except LookupError as error:
        fix = "Write ${secret:NAME}, and store it with: harken secrets set NAME"
        raise Misconfigured("the text has a stand-in (***…***) for a token that is not known", fix=fix) from error
    except UnicodeEncodeError as error:
        raise Misconfigured("the text is not Unicode", fix="Send it as UTF-8") from error
    if len(content) > LARGEST:
        raise Misconfigured(f"the text is larger than {LARGEST // 1024} kB", fix="Split the workflow")
    return content


def _findings(loaded: Loaded, before: _File, content: bytes) -> list[Plain]:
    """What is wrong in the text, and what it makes wrong elsewhere."""
    known = {row["text"] for row in all_rows(loaded)}
    rows = findings_with(before.directory, {before.file: content})
    return [row for row in rows if row["file"] == before.file or row["text"] not in known]


def _diff(before: _File, text: str) -> str:
    old, new = before.text.splitlines(keepends=True), text.replace("\r\n", "\n").splitlines(keepends=True)
    source = "/dev/null" if before.revision == NEW else f"a/{before.file}"
    lines = difflib.unified_diff(old, new, source, f"b/{before.file}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _refuse_errors(file: str, findings: Sequence[Plain]) -> None:
    errors = [row for row in findings if row["severity"] == "error"]
    if errors:
        fix = f"{errors[0]['text']}" if len(errors) == 1 else f"The first: {errors[0]['text']}"
        raise InvalidText(f"{file} was not written: the text has errors", fix=fix, findings=errors)


async def _reload(context: Context) -> Plain:
    """What the controller made of the file. It is written in any case, so an error is an answer here."""
    if context.engine is None:
        return {"done": False, "reason": "no controller is running; it is loaded at the next start"}
    try:
        return {"done": True, "reason": "", **dict(await context.engine.reload())}
    except HarkenError as error:
        return {"done": False, "reason": str(error)}

"""`harken store …`."""

from __future__ import annotations

from typing import Any

import click

from harken.cli.invocation import Session, command, keep_quiet
from harken.cli.output import listing, print_json, say
from harken.errors import NotFound, Refused

__all__ = ["store_command"]


NEW_KEY = "HARKEN_NEW_ENCRYPTION_KEY"
RETENTION = (("retention", "name"), ("kept for", "keeps"), ("stored", "stored"), ("what", "what"))


@click.group("store", context_settings={"help_option_names": ["-h", "--help"]})
def store_command() -> None:
    """Check, compact, back up, restore and rekey the store; see what it keeps."""


@command(store_command, "check")
def check_store(session: Session) -> int:
    """Look for inconsistencies. Exits 1 when there are any."""
    answer = session.call("store.check")
    if session.as_json:
        print_json(answer)
    else:
        for problem in answer["problems"]:
            say(problem)
        say(
            "The store is sound."
            if answer["ok"]
            else f"{len(answer['problems'])} problems. Restore a backup, or ask for help."
        )
        if answer["space"]["advice"]:
            say(_space_line(answer["space"]))
    return 0 if answer["ok"] else 1


@command(store_command, "retention")
def show_retention(session: Session) -> None:
    """Show how long events, runs, reads and the audit log are kept, and how many there are."""
    listing(session, session.call("store.retention"), RETENTION, "Nothing is kept.")


def _space_line(space: dict[str, Any]) -> str:
    return f"It takes {_megabytes(space['bytes'])}, {_megabytes(space['unused'])} of it unused. {space['advice']}"


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB"


@command(store_command, "compact")
def compact_store(session: Session) -> None:
    """Write the store's file anew, without unused space. Refused while a controller runs.

    While it runs, Harken gives unused space back by itself, except in a file that was made without auto_vacuum:
    after this it does there too. It needs as much free disk as the file has rows.
    """
    from harken.app.store import compact_file
    from harken.operate.controller_file import store_file

    _refuse_running(session)
    file = store_file(session.directory)
    if file is None:
        fix = "PostgreSQL uses the space of deleted rows again (all at once: VACUUM FULL), Redis frees it at once"
        raise Refused("a server looks after its own space", fix=fix)
    if not file.exists():
        raise NotFound(f"there is no store at {file}", fix="Nothing has to be done")
    if not session.as_json:
        say(f"Writing {file} anew ({_megabytes(file.stat().st_size)}). Stopping this does no harm.")
    answer = compact_file(file)
    if session.as_json:
        print_json(answer)
        return
    say(f"It took {_megabytes(answer['before'])}, and takes {_megabytes(answer['after'])} now.")


@command(store_command, "backup")
@click.argument("target", type=click.Path())
def back_up(session: Session, target: str) -> None:
    """Write a consistent copy to TARGET, also while a controller runs. Never overwrites."""
    from pathlib import Path

    answer = session.call("store.backup", target=str(Path(target).expanduser().absolute()))
    if session.as_json:
        print_json(answer)
    else:
        say(f"{answer['bytes']} bytes in {answer['target']}")


@command(store_command, "restore")
@click.argument("backup", type=click.Path())
def restore_store(session: Session, backup: str) -> None:
    """Put BACKUP in the store's place; the old file is kept aside. Refused while a controller runs."""
    from pathlib import Path

    from harken.operate.controller_file import store_file
    from harken.operate.store_copy_restore import restore

    _refuse_running(session)
    file = store_file(session.directory)
    if file is None:
        raise Refused("a server is not restored by Harken", fix="Use its own tools, or: harken store copy BACKUP URL")
    answer = restore(file, Path(backup).expanduser())
    if session.as_json:
        print_json(answer)
        return
    say(f"{answer['store']} is now the copy of {answer['backup']}")
    if answer["kept"]:
        # a file that was removed leaves only its log
        is_log = answer["kept"].endswith("-wal")
        say(f"{'What was left of the store' if is_log else 'The store'} of before is {answer['kept']}")


@command(store_command, "copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--live", is_flag=True, help="Wait until nobody uses FROM, copy, and let it refuse every later start.")
@click.option("--force", is_flag=True, help="Wipe what an interrupted copy left in TO, and begin anew.")
def copy(session: Session, source: str, target: str, live: bool, force: bool) -> None:
    """Copy the store FROM into the empty store TO: feeds, cursors, memory, events, runs, everything.

    Each is a file, postgresql://… or redis://…; HARKEN_ENCRYPTION_KEY is for both. Runs go on in TO where they stopped.
    Refused while anybody uses FROM. With --live, stop the controllers while this waits: as soon as the last is gone
    it copies, and from then on FROM tells whoever starts with it where it moved to.
    """
    import asyncio

    from harken.app.store import copy_between
    from harken.cli.progress import Terminal

    keep_quiet()
    with Terminal() as watching:
        answer = asyncio.run(copy_between(source, target, watching, live=live, force=force))
    if session.as_json:
        print_json(answer)
        return
    copied = ", ".join(f"{number} {kind}" for kind, number in answer["counts"].items() if number)
    say(f"{answer['to']} has all of {answer['from']}: {copied or 'nothing'}")
    if live:
        say(f"Start with the new store now. {answer['from']} refuses every start and names the new one.")


@command(store_command, "reopen")
@click.argument("location")
def reopen_store(session: Session, location: str) -> None:
    """Let the store at LOCATION be used again that `store copy --live` moved away."""
    import asyncio

    from harken.app.store import reopen

    place = asyncio.run(reopen(location))
    if session.as_json:
        print_json({"store": place, "reopened": True})
        return
    say(f"{place} may be used again. What happened in its copy since then is not in it.")


@command(store_command, "rekey")
@click.option("--new-key-file", type=click.Path(), help="Read the new key from this file.")
def rekey_store(session: Session, new_key_file: str | None) -> None:
    """Make the store open with another key than HARKEN_ENCRYPTION_KEY. Refused while a controller runs.

    The new key is HARKEN_NEW_ENCRYPTION_KEY, or the content of --new-key-file, or asked for.
    """
    from harken.app import rekey

    _refuse_running(session)
    path = rekey(session.directory, _new_key(new_key_file))
    if session.as_json:
        print_json({"store": str(path), "rekeyed": True})
        return
    say(f"{path} opens with the new key only. Start with HARKEN_ENCRYPTION_KEY set to it.")
    say("Backups from before still need the old key.")


def _new_key(file: str | None) -> str:
    import os
    import sys
    from pathlib import Path

    if file is not None:
        try:
            return Path(file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            why = (error.strerror if isinstance(error, OSError) else "") or "it is no text"
            raise Refused(f"{file} cannot be read: {why}", fix="Name the file that has the new key") from None
    if os.environ.get(NEW_KEY):
        return os.environ[NEW_KEY]
    if sys.stdin.isatty():
        return str(click.prompt("New key", hide_input=True, confirmation_prompt=True, err=True))
    raise Refused("there is no new key", fix=f"Set {NEW_KEY}, or name a file with --new-key-file")


def _refuse_running(session: Session) -> None:
    controller = session.controller()
    if controller is not None:
        message = f"a controller is running (pid {controller.pid})"
        raise Refused(message, fix="Stop it first with: harken controller stop")

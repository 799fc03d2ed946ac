"""`harken store …`."""

from __future__ import annotations

import click

from harken.cli.session import Session, command
from harken.cli.show import print_json, say
from harken.errors import Refused

__all__ = ["store_command"]


NEW_KEY = "HARKEN_NEW_ENCRYPTION_KEY"


@click.group("store", context_settings={"help_option_names": ["-h", "--help"]})
def store_command() -> None:
    """Check, back up, restore and rekey the store."""


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
    return 0 if answer["ok"] else 1


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

    from harken.operate.restore import restore
    from harken.operate.site import store_file

    _refuse_running(session)
    answer = restore(store_file(session.directory), Path(backup).expanduser())
    if session.as_json:
        print_json(answer)
        return
    say(f"{answer['store']} is now the copy of {answer['backup']}")
    if answer["kept"]:
        say(f"The store of before is {answer['kept']}")


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

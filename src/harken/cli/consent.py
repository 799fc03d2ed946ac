"""Credentials that a user gives in a browser: what to ask for, and the browser to ask in."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from harken.cli.show import clean
from harken.errors import Refused

if TYPE_CHECKING:
    from harken.operate.account_forms import Form
    from harken.source import Host

__all__ = ["Way", "Wished", "consented"]

Way: TypeAlias = Literal["browser", "manual", "device"]
# without one of these, what is called a browser would take over the terminal
_SCREENS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


@dataclass(frozen=True, kw_only=True)
class Wished:
    """What the command line says about the consent."""

    way: Way | None
    access: tuple[str, ...]
    seconds: float

    def fields(self, form: Form, given: Mapping[str, Any]) -> frozenset[str]:
        """The fields that the user's consent will bring; none when the service has no such thing, or they are given."""
        consent = form.plugin.consent
        if consent is None and (self.way or self.access):
            message = f"the credential of {form.kind} is not given in a browser"
            raise Refused(message, fix=f"See: harken integrations {form.name} configure fields")
        if consent is None or consent.fills <= set(given):
            return frozenset()
        if form.own_secret:
            message = f"harken.yaml has a secret of its own for {form.name}: what is stored is not used beside it"
            raise Refused(message, fix="Take the secret out of harken.yaml, and give it here")
        strange = [word for word in self.access if word not in consent.access]
        if strange:
            raise Refused(f"{form.kind} has no access {strange[0]!r}", fix=f"Use: {', '.join(consent.access)}")
        return consent.fills


def consented(form: Form, values: Mapping[str, Any], wished: Wished) -> Mapping[str, str]:
    """Ask for the consent, and wait for it; what it brings."""
    return asyncio.run(_asked(form, values, wished))


async def _asked(form: Form, values: Mapping[str, Any], wished: Wished) -> Mapping[str, str]:
    from harken.app import lending
    from harken.config import Account
    from harken.operate.configuration import load_directory
    from harken.source import Asking

    consent = form.plugin.consent
    assert consent is not None
    private = bool({**values, **form.plain}.get("allow_private_networks"))
    account = Account(name=form.name, kind=form.kind, credential=form.name, allow_private=private)
    asking = Asking(
        way=wished.way or "browser",
        access=wished.access,
        seconds=wished.seconds,
        say=_say,
        browse=_browse,
        answer=_answer,
    )
    async with lending(load_directory(form.directory)) as parts:
        host: Host = parts.lend(account)
        return await consent.obtain({**values, **form.plain}, asking, host)


def _say(text: str) -> None:
    # at once, also into a pipe: somebody has to act on it while we wait
    click.echo(clean(text))


def _browse(address: str) -> None:
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _SCREENS):
        return
    import webbrowser

    # some browsers return only when they are closed
    Thread(target=webbrowser.open, args=(address,), name="browser", daemon=True).start()


def _answer(question: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(clean(question), err=True))
    return sys.stdin.readline()

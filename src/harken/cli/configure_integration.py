"""`harken integrations NAME configure`: fill in the form, try it, store it, and let it take effect."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from harken.cli.invocation import Session
from harken.cli.output import clean, print_json, say
from harken.errors import HarkenError, Refused

if TYPE_CHECKING:
    from harken.operate.account_forms import Field, Form
    from harken.source import Host

__all__ = ["ConsentOptions", "Way", "configure_account", "obtain_consent"]


Way: TypeAlias = Literal["browser", "manual", "device"]

# without one of these, what is called a browser would take over the terminal
_SCREENS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


@dataclass(frozen=True, kw_only=True)
class ConsentOptions:
    """The command line's options for the consent."""

    way: Way | None
    access: tuple[str, ...]
    seconds: float

    def fields(self, form: Form, given: Mapping[str, Any]) -> frozenset[str]:
        """The fields that an OAuth consent will fill; none when the service has no consent or all are given."""
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


def obtain_consent(form: Form, values: Mapping[str, Any], wished: ConsentOptions) -> Mapping[str, str]:
    """Ask the user for consent in a browser, wait for it, and return the fields that it fills."""
    return asyncio.run(_ask_consent(form, values, wished))


async def _ask_consent(form: Form, values: Mapping[str, Any], wished: ConsentOptions) -> Mapping[str, str]:
    from harken.app import open_factory
    from harken.config.loaded import Account
    from harken.operate.load_and_check_configuration import load_directory
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
    async with open_factory(load_directory(form.directory)) as parts:
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


PRIVATE = "allow_private_networks"


def configure_account(
    session: Session,
    name: str,
    *,
    store_as: str,
    from_env: bool,
    allow_private_networks: bool,
    no_test: bool,
    yes: bool,
    given: Sequence[str],
    way: Way | None,
    access: Sequence[str],
    wait: float,
) -> int:
    """Run the whole dialogue and return the exit code."""
    from harken.operate.account_forms import form_of

    form = form_of(session.directory, name, store_as)
    if list(given) in (["fields"], ["fields", "--json"]):
        return _fields(form, as_json=len(given) > 1)
    flags = {**(form.from_environment() if from_env else {}), **_parse_options(form, given)}
    values: dict[str, Any] = {**form.stored, **flags, **({PRIVATE: True} if allow_private_networks else {})}
    wished = ConsentOptions(way=way, access=tuple(access), seconds=wait)
    coming = wished.fields(form, flags)
    if sys.stdin.isatty():
        values |= _ask_missing(form, values, everything=not flags, but=coming)
    _refuse_wrong(form, values, but=coming)
    _may_replace(form, yes)
    if coming:
        values |= obtain_consent(form, values, wished)
        _refuse_wrong(form, values)
    if form.own_secret:
        _warn(f"harken.yaml has a credential of its own for {form.name}: it wins over the one that is stored")
    loaded = form.load_with(values)
    if not no_test:
        _try(form, loaded)
    say(f"Stored in {form.keep(values)}")
    _take_effect(session, form)
    if not no_test:
        _check(form, loaded)
    return 0


def _fields(form: Form, *, as_json: bool) -> int:
    if as_json:
        print_json([asdict(one) for one in form.fields])
        return 0
    for one in form.fields:
        kind = "secret" if one.secret else "required" if one.required else f"default: {one.default or 'none'}"
        variable = f", {one.variable} with --from-env" if one.variable else ""
        say(f"--{one.name.replace('_', '-')}  {one.description} ({kind}{variable})")
    return 0


def _parse_options(form: Form, given: Sequence[str]) -> dict[str, str]:
    known = {one.name: one for one in form.fields}
    values: dict[str, str] = {}
    piped = ""
    rest = list(given)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name not in known:
            options = ", ".join(f"--{field.replace('_', '-')}" for field in known)
            # a word on its own may be the secret
            told = f"{form.kind} has no {flag}" if flag.startswith("--") else "a value has no --FIELD before it"
            raise Refused(told, fix=f"{form.kind} takes: {options}")
        if not equals:
            if not rest:
                raise Refused(f"{flag} needs a value", fix=f"{flag} - reads standard input, {flag} @PATH a file")
            value = rest.pop(0)
        if value == "-" and piped:
            raise Refused(f"standard input can be only one value, and {piped} has it", fix=f"Use {flag} @PATH")
        piped = flag if value == "-" else piped
        values[name] = _value(known[name], value)
    return values


def _value(field: Field, value: str) -> str:
    if value == "-":
        return sys.stdin.read().strip("\r\n")
    if value.startswith("@"):
        try:
            return Path(value[1:]).expanduser().read_text("utf-8").strip("\r\n")
        except (OSError, UnicodeError) as error:
            why = (error.strerror if isinstance(error, OSError) else "") or "it is no text"
            raise Refused(f"{value[1:]} cannot be read: {why}", fix="Name a text file") from None
    if field.secret:
        flag = f"--{field.name.replace('_', '-')}"
        _warn(f"others on this machine can see {flag} and your shell keeps it: use `{flag} -` or `{flag} @PATH`")
    return value


def _ask_missing(form: Form, values: Mapping[str, Any], *, everything: bool, but: Collection[str]) -> dict[str, str]:
    """Ask a person for each field that has no value yet, or for all of them, until the answer is one it takes."""
    answers: dict[str, str] = {}
    for one in form.fields:
        if one.name in but or one.name in form.written or not (everything or (one.required and one.name not in values)):
            continue
        while True:
            answers[one.name] = _ask(one, str(values.get(one.name, "")))
            problem = form.problems({**values, **answers}).get(one.name)
            if problem is None:
                break
            click.echo(f"{one.name}: {clean(problem)}", err=True)
    return answers


def _ask(one: Field, known: str) -> str:
    otherwise = known or one.default
    shown = "" if one.required and not otherwise else "keep" if one.secret and known else otherwise or "none"
    hint = f" (Enter: {shown})" if shown else ""
    default = otherwise if shown else None
    text = f"{one.name}: {one.description}{hint}"
    answer = click.prompt(text, default=default, show_default=False, hide_input=one.secret, err=True)
    return str(answer).strip()


def _refuse_wrong(form: Form, values: Mapping[str, Any], *, but: Collection[str] = ()) -> None:
    wrong = {name: problem for name, problem in form.problems(values).items() if name not in but}
    if wrong:
        told = "; ".join(f"{name or form.kind}: {problem}" for name, problem in wrong.items())
        raise Refused(told, fix=f"See: harken integrations {form.name} configure fields")


def _may_replace(form: Form, yes: bool) -> None:
    if not form.exists or yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"a credential is stored for {form.name} already", fix="To replace it: --yes")
    click.confirm(f"Replace the stored credential of {form.name}?", abort=True, err=True)


def _try(form: Form, loaded: Any) -> None:
    from harken.operate.integrations import identify_account

    if form.plugin.whoami is None:
        say(f"{form.kind} cannot be asked whose credential it is; stored untried")
        return
    try:
        who = asyncio.run(_with_host(loaded, identify_account, form.name))["who"]
    except HarkenError as error:
        raise type(error)(
            error.message, fix=f"{error.fix or 'Check it'}. Nothing was stored; --no-test stores it untried"
        ) from None
    said = ", ".join(f"{name} {value}" for name, value in who.items() if value not in ("", None))
    say(f"{form.kind} knows us: {said}")


async def _with_host(loaded: Any, question: Any, name: str) -> Any:
    from harken.app import open_factory

    async with open_factory(loaded) as parts:
        return await question(loaded, name, parts.lend)


def _take_effect(session: Session, form: Form) -> None:
    """Tell the controller, and free what had stopped; without either there is nothing to tell."""
    from harken.operate.controller_file import store_file

    file = store_file(session.directory)
    if session.controller() is None and file is not None and not file.exists():
        return
    answer = session.call("integrations.renew", name=form.name)
    if answer["reloaded"]:
        say("The running controller uses it now")
    for trigger in answer["freed"]:
        say(f"{trigger} had stopped and is read again")
    for trigger in answer["left"]:
        say(f"{trigger} is paused by a person. To go on: harken triggers resume {trigger}")


def _check(form: Form, loaded: Any) -> None:
    from harken.operate.integrations import check_queries

    answer = asyncio.run(_with_host(loaded, check_queries, form.name))
    for check in answer["checks"]:
        for written, meant in check["found"].items():
            say(f"{', '.join(check['triggers']) or check['feed']}: {written} is {meant}")
    for problem in answer["problems"]:
        say(problem)


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)

"""One command line: where its configuration is, whom it asks, and how its answer is wanted."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harken.cli.name_completion import complete_names
from harken.config.env_file import environment_of
from harken.errors import Refused

if TYPE_CHECKING:
    from harken.cli.client import ControllerClient
    from harken.operate.progress import Report

__all__ = ["Session", "command", "keep_quiet"]


@dataclass(frozen=True, kw_only=True)
class Session:
    directory: Path
    as_json: bool = False
    url: str = ""

    def controller(self) -> ControllerClient | None:
        """The controller at the URL that was given, or the one that runs for this configuration, if one does."""
        from harken.cli.client import find, remote

        return remote(self.url) if self.url else find(self.directory)

    def local_controller(self) -> ControllerClient:
        """The controller on this machine; raises Refused where one elsewhere was named."""
        if self.url:
            raise Refused("this works only where the controller runs", fix="Leave --url and HARKEN_URL away")
        return self.needs_controller()

    def needs_controller(self) -> ControllerClient:
        found = self.controller()
        if found is None:
            message = f"no controller is running for {self.directory.absolute()}"
            raise Refused(message, fix="Start one with: harken start")
        return found

    def call(self, operation: str, **params: Any) -> Any:
        """Ask the running controller, or the store itself when none runs."""
        return self._call("", operation, params)

    def call_long(self, work: str, operation: str, **params: Any) -> Any:
        """Like `call`, for what may take long: a terminal shows how far this work is."""
        return self._call(work, operation, params)

    def _call(self, work: str, operation: str, params: Mapping[str, Any]) -> Any:
        from harken.cli.client import Unreachable
        from harken.cli.progress import Working

        given = {name: value for name, value in params.items() if value is not None}
        hidden = self.as_json or not work
        controller = self.controller()
        if controller is not None:
            try:
                with Working(work, away=True, hidden=hidden):
                    return controller.call(operation, given)
            except Unreachable:
                # it went between our look and our question, or left its file behind
                if self.url:
                    raise
        with Working(work, hidden=hidden) as working:
            return asyncio.run(self._offline(operation, given, working.report))

    async def _offline(self, operation: str, params: dict[str, Any], report: Report) -> Any:
        from harken.app import open_offline
        from harken.operate.operator import CHANGES

        keep_quiet()
        async with open_offline(self.directory, write=operation in CHANGES) as operator:
            answer = await operator.reporting_to(report).call(operation, **params)
            return json.loads(operator.discreet(json.dumps(answer).encode()))


def keep_quiet() -> None:
    """Only errors are said beside an answer, and never where the answer is printed."""
    import logging
    import sys

    import structlog

    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
            logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        )


def command(
    group: click.Group | None, name: str, *, data: bool = True
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of `function(session, …)`. It takes --config, and --json when it prints data."""

    def make(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def invoke(config_dir: str | None, as_json: bool = False, **params: Any) -> Any:
            above = click.get_current_context().find_root().params
            directory = Path(config_dir or above.get("config_dir") or ".").expanduser()
            session = Session(directory=directory, as_json=as_json, url=above.get("url") or "")
            with environment_of(session.directory):
                return function(session, **params)

        shaped: Callable[..., Any] = invoke
        if data:
            shaped = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(shaped)
        shaped = click.option("--config", "config_dir", metavar="DIR", help="The configuration directory.")(shaped)
        made = click.command(name, context_settings={"help_option_names": ["-h", "--help"]})(shaped)
        complete_names(group, made)
        if group is not None:
            group.add_command(made)
        return made

    return make

"""`trigger: file`: a poll of the service files, written in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.config.loaded import Loaded
from harken.feed import INTERNAL, Feed
from harken.schedule import Every
from harken.services.files import plugin
from tests.config.makers import PLUGINS, lines, read, workflow

SERVICES = {**PLUGINS, "files": plugin}


def loaded_with(directory: Path, *triggers: str) -> Loaded:
    files = {f"workflows/w{number}.yaml": workflow(f"w{number}", text) for number, text in enumerate(triggers)}
    return read(directory, files, plugins=SERVICES)


def feeds(loaded: Loaded) -> list[Feed]:
    assert lines(loaded.findings) == []
    return [feed for feed in loaded.feeds if feed.name != INTERNAL]


def test_a_file_trigger_polls_files(tmp_path: Path) -> None:
    loaded = loaded_with(tmp_path, "file: {path: in, include: '*.csv', settle: 5s, interval: 2s}, startup: since_last")
    [feed] = feeds(loaded)
    assert (feed.way, feed.kind, feed.label, feed.schedule) == ("poll", "files", "w0", Every(seconds=2))
    assert (feed.query["path"], feed.query["settle"]) == ("in", 5)


def test_a_path_alone_and_a_poll_of_it_are_the_same_feed(tmp_path: Path) -> None:
    loaded = loaded_with(
        tmp_path, "file: in", "poll: {integration: files, query: {path: in}}", "type: file, file: {path: in}"
    )
    assert len(feeds(loaded)) == 1
    assert len({trigger.feed for trigger in loaded.triggers}) == 1


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("file: {}", "trigger.file.path: is missing"),
        ("type: file", "trigger.file.path: is missing"),
        ("file: {path: in, inclde: x}", "trigger.file.inclde: there is no such setting. Did you mean include?"),
        ("file: {path: in, interval: 100ms}", "trigger.file.interval: files may not be read that often"),
        ("file: {path: in, include: '[a'}", "trigger.file.include"),
        ("file: {path: in}, api: true", "has file and api"),
        ("file: [in]", "trigger.file"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_written(tmp_path: Path, written: str, message: str) -> None:
    assert message in "\n".join(lines(loaded_with(tmp_path, written).findings))

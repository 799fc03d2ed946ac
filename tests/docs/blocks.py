"""What the documentation tells people to type and to write: its commands, and its blocks with their language."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

__all__ = ["Block", "blocks", "commands", "pages", "words"]

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(harken [^`\n]+)`")
TYPED = re.compile(r"(?:^|[;|&(]\s*|\$ |\b(?:uvx|sudo|exec harken|then|do) )(harken .*)")
SEPARATORS = {"|", "||", "&&", "&", ";", ">", ">>", "2>", "<", ""}


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of a page, with the number of its first line."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Everything that people read, without the decisions: they tell what was."""
    recipes = sorted((ROOT / "src" / "harken" / "recipes").glob("*/README.md"))
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *recipes]
    return [page for page in found if page.parent.name != "decisions"]


def blocks(page: Path) -> Iterator[Block]:
    text, name = page.read_text("utf-8"), str(page.relative_to(ROOT))
    for found in FENCE.finditer(text):
        indent = len(found[1])
        lines = [line[indent:] if line[:indent].isspace() else line for line in found[3].splitlines(keepends=True)]
        yield Block(page=name, line=text[: found.start()].count("\n") + 2, language=found[2], text="".join(lines))


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """Every `harken …` on the page with its place: of blocks without what programs print, and of prose."""
    for block in blocks(page):
        if block.language in ("", "sh", "bash", "console"):
            joined = block.text.replace("\\\n", " ")
            for number, line in enumerate(joined.splitlines()):
                for found in TYPED.findall(line if block.language != "console" or line.startswith("$ ") else ""):
                    yield f"{block.page}:{block.line + number}", found
    prose = FENCE.sub("", page.read_text("utf-8"))
    for found in INLINE.findall(prose):
        yield str(page.relative_to(ROOT)), found


def words(command: str) -> list[str]:
    """The words of one command, up to a pipe, a comment, the next one, or a quotation over several lines."""
    try:
        found = shlex.split(command, comments=True)
    except ValueError:
        found = shlex.split(re.split("[\"']", command)[0])
    return list(takewhile(lambda word: word not in SEPARATORS, (word.rstrip(";)") for word in found)))

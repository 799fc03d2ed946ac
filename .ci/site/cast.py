"""Records the demo in a terminal, and draws what it shows as a moving picture.

    python .ci/site/cast.py          record docs/demo.cast (asciicast 2) from the real demo, and draw it
    python .ci/site/cast.py --draw   only draw docs/demo.svg from docs/demo.cast

The picture needs no player and no script. Who asks for less motion sees its end.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios
import time
from html import escape
from itertools import groupby
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]
CAST, PICTURE = ROOT / "docs" / "demo.cast", ROOT / "docs" / "demo.svg"
COLUMNS, ROWS = 110, 30
COMMAND = ["harken", "demo", "--seconds", "12", "--port", "0"]
FRAME_SECONDS, END_SECONDS = 0.8, 5.0
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14
COLOURS = {
    "default": "#d6dee2",
    "black": "#5c6a70",
    "red": "#f28b82",
    "green": "#8bd49c",
    "brown": "#f2c879",
    "yellow": "#f2c879",
    "blue": "#8ab4f8",
    "magenta": "#d7aefb",
    "cyan": "#78d9ec",
    "white": "#ffffff",
    "brightblack": "#8a979d",
}


def record() -> str:
    """What the demo prints, with the time of each piece, as asciicast 2."""
    pid, terminal = pty.fork()
    if pid == 0:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.execvpe(COMMAND[0], COMMAND, {**os.environ, "TERM": "xterm-256color", "PATH": path, "TZ": "UTC"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began, lines = time.monotonic(), []
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "harken demo"}
    while True:
        select.select([terminal], [], [], 1)
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the end of a terminal
            break
        if not piece:
            break
        lines.append(json.dumps([round(time.monotonic() - began, 3), "o", piece.decode("utf-8", "replace")]))
    os.waitpid(pid, 0)
    return "\n".join([json.dumps(head), *lines]) + "\n"


def frames(cast: str) -> list[tuple[float, list[str]]]:
    """The screen at moments that are apart enough to be read, each as rows of SVG text."""
    _, *pieces = [json.loads(line) for line in cast.splitlines()]
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    found: list[tuple[float, list[str]]] = []
    due = 0.0
    for number, (at, _, text) in enumerate(pieces):
        stream.feed(text)
        if at >= due or number == len(pieces) - 1:
            shown = [_row(screen, row) for row in range(ROWS)]
            if any(shown) and (not found or found[-1][1] != shown):
                found.append((at, shown))
            due = at + FRAME_SECONDS
    # the picture begins when there is something to see
    return [(at - found[0][0], shown) for at, shown in found]


def _row(screen: pyte.Screen, row: int) -> str:
    cells = [screen.buffer[row][column] for column in range(COLUMNS)]
    while cells and cells[-1].data == " ":
        cells.pop()
    parts, column = [], 0
    for (colour, bold), run in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
        text = "".join(cell.data for cell in run)
        if text.strip():
            weight = ' font-weight="700"' if bold else ""
            fill = COLOURS.get(colour, f"#{colour}" if len(colour) == 6 else COLOURS["default"])
            x = MARGIN + column * WIDTH
            parts.append(f'<tspan x="{x:.1f}" fill="{fill}"{weight}>{escape(text)}</tspan>')
        column += len(text)
    return "".join(parts)


def draw(cast: str) -> str:
    """The moving picture: each frame begins where the one before it ends, and the first one again after the last.

    A frame that is not shown is not laid out, and between two frames nothing is computed: animated opacity would be,
    sixty times a second and in each frame.
    """
    shown = frames(cast)
    ends = [at for at, _ in shown[1:]] + [shown[-1][0] + END_SECONDS]
    width, height = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    groups = []
    for number, ((at, rows), end) in enumerate(zip(shown, ends, strict=True)):
        begin = f"f{number - 1}.end" if number else f"0s; f{len(shown) - 1}.end"
        seen = f'<set id="f{number}" attributeName="display" to="inline" begin="{begin}" dur="{end - at:.2f}s"/>'
        lines = [
            f'<text y="{MARGIN + (row + 0.8) * HEIGHT:.0f}" xml:space="preserve">{text}</text>'
            for row, text in enumerate(rows)
            if text
        ]
        name = "frame last" if number == len(shown) - 1 else "frame"
        groups.append(f'<g class="{name}" display="none">{seen}{"".join(lines)}</g>')
    style = (
        "@media (prefers-reduced-motion: reduce) "
        "{ .frame { display: none !important } .last { display: inline !important } }"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="13.5">'
        "<title>harken demo in a terminal</title>"
        f"<style>{style}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#14252b"/>{"".join(groups)}</svg>\n'
    )


def main() -> None:
    if "--draw" not in sys.argv:
        CAST.write_text(record(), "utf-8")
    PICTURE.write_text(draw(CAST.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

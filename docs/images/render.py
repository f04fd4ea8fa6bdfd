#!/usr/bin/python3
"""Draws refused.svg, the picture in the README, from a real run of the demo.

    docs/images/render.py > docs/images/refused.svg

The demo runs on a terminal (a pseudo-terminal), so that the picture has the colours that a person sees. Only the part
with the attacks is drawn: times differ from run to run.
"""

import html
import os
import pathlib
import pty
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADING = "Six attacks"

WIDTH, LINE = 8.4, 21           # of one character cell, at this font size
FONT_SIZE, PADDING, BAR = 14, 20, 40
COLOURS = {"31": "#ff7b72", "32": "#56d364", "1": "#ffffff"}
BACKGROUND, TEXT, DIM = "#0d1117", "#c9d1d9", "#8b949e"


def run_demo():
    """What the demo writes to a terminal."""
    os.environ.pop("NO_COLOR", None)
    captured = bytearray()
    child, terminal = pty.fork()
    if child == 0:
        os.execv(ROOT / "examples/demo.sh", ["demo.sh"])
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:         # how the end of a pseudo-terminal shows
            break
        if not piece:
            break
        captured += piece
    os.close(terminal)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise SystemExit(captured.decode())
    return captured.decode().replace("\r\n", "\n")


def attacks_of(text):
    """The lines from the heading to the next empty line."""
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if HEADING in line)
    return lines[first:lines.index("", first)]


def spans(line):
    """(colour, text) for each stretch of a line between escape sequences."""
    colour = TEXT
    for part in re.split(r"(\x1b\[\d+m)", line):
        escape = re.fullmatch(r"\x1b\[(\d+)m", part)
        if escape:
            colour = COLOURS.get(escape.group(1), TEXT)
        elif part:
            yield colour, part


def draw_line(number, pieces):
    """Each word at its own place, so that the columns stay straight whichever font the viewer has."""
    y = BAR + LINE * number + FONT_SIZE
    column, drawn = 0, []
    for colour, text in pieces:
        for word in re.finditer(r"\S+(?: \S+)*", text):
            x = PADDING + WIDTH * (column + word.start())
            length = WIDTH * len(word.group())
            drawn.append(f'<text x="{x:.1f}" y="{y}" fill="{colour}" textLength="{length:.1f}" '
                         f'lengthAdjust="spacingAndGlyphs">{html.escape(word.group())}</text>')
        column += len(text)
    return "\n".join(drawn)


def draw(lines):
    drawn = [[(DIM, "$ "), (TEXT, "make demo")], [], *(list(spans(line)) for line in lines)]
    # The first line of the table names its columns.
    drawn[3] = [(DIM, text) for _, text in drawn[3]]
    columns = max(sum(len(text) for _, text in line) for line in drawn)
    width, height = WIDTH * columns + 2 * PADDING, BAR + LINE * len(drawn) + PADDING
    dots = "".join(f'<circle cx="{22 + 20 * i}" cy="{BAR // 2}" r="6" fill="{colour}"/>'
                   for i, colour in enumerate(["#ff5f57", "#febc2e", "#28c840"]))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" xml:space="preserve">',
        "<title>make demo: six attacks work bare and are refused in a cell</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        dots,
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" '
        f'font-size="{FONT_SIZE}">',
        *(draw_line(number, line) for number, line in enumerate(drawn) if line),
        "</g>",
        "</svg>",
    ])


if __name__ == "__main__":
    print(draw(attacks_of(run_demo())))

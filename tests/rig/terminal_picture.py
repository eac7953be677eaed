# SPDX-License-Identifier: BSD-3-Clause
"""A picture (SVG) of what a terminal shows, from `tmux capture-pane -e`: text with ECMA-48's SGR codes."""

import re
from xml.sax.saxutils import escape

CELL_WIDTH, CELL_HEIGHT = 8.4, 17
PLAIN, BACKGROUND = "#d8d8d8", "#1c1c1c"
BLANK = "\u00a0"  # viewers differ in what they make of several others
COLOURS = {31: "#ff6b68", 32: "#6fc36f", 33: "#e5c06a"}


class Style:
    def __init__(self):
        self.reset()

    def reset(self):
        self.colour, self.bold, self.dim, self.reverse = PLAIN, False, False, False

    def take(self, code):
        if code == 0:
            self.reset()
        elif code in (1, 2, 7):
            setattr(self, {1: "bold", 2: "dim", 7: "reverse"}[code], True)
        elif code == 22:
            self.bold = self.dim = False
        elif code == 27:
            self.reverse = False
        elif code == 39:
            self.colour = PLAIN
        elif code in COLOURS:
            self.colour = COLOURS[code]

    def attributes(self):
        colour = BACKGROUND if self.reverse else self.colour
        return (f'fill="{colour}"' + (' font-weight="bold"' if self.bold else "") + (' opacity="0.6"' if self.dim else ""))


def pieces(line, style):
    """(column, text, style's attributes, reverse) of each piece of a line."""
    column = 0
    for codes, text in re.findall(r"\x1b\[([\d;]*)m|([^\x1b]+)", line.replace("\x0f", "")):
        if text:
            yield column, text, style.attributes(), style.reverse
            column += len(text)
        else:
            for code in codes.split(";"):
                style.take(int(code or 0))


def draw(screen, width):
    lines = screen.rstrip("\n").split("\n")
    style, out = Style(), []
    for row, line in enumerate(lines):
        for column, text, attributes, reverse in pieces(line, style):
            x, y = 8 + column * CELL_WIDTH, 8 + row * CELL_HEIGHT
            length = len(text) * CELL_WIDTH
            if reverse:
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{CELL_HEIGHT}" fill="{PLAIN}"/>')
            if text.strip():
                out.append(f'<text x="{x:.1f}" y="{y + 13}" textLength="{length:.1f}" {attributes}>{escape(text).replace(" ", BLANK)}</text>')
    size = width * CELL_WIDTH + 16, len(lines) * CELL_HEIGHT + 16
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]:.0f}" height="{size[1]}" font-family="monospace" '
            f'font-size="14">\n<rect width="100%" height="100%" fill="{BACKGROUND}"/>\n' + "\n".join(out) + "\n</svg>\n")

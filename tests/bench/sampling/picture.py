# SPDX-License-Identifier: BSD-3-Clause
"""The figures as one picture: an SVG that needs nothing else."""

from html import escape

WIDTH, LEFT, RIGHT = 880, 190, 70
BAR, GAP, GROUP = 14, 4, 16
STILL, RUNS, CLASSIC, LIBXC, WORK = "#c0392b", "#f0b27a", "#5d6d7e", "#aeb6bf", "#2471a3"
STYLE = ("text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}.small{font-size:11px;fill:#555}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#aaa}}")


class Canvas:
    def __init__(self):
        self.parts, self.y = [], 10

    def text(self, x, text, anchor="start", kind=""):
        style = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:.1f}" y="{self.y + BAR - 3}" text-anchor="{anchor}"{style}>{escape(text)}</text>')

    def rect(self, x, width, color):
        self.parts.append(f'<rect x="{x:.1f}" y="{self.y}" width="{max(width, 0.5):.1f}" height="{BAR}" fill="{color}"/>')

    def tick(self, x):
        self.parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self.y - 2}" y2="{self.y + BAR + 2}" stroke="#17a589" stroke-width="2"/>')

    def heading(self, title, words):
        self.text(10, title, kind="title")
        self.y += 20
        self.text(10, words, kind="small")
        self.y += 26

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.y}" width="{WIDTH}" height="{self.y}">\n'
                f"<!-- SPDX-License-Identifier: BSD-3-Clause -->\n<style>{STYLE}</style>\n" + "\n".join(self.parts) + "\n</svg>\n")


def label(row):
    return f"{row['guest'].upper()}, {row['frames']} frames"


def cost(canvas, rows):
    chosen = [row for row in rows if row.get("way") == "pause" and row["unit"] == "icount_us"
              and row["vcpus"] == 1 and row["busy"] == 1 and row["unwind"] == "auto"]
    if not chosen:
        return
    canvas.heading("What one sample costs, in thousand instructions",
                   "one busy vCPU, callers found as by default; red: the guest stands still, orange: it runs on; green: the bare hypercalls")
    scale = (WIDTH - LEFT - RIGHT) / max(row["libxc"] for row in chosen)
    for row in chosen:
        canvas.text(10, label(row))
        ways = [("uniprof", [(row["paused"], STILL), (row["whole"] - row["paused"], RUNS)]),
                ("classic", [(row["classic"], CLASSIC)]), ("libxc", [(row["libxc"], LIBXC)])]
        for name, parts in ways:
            canvas.text(LEFT - 8, name, "end", "small")
            x = LEFT
            for value, color in parts:
                canvas.rect(x, value * scale, color)
                x += value * scale
            canvas.tick(LEFT + row["floor"] * scale)
            canvas.text(x + 6, " + ".join(f"{value:.1f}" for value, _ in parts), kind="small")
            canvas.y += BAR + GAP
        canvas.y += GROUP
    canvas.text(LEFT, f"xenctx -S, off the scale: {min(row['xenctx'] for row in chosen):,.0f} and more", kind="small")
    canvas.y += 40


def work(canvas, rows):
    chosen = [row for row in rows if "rate" in row and row["unit"] == "icount"]
    if not chosen:
        return
    canvas.heading("What the guest gets done while it is sampled",
                   "one CPU for dom0 and guest; share of its work when nobody looks, by samples a second wanted (and taken)")
    scale = WIDTH - LEFT - RIGHT
    for scheduler in dict.fromkeys(row["scheduler"] for row in chosen):
        for row in (row for row in chosen if row["scheduler"] == scheduler):
            canvas.text(LEFT - 8, f"{row['rate']}/s ({row['samples_per_second']:.0f}), {scheduler}", "end", "small")
            canvas.rect(LEFT, row["work"] * scale, WORK)
            canvas.text(LEFT + row["work"] * scale + 6, f"{row['work']:.3f}", kind="small")
            canvas.y += BAR + GAP
        canvas.y += GROUP


def draw(rows):
    canvas = Canvas()
    cost(canvas, rows)
    work(canvas, rows)
    return canvas.svg()

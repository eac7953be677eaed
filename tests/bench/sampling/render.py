# SPDX-License-Identifier: BSD-3-Clause
"""Figures as text: tables that read well on a terminal and as Markdown."""

from .limits import limits

UNITS = {"icount_us": "one CPU, thousand instructions, medians", "2cpu_us": "two CPUs, µs, minima",
         "pv32_icount_us": "32-bit PV, one CPU, thousand instructions, medians",
         "arm64_icount_us": "arm64, one CPU, thousand instructions, medians"}
COSTS = ("paused", "single", "whole", "floor", "classic", "libxc", "xenctx")
STEPS = ("states", "pause", "context", "copy", "go", "finish", "unwind")
WORK_ON = {"icount": "one CPU", "2cpu": "two CPUs"}


def table(head, body):
    """Columns as wide as they need; the first ones, with text, to the left."""
    cells = [[str(cell) for cell in row] for row in [head, *body]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    numeric = [all(row[i][:1].isdigit() or row[i][:1] in "-" for row in cells[1:]) for i in range(len(head))]
    def line(row):
        return "| " + " | ".join(cell.rjust(width) if number else cell.ljust(width)
                                 for cell, width, number in zip(row, widths, numeric)) + " |"
    rule = "|" + "|".join("-" * (width + 1) + (":" if number else "-") for width, number in zip(widths, numeric)) + "|"
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])]) + "\n"


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}"


def kind(row):
    return [row["guest"].upper(), row["vcpus"], row["busy"], row["frames"], row["unwind"], row["way"]]


def costs(rows):
    for unit, words in UNITS.items():
        chosen = [row for row in rows if row["unit"] == unit and "way" in row]
        if chosen:
            # Not every architecture has all ways.
            costs = [name for name in COSTS if name in chosen[0]]
            ratios = [name for name in ("floor", "classic") if name in costs]
            yield f"### Cost of a sample: {words}\n\n" + table(
                ["guest", "vCPUs", "busy", "frames", "unwind", "way", *costs, *(f"whole/{name}" for name in ratios)],
                [kind(row) + [number(row[name]) for name in costs]
                 + [f"{row['whole'] / row[name]:.2f}" for name in ratios] for row in chosen])


def steps(rows):
    chosen = [row for row in rows if row["unit"] == "icount_us" and "steps" in row and row["vcpus"] == 1 and row["busy"]]
    if chosen:
        yield "### A sample by step: one CPU, thousand instructions, one busy vCPU, paused\n\n" + table(
            ["guest", "frames", "unwind", *STEPS],
            [[row["guest"].upper(), row["frames"], row["unwind"]] + [f"{row['steps'][step]:.2f}" for step in STEPS]
             for row in chosen])


def foreign(rows):
    chosen = [row for row in rows if "mean" in row]
    if chosen:
        yield "### Guests with traits: one CPU, thousand instructions, by default\n\n" + table(
            ["guest", "whole", "mean", "floor", "paused", "whole/floor"],
            [[row["guest"], *(number(row[name]) for name in ("whole", "mean", "floor", "paused")), f"{row['whole'] / row['floor']:.2f}"]
             for row in chosen])


def longest(rows):
    chosen = [row for row in rows if "longest_pause" in row]
    if chosen:
        yield "### The longest pause of a run: one CPU, thousand instructions, from the first sample on\n\n" + table(
            ["guest", "samples", "usual", "longest", "longest/usual"],
            [[row["guest"].upper(), row["samples"], number(row["median_pause"]), number(row["longest_pause"]),
              f"{row['longest_pause'] / row['median_pause']:.2f}"] for row in chosen])


def work(rows):
    chosen = [row for row in rows if "rate" in row]
    if chosen:
        yield "### The guest's own work\n\n" + table(
            ["machine", "scheduler", "wanted/s", "taken/s", "guest's work"],
            [[WORK_ON[row["unit"]], row["scheduler"], row["rate"], f"{row['samples_per_second']:.0f}", f"{row['work']:.3f}"]
             for row in chosen])


def verdict(limit):
    if limit.bound is None:
        return "", ""
    return f"{'≥' if limit.least else '≤'} {limit.bound:.3f}", "ok" if limit.ok() else "over"


def verdicts(rows):
    found = limits(rows)
    if found:
        yield "### Limits\n\n" + table(
            ["what", "is", "limit", ""],
            [[limit.text, f"{limit.value:.4f}", *verdict(limit)] for limit in found])


def text(rows):
    return "\n".join(part for make in (costs, steps, foreign, longest, work, verdicts) for part in make(rows))

# SPDX-License-Identifier: BSD-3-Clause
"""Limits of the figures."""

import dataclasses


@dataclasses.dataclass
class Limit:
    text: str
    value: float
    bound: float | None = None  # none: for comparison
    least: bool = False         # the bound is a lower one

    def ok(self):
        return self.bound is None or (self.value >= self.bound if self.least else self.value <= self.bound)


def find(rows, **wanted):
    """The only row that has these values; None if there is none."""
    for row in rows:
        if all(row.get(name) == value for name, value in wanted.items()):
            return row
    return None


def one_sample(rows):
    """A sample of one busy vCPU beside the other ways: as uniprof takes it, and with a pause for each."""
    for way, against in (("auto", lambda bound: bound), ("pause", lambda bound: None)):
        one = {"vcpus": 1, "busy": 1, "frames": 8, "unwind": "auto", "way": way}
        row = find(rows, guest="pv", unit="icount_us", **one)
        if row:
            yield Limit(f"PV, {way}: paused / floor", row["paused"] / row["floor"], 1.05)
            yield Limit(f"PV, {way}: whole / floor", row["whole"] / row["floor"], against(1.15))
            yield Limit(f"PV, {way}: whole / classic (aim 0.80)", row["whole"] / row["classic"], against(0.92))
            yield Limit(f"PV, {way}: whole / libxc", row["whole"] / row["libxc"], against(0.32))
            yield Limit(f"PV, {way}: whole / xenctx", row["whole"] / row["xenctx"], against(1 / 500))
        row = find(rows, guest="pvh", unit="icount_us", **one)
        if row:
            yield Limit(f"PVH, {way}: paused / floor", row["paused"] / row["floor"], 1.05)
            yield Limit(f"PVH, {way}: whole / classic", row["whole"] / row["classic"], against(0.65))
        for guest in ("pv", "pvh"):
            row = find(rows, guest=guest, unit="2cpu_us", **one)
            if row:
                yield Limit(f"{guest.upper()}, {way}, two CPUs: paused / classic", row["paused"] / row["classic"], 0.80)
                yield Limit(f"{guest.upper()}, {way}, two CPUs: bare calls / classic", row["floor"] / row["classic"])
                yield Limit(f"{guest.upper()}, {way}, two CPUs: whole / classic", row["whole"] / row["classic"])


def pv32(rows):
    """32-bit PV guests, with stacks of each depth."""
    for row in rows:
        if row["unit"] == "pv32_icount_us":
            name = f"PV32, {row['way']}, {row['unwind']}, {row['frames']} frames"
            yield Limit(f"{name}: paused / floor", row["paused"] / row["floor"], 1.05 if row["frames"] == 8 else None)
            yield Limit(f"{name}: whole / classic", row["whole"] / row["classic"], 0.92)


def depth(rows):
    """Neither depth nor unwinding is felt by the guest."""
    for guest in ("pv", "pvh"):
        one = {"guest": guest, "vcpus": 1, "busy": 1, "unit": "icount_us", "way": "pause"}
        least = find(rows, frames=8, unwind="fp", **one)
        if not least:
            continue
        for frames, unwind in ((128, "fp"), (8, "cfi"), (128, "cfi")):
            row = find(rows, frames=frames, unwind=unwind, **one)
            if row:
                yield Limit(f"{guest.upper()}: paused, {frames} frames by {unwind} / 8 by fp", row["paused"] / least["paused"], 1.10)


def vcpus(rows):
    for guest in ("pv", "pvh"):
        for unit, bound in (("icount_us", 0.90), ("2cpu_us", 0.70)):
            row = find(rows, guest=guest, vcpus=4, busy=4, frames=8, unwind="auto", unit=unit, way="pause")
            if row:
                yield Limit(f"{guest.upper()}, {unit}: paused, 4 busy vCPUs / the same by one call each", row["paused"] / row["single"], bound)
                yield Limit(f"{guest.upper()}, {unit}: paused, 4 busy vCPUs / bare calls, nothing read", row["paused"] / row["calls"])
        of = {"guest": guest, "frames": 8, "unwind": "auto", "unit": "icount_us", "way": "auto"}
        few, many = find(rows, vcpus=2, busy=2, **of), find(rows, vcpus=32, busy=2, **of)
        one, four = find(rows, vcpus=1, busy=1, **of), find(rows, vcpus=4, busy=4, **of)
        if few and many and one and four:
            idle, busy = (many["whole"] - few["whole"]) / 30, (four["whole"] - one["whole"]) / 3
            yield Limit(f"{guest.upper()}: one more idle vCPU / one more busy one", idle / busy, 0.25)
        idle = find(rows, vcpus=1, busy=0, **of)
        if idle and one:
            yield Limit(f"{guest.upper()}: an idle guest / a busy one", idle["whole"] / one["whole"], 0.50)
        if one:
            yield Limit(f"{guest.upper()}: samples of a waiting vCPU without a pause", one["unpaused"], 0.99, True)


def arm(rows):
    for guest in ("arm64", "arm32", "arm32t"):
        for way in ("auto", "pause"):
            row = find(rows, guest=guest, unit="arm64_icount_us", vcpus=1, busy=1, frames=8, unwind="auto", way=way)
            if row:
                yield Limit(f"{guest}, {way}: paused / floor", row["paused"] / row["floor"], 1.05)
                yield Limit(f"{guest}, {way}: whole / floor", row["whole"] / row["floor"])


def longest(rows):
    for row in rows:
        if "longest_pause" in row:
            yield Limit(f"{row['guest']}: longest pause of {row['samples']} samples / the usual one",
                        row["longest_pause"] / row["median_pause"], 10)


def foreign(rows):
    """Guests with traits cost what others do, and hardly ever more than usual."""
    for row in rows:
        if "mean" in row:
            hard = row["guest"].startswith(("page0", "threads"))
            yield Limit(f"{row['guest']}: whole / floor", row["whole"] / row["floor"], (1.35 if "-pvh" in row["guest"] else 1.20) if hard else None)
            yield Limit(f"{row['guest']}: mean / median", row["mean"] / row["whole"], 1.3)
            yield Limit(f"{row['guest']}: paused / floor", row["paused"] / row["floor"], 1.05)


def work(rows):
    for rate, bound in ((101, 0.990), (997, 0.955), (9973, 0.5)):
        for row in rows:
            if row.get("rate") == rate and row["unit"] == "icount" and row["scheduler"] in ("default", "favoured"):
                yield Limit(f"guest's work at {rate}/s, one CPU, {row['scheduler']} scheduler", row["work"], bound, True)


def limits(rows):
    return [limit for group in (one_sample, pv32, depth, vcpus, arm, foreign, longest, work) for limit in group(rows)]

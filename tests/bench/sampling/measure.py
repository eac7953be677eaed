# SPDX-License-Identifier: BSD-3-Clause
"""Takes the figures, in the rig. Each is a dictionary, as --json prints it."""

import dataclasses
import json
import re
import subprocess

from xenrig import Rig, cross
from xenrig.port import PORTS, X86

TIMEOUT_S = 900
# Ways whose walk needs frame pointers: beside another unwinding stands what they take for the same frames with those.
BY_FRAME_POINTER = ("classic", "libxc")
# Ways of older tools; not for every architecture.
OLDER = (*BY_FRAME_POINTER, "xenctx")
# Build of the guest for each way to unwind. "auto" is the default, and takes the tables of a file that has them.
IMAGES = {"fp": "fp", "auto": "fp", "cfi": "nofp"}
COUNTER_OFFSET, COUNTER_STEP = 24, 40  # struct truth (guests/runtime/guest.h): calls, size
RATES = (101, 997, 9973)
# dom0's weight, and Xen's rate limit in µs: whom it gives the CPU keeps it so long, and who wakes up earlier waits for
# the end of the time slice.
SCHEDULERS = {"default": (256, 1000), "limit 100": (256, 100), "favoured": (65535, 1000)}


@dataclasses.dataclass(frozen=True)
class Machine:
    unit: str          # of its figures
    options: dict      # of the rig
    statistic: str     # of many samples, the one that is told
    rounds: int
    guest: str = ""    # settings of every guest
    cost: str = ""     # options of sample_cost
    window_s: int = 3  # of the guest's own work
    windows: int = 1
    frames: tuple = (8, 32, 128)
    unwinds: tuple = tuple(IMAGES)
    parts: tuple = ("cost", "states", "foreign", "overhead")
    guests: tuple = ("pv", "pvh")
    vcpus: tuple = (1, 4)

    @property
    def port(self):
        return PORTS[self.options.get("arch", X86.name)]


ICOUNT = Machine("icount_us", {"icount": True}, "median", 100)
# Other work of this machine can only make a figure worse.
TWO_CPUS = Machine("2cpu_us", {"cpus": 2, "parallel": True}, "min", 400, "'cpus=\"1\"'", "-r", 2, 5, (8, 128), ("auto",), ("cost", "overhead"))
# dom0 has the first CPU for itself; both take turns, so that time goes by for each while the other runs.
IN_TURN = Machine("icount_2cpu", {"cpus": 2, "icount": True}, "median", 100, "'cpus=\"1\"'", parts=())
ARM64 = Machine("arm64_icount_us", {"arch": "arm64", "icount": True}, "median", 100, frames=(8, 128), unwinds=("fp", "auto"),
                parts=("cost", "longest"), guests=("arm64", "arm32", "arm32t"))
# On a Xen that is built here: Debian's runs none.
PV32 = Machine("pv32_icount_us", {"xen": "built", "icount": True}, "median", 100, unwinds=("fp", "auto"), parts=("cost",), guests=("pv32",), vcpus=(1,))
MACHINES = {"icount": ICOUNT, "2cpu": TWO_CPUS, "pv32": PV32, "arm64": ARM64}
# Guests with traits of those that others wrote (guests/README.md), and their images.
TRAITS = {"page0-pv": "page0-pvzero-nofp", "page0-pvh": "page0-pvh-nofp", "threads-pv": "threads-pv-nofp", "threads-pvh": "threads-pvh-nofp",
          "threads-pv-fp": "threads-pv-fp", "threads-pv-cfiasm": "threads-pv-cfiasm-nofp", "threads-pvh-cfiasm": "threads-pvh-cfiasm-nofp",
          "elf32-pvh": "elf32-pvh-cfiasm-nofp", "handlers-pv": "handlers-pv-nofp", "noreturn-pv": "noreturn-pv-cfiasm-nofp",
          "redzone-pv": "redzone-pv-nofp", "shared-page-pv": "shared-page-pv-nofp", "shared-page-pvh": "shared-page-pvh-nofp"}
# Samples of a run whose longest pause is reported.
LONG_RUN = 10000
PROGRAMS = ("tests/bench/sampling/sample_cost", "tests/bench/sampling/sample_work")


@dataclasses.dataclass(frozen=True)
class Setting:
    guest: str
    vcpus: int = 1
    busy: int = 1
    frames: int = 8
    unwind: str = "fp"

    def image(self):
        return f"chain-{self.guest}-{IMAGES[self.unwind]}"


class Bench:
    """A dom0 with all that is needed."""

    def __init__(self, build, machine, rounds=None):
        self.machine = machine
        self.rounds = rounds or machine.rounds
        self.guests = build / "guests"
        programs = ("uniprof", *PROGRAMS)
        if machine.port is not X86:
            build = cross.build(machine.port, programs)
        self.rig = Rig(**machine.options)
        self.rig.put(*(build / program for program in programs))
        self.there = set()
        self.schedule("favoured")

    def close(self):
        self.rig.close()

    def schedule(self, scheduler):
        weight, limit_us = SCHEDULERS[scheduler]
        self.rig.run(f"xl sched-credit2 -d 0 -w {weight} && xl sched-credit2 -s -p Pool-0 -r {limit_us}", check=True)

    def create(self, setting):
        self.start(setting.image(), f"vcpus={setting.vcpus}", f"frames={setting.frames} busy={setting.busy}")
        return setting.image()

    def start(self, image, settings="", options=""):
        if image not in self.there:
            endings = ("elf", "cfg") if self.machine.port is X86 else ("elf", "cfg", "image")
            self.rig.put(*(self.guests / f"{image}.{ending}" for ending in endings))
            self.there.add(image)
        self.rig.run(f"xl create {image}.cfg {settings} {self.machine.guest} "
                     f"'cmdline=\"{options} seconds=3600\"'; sleep 0.2", check=True)

    def destroy(self, image):
        self.rig.run(f"xl destroy {image}", check=True)

    def costs(self, setting):
        """{way: what sample_cost says of it}"""
        # A round is the longer the more vCPUs take turns.
        return self.run(setting, f"-n {self.rounds // max(setting.busy, 1)} -b {setting.busy}")

    def run(self, setting, options):
        return self.measure(self.create(setting), setting.unwind, options)

    def measure(self, image, unwind, options):
        """{way: what sample_cost says of it} of a guest that runs, which is then destroyed."""
        result = self.rig.run(f"sample_cost {self.machine.cost} -u {unwind} -i {image}.elf {options} xen:{image}", TIMEOUT_S, check=True)
        self.destroy(image)
        return {figure["way"]: figure for figure in map(json.loads, result.text.splitlines())}

    def work(self, image, rate, seconds):
        """Work of the guest per second while it is sampled, and the results of the samples."""
        address = symbol(self.guests / f"{image}.elf", "truth") + COUNTER_OFFSET
        measure = f"sample_work xen:{image} {address:#x} {COUNTER_STEP} {seconds}"
        if rate:
            measure = (f"uniprof record -F {rate} -T {seconds + 2} -o work.uniprof {image} 2>said & "
                       f"sleep 1; {measure}; wait $!; cat said")
        text = self.rig.run(measure, TIMEOUT_S, check=True).text
        done = json.loads(text.splitlines()[0])["per_second"]
        if not rate:
            return done, 0, 0
        samples, elapsed, share = re.search(r"(\d+) samples in ([\d.]+) s, guest paused for ([\d.]+) %", text).groups()
        return done, int(samples) / float(elapsed), float(share) / 100


def symbol(image, name):
    for line in subprocess.run(["nm", image], check=True, capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        if words[-1] == name:
            return int(words[0], 16)
    raise ValueError(f"{image} has no {name}")


def steps(costs, pick):
    """Time of each step of a sample that pauses, by differences."""
    whole = {way: pick(figure["whole"]) for way, figure in costs.items()}
    paused = {way: pick(figure["paused"]) for way, figure in costs.items()}
    after = whole["pause"] - paused["pause"] - (whole["unread"] - paused["unread"])
    found = {"states": whole["step_states"], "pause": whole["step_pause"], "go": whole["step_go"],
             "context": whole["floor"] - whole["step_pause"] - whole["step_go"],
             "copy": paused["pause"] - whole["floor"],
             "finish": whole["unread"] - paused["unread"] - whole["step_states"],
             "unwind": after}
    return {name: round(value, 3) for name, value in found.items()}


def rows_of(bench, setting, costs, classic):
    """A row for each of uniprof's ways; classic has the ways that need frame pointers."""
    def pick(figures):
        return round(figures[bench.machine.statistic], 3)
    for way in ("pause", "auto"):
        row = {"guest": setting.guest, "vcpus": setting.vcpus, "frames": setting.frames, "unwind": setting.unwind,
               "unit": bench.machine.unit, "paused": pick(costs[way]["paused"]), "whole": pick(costs[way]["whole"]),
               "floor": pick(costs["floor"]["whole"]),
               **{other: pick((classic if other in BY_FRAME_POINTER else costs)[other]["whole"]) for other in OLDER if other in costs},
               "way": way, "busy": setting.busy, "calls": pick(costs["calls"]["whole"]), "single": pick(costs["single"]["paused"]),
               "frames_seen": costs[way]["frames"], "unpaused": costs[way]["unpaused"],
               "whole_p99": costs[way]["whole"]["p99"], "samples": costs[way]["n"]}
        if "floor_context" in costs:
            row["floor_context"] = pick(costs["floor_context"]["whole"])
        if way == "pause":
            row["steps"] = steps(costs, pick)
        yield row


def cost(bench):
    """Cost of a sample, by kind of guest, vCPUs (all busy), frames and unwinding."""
    for n in bench.machine.vcpus:
        for guest in bench.machine.guests:
            for depth in bench.machine.frames:
                classic = None
                for unwind in bench.machine.unwinds:
                    setting = Setting(guest, n, n, depth, unwind)
                    costs = bench.costs(setting)
                    classic = classic or costs
                    yield from rows_of(bench, setting, costs, classic)


def states(bench):
    """vCPUs that sleep: none, all, some, and nearly all."""
    for guest in bench.machine.guests:
        for vcpus, busy in ((1, 0), (4, 1), (2, 2), (32, 2)):
            setting = Setting(guest, vcpus, busy, unwind="auto")
            costs = bench.costs(setting)
            yield from rows_of(bench, setting, costs, costs)


def longest(bench, samples=LONG_RUN):
    """The longest pause of a run, from its first sample on, beside the usual one."""
    for guest in bench.machine.guests:
        found = bench.run(Setting(guest, unwind="auto"), f"-n {samples} -w first")["first"]
        yield {"guest": guest, "unit": bench.machine.unit, "samples": found["n"], "median_pause": found["paused"]["median"],
               "longest_pause": found["paused"]["max"], "longest_whole": found["whole"]["max"]}


def foreign(bench, guests=tuple(TRAITS)):
    """Cost of a sample of a guest with a trait: by default, and of a pause only what the guest stands still."""
    for guest in guests:
        bench.start(TRAITS[guest])
        costs = bench.measure(TRAITS[guest], "auto", f"-n {bench.rounds} -b 1 -w floor,pause,auto")
        yield {"guest": guest, "unit": bench.machine.unit, "whole": round(costs["auto"]["whole"]["median"], 3),
               "mean": round(costs["auto"]["whole"]["mean"], 3), "floor": round(costs["floor"]["whole"]["median"], 3),
               "paused": round(costs["pause"]["paused"]["median"], 3)}


def median(values):
    return sorted(values)[len(values) // 2]


def overhead(bench, guest="pv"):
    """The guest's own work, as a share of what it does when nobody looks."""
    machine = bench.machine
    for scheduler in SCHEDULERS if machine is ICOUNT else ["default"]:
        bench.schedule(scheduler)
        image = bench.create(Setting(guest, frames=10))
        for rate in RATES:
            shares, seen = [], None
            for _ in range(machine.windows):
                alone = bench.work(image, 0, machine.window_s)[0]
                done, *seen = bench.work(image, rate, machine.window_s)
                shares.append(done / alone)
            yield {"guest": guest, "unit": machine.unit.replace("_us", ""), "scheduler": scheduler, "rate": rate,
                   "work": round(median(shares), 4), "samples_per_second": round(seen[0], 1),
                   "paused_share": round(seen[1], 5)}
        bench.destroy(image)
    bench.schedule("favoured")


PARTS = {"cost": cost, "states": states, "foreign": foreign, "longest": longest, "overhead": overhead}


def measure(build, machines, parts, say):
    for name in machines:
        if not set(parts) & set(MACHINES[name].parts):
            continue
        bench = Bench(build, MACHINES[name])
        try:
            for part in (part for part in parts if part in bench.machine.parts):
                say(f"{name}: {part}")
                yield from PARTS[part](bench)
        finally:
            bench.close()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""How often a 95 % interval holds the truth, and mean shares beside the true ones: guests whose shares are known, on hosts
with and without other work.

    tests/truth/intervals.py                              each kind of guest on each host, 1,000 shares of each
    tests/truth/intervals.py --shares 100 process qemu    some kinds of guests
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "rig" / "lib"))

BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build")).resolve()
PROGRAMS = BUILD / "tests" / "vmm" / "programs"

HOGS = 4
HOG = "while :; do :; done"

# Looks a second, and seconds of a recording.
RATE, SECONDS = 500, 1

# Seconds of a recording whose sampler is stopped, and seconds that it runs and is stopped.
STOPPED_SECONDS = 3
RUNS, STOPS = (0.2, 2), (0.1, 1)

# Recordings of a guest of Xen's that dom0 makes by itself.
BATCH = 20

# Seconds until a guest is at work, at most.
PATIENCE = 60

SPINNER = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}
QUARTERS = {"function_1": 0.25, "function_3": 0.75}


class Here:
    """A guest of this host, with what else the host does."""

    def __init__(self, expected, command, target, options=()):
        self.expected, self._command, self._target, self._options = expected, command, target, options
        self._scratch = tempfile.TemporaryDirectory()
        self._programs = []
        self.scratch = Path(self._scratch.name)

    def __enter__(self):
        try:
            guest = self._start(*self._command(self.scratch))
            self._target = self._target(self.scratch, guest.pid)
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for program in self._programs:
            program.kill()
            program.wait()
        self._scratch.cleanup()

    def _start(self, *command):
        with (self.scratch / "said").open("ab") as said:
            self._programs.append(subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=said, stderr=said))
        return self._programs[-1]

    def _begin(self):
        """Waits until the guest is at work: the first recordings would be of its firmware."""
        end = time.monotonic() + PATIENCE
        while not any(set(self.expected) <= set(shares(report)) for report in self.reports(stops=False)):
            if time.monotonic() > end:
                raise RuntimeError(f"the guest does not begin its work: {(self.scratch / 'said').read_text()}")
            time.sleep(0.1)

    def busy(self):
        for _ in range(HOGS):
            self._start("sh", "-c", HOG)

    def record(self, stops):
        path = self.scratch / "out.uniprof"
        path.unlink(missing_ok=True)
        profiler = subprocess.Popen(
            [BUILD / "uniprof", "record", "-q", *self._options, "-F", str(RATE), "-T", str(STOPPED_SECONDS if stops else SECONDS),
             "-o", path, self._target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while stops and profiler.poll() is None:
            time.sleep(random.uniform(*RUNS))
            profiler.send_signal(signal.SIGSTOP)
            time.sleep(random.uniform(*STOPS))
            profiler.send_signal(signal.SIGCONT)
        profiler.wait()
        return path

    def reports(self, stops):
        """Those of some recordings; none if nothing was recorded."""
        path = self.record(stops)
        if path.exists():
            report = subprocess.run([BUILD / "uniprof", "report", "--json", "--no-inline", path], stdout=subprocess.PIPE, check=True)
            yield json.loads(report.stdout)


class There:
    """A guest of Xen in the rig, on a CPU of its own; the host's other work is dom0's."""

    def __init__(self, expected, guest):
        self.expected, self._guest = expected, guest

    def __enter__(self):
        import xenrig  # pylint: disable=import-outside-toplevel  # needs QEMU
        self._rig = xenrig.Rig(cpus=2, parallel=True)
        try:
            self._rig.put(BUILD / "uniprof", *(BUILD / "guests" / f"{self._guest}.{kind}" for kind in ("elf", "cfg")))
            self._dom0(f"xl vcpu-pin Domain-0 all 0; xl create -q {self._guest}.cfg 'cpus=\"1\"' 'cmdline=\"seconds=1000000\"'; sleep 3")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._rig.close()

    def _dom0(self, commands):
        return self._rig.run(commands, timeout=600, check=True).text

    def busy(self):
        self._dom0("".join(f"({HOG}) >/dev/null 2>&1 & " for _ in range(HOGS)))

    def _script(self, stops):
        """Commands that record the guest once and print the report."""
        script = f"uniprof record -q -F {RATE} -T {STOPPED_SECONDS if stops else SECONDS} -o out.uniprof {self._guest} >/dev/null 2>&1 & p=$!; "
        if stops:
            for _ in range(int(STOPPED_SECONDS / min(RUNS))):
                runs, stopped = (int(1e6 * random.uniform(*times)) for times in (RUNS, STOPS))
                script += f"usleep {runs}; kill -STOP $p 2>/dev/null || exit 0; usleep {stopped}; kill -CONT $p; "
        return f"rm -f out.uniprof; ({script} wait $p) >/dev/null 2>&1; uniprof report --json --no-inline out.uniprof; "

    def reports(self, stops):
        text = self._dom0("".join(self._script(stops) for _ in range(BATCH)))
        while text:
            report, end = json.JSONDecoder().raw_decode(text)
            yield report
            text = text[end:].lstrip()


def shares(report):
    """{function: (share, low, high)} with all that it calls."""
    return {row["function"]: tuple(row["total"][key] for key in ("share", "low", "high")) for row in report["rows"]}


def process(*options):
    return lambda: Here(SPINNER, lambda scratch: [PROGRAMS / "subject"], lambda scratch, pid: f"process:{pid}", options)


def kvm(*options):
    return lambda: Here(SPINNER, lambda scratch: [PROGRAMS / "monitor", PROGRAMS / "spinner-fp"], lambda scratch, pid: f"kvm:{pid}", options)


def qemu_command(scratch):
    return ["qemu-system-x86_64", "-accel", "tcg", "-m", "64", "-display", "none", "-serial", "null", "-qmp",
            f"unix:{scratch}/qmp.sock,server=on,wait=off", "-kernel", BUILD / "guests" / "noreturn-pvh-fp.elf", "-append", "seconds=1000000"]


KINDS = {
    "process": process(),
    "process-ptrace": process("--via", "ptrace"),
    "kvm": kvm(),
    "kvm-ptrace": kvm("--via", "ptrace"),
    # On a busy host it takes QEMU long to stop, and few ticks would be left.
    "qemu": lambda: Here(QUARTERS, qemu_command, lambda scratch, pid: f"qemu:{scratch}/qmp.sock", ("--max-overhead", "100")),
    "xen-pv": lambda: There(QUARTERS, "noreturn-pv-fp"),
    "xen-pvh": lambda: There(QUARTERS, "noreturn-pvh-fp"),
}
HOSTS = "quiet", "busy", "stopped"


class Measured:
    """Shares of one guest on one host: how many, how many intervals hold, and each function's mean."""

    def __init__(self, expected):
        self.expected, self.held, self.shares = expected, 0, 0
        self._sums, self._recordings = dict.fromkeys(expected, 0), 0

    def add(self, report):
        found = {function: shares(report).get(function, (0, 0, 0)) for function in self.expected}
        # What calls them takes a part of the time, too.
        work = sum(share for share, _, _ in found.values())
        self.held += sum(low <= self.expected[function] * work <= high for function, (_, low, high) in found.items())
        self.shares += len(found)
        self._recordings += work > 0
        for function, (share, _, _) in found.items():
            self._sums[function] += share / work if work else 0

    def means(self):
        return {function: round(total / max(self._recordings, 1), 4) for function, total in self._sums.items()}


def measure(kind, host, wanted):
    """Records one guest until so many shares are measured."""
    with KINDS[kind]() as guest:
        measured = Measured(guest.expected)
        if host == "busy":
            guest.busy()
        while measured.shares < wanted:
            for report in guest.reports(host == "stopped"):
                measured.add(report)
    return measured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} (default: all)")
    parser.add_argument("--hosts", default=",".join(HOSTS), help="of %(default)s")
    parser.add_argument("--shares", type=int, default=1000, help="how many are measured at least (%(default)s)")
    options = parser.parse_args()
    for kind in options.kinds or KINDS:
        for host in options.hosts.split(","):
            measured = measure(kind, host, options.shares)
            print(json.dumps({"guest": kind, "host": host, "shares": measured.shares, "held": measured.held,
                              "percent": round(100 * measured.held / measured.shares, 1), "expected": measured.expected,
                              "mean": measured.means()}), flush=True)


if __name__ == "__main__":
    main()

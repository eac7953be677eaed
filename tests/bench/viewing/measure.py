# SPDX-License-Identifier: BSD-3-Clause
"""Made-up recordings, and what it costs to view them."""

import os
import subprocess
import time
from pathlib import Path

BASE, STEP, FUNCTIONS = 0xFFFFFFFF81000000, 0x130, 12000  # where recording_bench has its addresses


class Bench:
    """The programs of a build, and a directory for recordings."""

    def __init__(self, build, directory):
        self.build, self.directory = Path(build), Path(directory)
        subprocess.run(["ninja", "-C", build, "uniprof", "symbolize", "src/recording_bench"], check=True,
                       stdout=subprocess.DEVNULL)
        self.symbols = self.directory / "symbols"
        self.symbols.write_text("".join(f"{BASE + i * STEP:016x} t function_{i}\n" for i in range(FUNCTIONS)))

    def record(self, samples, stacks, depth=12):
        """A recording with so many samples of one vCPU, and so many different stacks of so many frames."""
        path = self.directory / f"{samples}-{stacks}.uniprof"
        subprocess.run([self.build / "src/recording_bench", "write", path, str(samples), str(stacks), "1", str(depth)],
                       check=True, stdout=subprocess.DEVNULL)
        return path

    def trace(self, recording):
        """The stacks as a classic trace without names."""
        path = recording.with_suffix(".raw")
        subprocess.run([self.build / "uniprof", "export", "--format=raw", "-o", path, recording],
                       check=True, stderr=subprocess.DEVNULL)
        return path

    def view(self, recording, *arguments):
        """What a verb with its arguments takes, and the size of what it writes."""
        out = self.directory / "view"
        command = [self.build / "uniprof", *arguments, "-o", out, recording]
        if arguments[0] in ("diff", "merge"):
            command.append(recording)
        if arguments[0] != "merge":
            command += ["-s", self.symbols]
        cost = self.pipe([command], os.devnull)
        size = out.stat().st_size
        out.unlink()
        return cost | {"bytes": size}

    def draw(self, recording):
        return self.view(recording, "flamegraph")

    def symbolize(self, program, trace):
        """Into a pipe, as it is used."""
        return self.pipe([[program, self.symbols, trace], ["cat"]], os.devnull)

    def ours(self):
        return self.build / "symbolize"

    def chain(self, old_symbolize, flamegraph, trace):
        svg = trace.with_suffix(".old.svg")
        return self.pipe([[old_symbolize, self.symbols, trace], ["perl", flamegraph / "stackcollapse.pl"],
                          ["perl", flamegraph / "flamegraph.pl"]], svg)

    def pipe(self, commands, output):
        """Runs a pipeline; seconds, those of CPU time, and the peak memory of its processes together (MiB)."""
        running, source = [], subprocess.DEVNULL
        start = time.monotonic()
        with open(output, "wb") as out:
            for i, command in enumerate(commands):
                last = i == len(commands) - 1
                process = subprocess.Popen([str(part) for part in command], stdin=source, stderr=subprocess.DEVNULL,
                                           stdout=out if last else subprocess.PIPE)
                if i:
                    source.close()
                source = process.stdout
                running.append(process)
            usage = [os.wait4(process.pid, 0) for process in running]
        took = time.monotonic() - start
        for process, (_, status, _) in zip(running, usage):
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise RuntimeError(f"{process.args[0]} failed: {process.returncode}")
        return {"seconds": took, "cpu": sum(use.ru_utime + use.ru_stime for _, _, use in usage), "mib": sum(use.ru_maxrss for _, _, use in usage) / 1024}


def best(rounds, measure):
    """The round that was disturbed least."""
    return min((measure() for _ in range(rounds)), key=lambda result: result["cpu"])

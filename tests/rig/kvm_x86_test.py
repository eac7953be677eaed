#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests of a real KVM (kvm_amd under emulation) on Debian's kernels: stacks of one moment, true shares.

UNIPROF_KVM_STACKS: how many stacks are taken of guests with two address spaces or processes, by each way (default 1000).
UNIPROF_KILLS: how often the profiler is killed by each way (default 10).
"""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from guestcase import BUILD
from kvmcase import UNTRACED, WORK, KillsChecks, KvmCase, SpacesChecks

STACKS = int(os.environ.get("UNIPROF_KVM_STACKS", "1000"))

# Length of each recording, and the most recordings.
SECONDS = 2
RECORDINGS = 150

KILLS = int(os.environ.get("UNIPROF_KILLS", "10"))

APP1 = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}
APP2 = {"function_1": 0.4, "function_2": 0.6, "function_3": 0.4, "function_4": 0.4, "function_5": 0.2}
TOLERANCE = 0.1


class Spaces(KvmCase, SpacesChecks):
    """A guest that changes its address space without an exit: each stack is of the one that was there in that moment.

    Only where uniprof and the guest have a CPU each, samples come while the guest runs.
    """

    rig_options = {"cpus": 2}
    stacks = STACKS
    recorded = SECONDS, RECORDINGS

    def test_by_bpf(self):
        self.check_spaces("bpf")

    def test_by_ptrace(self):
        self.check_spaces("ptrace")


class FewSpaces(Spaces):
    stacks = 200


class Spaces612(Spaces):
    rig_options = {"kernel": "6.12", "cpus": 2}


class Processes(KvmCase, SpacesChecks):
    """A kernel that goes from one process to the other without an exit: no stack has functions of both."""

    rig_options = {"cpus": 2}
    stacks = STACKS // 4
    recorded = SECONDS, RECORDINGS

    def test_by_bpf(self):
        self.check_processes("bpf", "processes-fp")

    def test_by_bpf_without_frame_pointers(self):
        self.check_processes("bpf", "processes-nofp")

    def test_by_ptrace(self):
        self.check_processes("ptrace", "processes-fp")

    def test_by_ptrace_without_frame_pointers(self):
        self.check_processes("ptrace", "processes-nofp")


class Processes612(Processes):
    rig_options = {"kernel": "6.12", "cpus": 2}


class OneCpu(Spaces):
    """uniprof and the guest share a CPU: by BPF, a stack is copied as the guest's thread leaves it."""

    rig_options = {}
    stacks = STACKS // 2


class Shadow(Spaces):
    """Without nested paging, KVM keeps the guest's page tables, and sees each change: where it makes them, the guest waits."""

    rig_options = {"npt": False, "cpus": 2}
    stacks = STACKS // 2
    inside = 0.02


class Shares(KvmCase):
    """Guests of Debian's QEMU."""

    rig_options = {"cpus": 2}

    def check_app(self, guest, known, way):
        self.boot(guest)
        self.check_shares(guest, known, TOLERANCE, ("--via", way, "-F", 500), 1)

    def test_app1_by_bpf(self):
        self.check_app("app1-pvh-fp", APP1, "bpf")

    def test_app1_by_ptrace(self):
        self.check_app("app1-pvh-nofp", APP1, "ptrace")

    def test_app2_by_bpf(self):
        self.check_app("app2-pvh-nofp", APP2, "bpf")

    def test_app2_by_ptrace(self):
        self.check_app("app2-pvh-fp", APP2, "ptrace")


class Shares612(Shares):
    rig_options = {"kernel": "6.12", "cpus": 2}


class Kills(KvmCase, KillsChecks):
    """A profiler that is killed at a random moment leaves no guest stopped, as the guest's own count of its work shows."""

    rig_options = {"cpus": 2}
    kills = KILLS

    def test_by_bpf(self):
        self.check_kills("bpf")

    def test_by_ptrace(self):
        self.check_kills("ptrace")


class FewKills(Kills):
    kills = 2


class Cost(KvmCase):
    """On one CPU that counts instructions, where all that uniprof does takes its time from the guest (docs/cost.md)."""

    rig_options = {"icount": True}
    rate = 997
    seconds = 6

    # The monitor tells it ten times a second.
    now = f"before=$({WORK}); until now=$({WORK}); [ $now != $before ]; do usleep 5000; done; echo $now $(cat /proc/uptime)"

    def speed(self):
        """The guest's work in a second."""
        said = self.host(f"{self.now}; sleep {self.seconds}; {self.now}")
        (first, begin), (last, end) = ([float(word) for word in line.split()[:2]] for line in said.splitlines())
        return (last - first) / (end - begin)

    def taken(self):
        """CPU time of uniprof until now, ns, and the time, s."""
        up, *times = self.host("cat /proc/uptime; for pid in $(pidof uniprof); do cat /proc/$pid/schedstat; done").splitlines()
        return sum(int(line.split()[0]) for line in times), float(up.split()[0])

    def check_cost(self, way, least_work):
        self.start("spinner-fp")
        alone = self.speed()
        self.host(f"rm -f out.uniprof; uniprof record -q --via {way} -F {self.rate} -o out.uniprof kvm:monitor >said 2>&1 &")
        self.until("[ -s out.uniprof ]")
        taken, begin = self.taken()
        sampled = self.speed()
        each, end = self.taken()
        each = (each - taken) / (self.rate * (end - begin))
        self.host("kill -INT $(pidof uniprof); while pidof uniprof; do usleep 100000; done; cat said")
        print(f"{way}: the guest's work {sampled / alone:.3f}; a sample takes {each / 1000:.1f} thousand instructions")
        self.assertGreaterEqual(sampled / alone, least_work)
        return json.loads(self.host("uniprof report --json out.uniprof"))

    def test_by_bpf_nothing_is_stopped(self):
        head = self.check_cost("bpf", 0.96)
        self.assertEqual(head["paused"]["total_ns"], 0)
        self.assertEqual(head["paused"]["ticks_without"], head["ticks"]["count"])

    def test_by_ptrace_a_stop_is_short(self):
        head = self.check_cost("ptrace", 0.88)
        print(f"ptrace: stopped for {head['paused']['median_ns'] / 1000:.1f} thousand instructions")
        self.assertLessEqual(head["paused"]["median_ns"], 45_000)


class Loads(KvmCase):
    """What compilers make of the program for BPF, on kernels that take it."""

    rig_options = {"cpus": 2}
    object = "src/target/kvm/vcpu.bpf.o"

    @classmethod
    def setUpClass(cls):
        if not shutil.which("bpftool", path="/usr/sbin:/usr/bin:/bin"):
            raise unittest.SkipTest("no bpftool on this machine")
        super().setUpClass()
        cls.rig.put(shutil.which("bpftool", path="/usr/sbin:/usr/bin:/bin"))
        cls.rig.run("mount -t bpf none /sys/fs/bpf", check=True)

    def made_by(self, compiler, directory):
        """The object, by the build's own command."""
        command = shlex.split(subprocess.run(["ninja", "-C", BUILD, "-t", "commands", self.object], check=True, stdout=subprocess.PIPE,
                                             text=True).stdout.splitlines()[-1])
        made = Path(directory, f"{Path(compiler).name}.o")
        command = [compiler, *(word if word != self.object else str(made) for word in command[1:])]
        command[command.index("-MF") + 1] = f"{made}.d"
        subprocess.run(command, cwd=BUILD, check=True)
        return made

    def test_what_each_compiler_makes_is_loaded(self):
        compilers = [found for name in ("clang", *(f"clang-{version}" for version in range(14, 30))) if (found := shutil.which(name))]
        if not compilers:
            self.skipTest("no clang on this machine")
        for compiler in compilers:
            with self.subTest(compiler=compiler), tempfile.TemporaryDirectory() as directory:
                made = self.made_by(compiler, directory)
                self.rig.put(made)
                self.host(f"bpftool prog loadall {made.name} /sys/fs/bpf/{made.stem}")

    def test_the_list_promises_it(self):
        self.start("spinner-fp")
        self.assertRegex(self.host("uniprof list"), r"kvm +\d+ +monitor +kvm +1 +bpf +0 us  uniprof record kvm:monitor\n")
        self.assertIn(" via bpf,", self.record("monitor", "-T", 0.3))


    def test_two_profilers_at_once(self):
        """A vCPU is traced until it has been compared, and never after that."""
        self.start("spinner-fp")
        self.host("rm -f first.uniprof; uniprof record -q -o first.uniprof kvm:monitor >said 2>&1 &")
        self.until("[ -s first.uniprof ] && " + UNTRACED)
        self.assertIn(" via bpf,", self.record("monitor", "-T", 2))
        self.host("kill -INT $(pidof uniprof); while pidof uniprof; do usleep 100000; done")
        for recording in ("first.uniprof", "out.uniprof"):
            self.assertIn("start;work", self.host(f"uniprof export --format=folded {recording}"))


class Loads612(Loads):
    rig_options = {"kernel": "6.12", "cpus": 2}


class Refused(KvmCase):
    """A kernel that is too old for the program."""

    rig_options = {"kernel": "5.10", "cpus": 2}
    reason = r"this kernel refuses the program for it: \w+"

    def test_the_reason_is_told_and_the_next_way_is_taken(self):
        self.start("spinner-fp")
        self.assertRegex(self.host("uniprof list"), r"kvm +\d+ +monitor +kvm +1 +ptrace +\d+ us  uniprof record kvm:monitor +"
                         rf"\(BPF would not stop it, but cannot be had: {self.reason}")
        self.assertRegex(self.record("monitor", "--via", "bpf", "-T", 0.3, expect=4), f"--via bpf: {self.reason}")
        said = self.record("monitor", "-T", 1)
        self.assertIn(" via ptrace,", said)
        self.assertRegex(said, self.reason)
        self.assertEqual({stack[0] for stack in self.folded()}, {"start"})


if __name__ == "__main__":
    unittest.main()

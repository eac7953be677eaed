#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Processes, threads and containers of several releases of Linux in QEMU, by its stub: what /proc tells inside, and what is told from outside."""

import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from hostcase import chance
from linuxcase import BOOT, PROGRAM, LinuxCase
from linuxfiles import files_of
from linuxproc import Proc
from xenrig import RigError, packages
from xenrig.port import ARM64

DOCKER = "docker-" + 3 * "0123456789abcdef" + "fedcba9876543210.scope"

# Processes in each state, with and without libraries; three that turn, in control groups and with unequal shares, beside a thread of a fourth that does;
# what /proc says of all; and then each second what those have used.
START = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir /proc /sys /mnt
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
$b mount -t sysfs none /sys
$b mount -t GROUPS
$b mount -t tmpfs none /mnt
$b mkdir -p $groups/system.slice/nginx.service $groups/system.slice/DOCKER /mnt/tools /mnt/gone
$b cp $b /mnt/tools
$b cp $b /mnt/gone
/bin/sleep 1000000 &
/bin/sleep 1500000 &
/mnt/tools/busybox sleep 2000000 &
/mnt/gone/busybox sleep 3000000 &
$b sh -c '/bin/busybox true & exec /bin/busybox sleep 1000000' &
until [ $($b cat /proc/[0-9]*/syscall | $b grep -c -E '^(NAPS) ') = 5 ]; do $b sleep 1; done
$b rm /mnt/gone/busybox
$b sleep 2000000 &
$b kill -STOP $!
for state in Z T; do until $b grep -q "^State:.$state" /proc/[0-9]*/status; do $b sleep 1; done; done
spin() {
    echo 0 >$groups/system.slice/$2/cgroup.procs
    echo -n $1 >/proc/self/comm
    while :; do :; done
}
/bin/linux-threads &
pids=$!
spin spin-a nginx.service &
pids="$pids $!"
spin spin-b DOCKER &
$b renice 5 $!
pids="$pids $!"
spin spin-c DOCKER &
pids="$pids $!"
for name in waits turns spin-a spin-b spin-c; do until $b grep -q "^$name" /proc/[0-9]*/task/*/comm; do $b sleep 1; done; done
for process in /proc/[0-9]*; do $b sed "s|^|maps $process |" $process/maps; done
$b grep -s '' /proc/[0-9]*/syscall
$b grep -s '' /proc/[0-9]*/cgroup
$b grep -s '' /proc/[0-9]*/task/*/stat
$b grep -s ctxt_switches /proc/[0-9]*/task/*/status
$b grep -s '' /proc/[0-9]*/task/*/stack
echo guest is up
while :; do
    $b sleep 1
    $b grep -s '' $(for pid in $pids; do echo /proc/$pid/task/*/schedstat; done) /dev/null
    echo told
done
"""
SPENT = re.compile(r"^/proc/(\d+)/task/\d+/schedstat:(\d+)", re.M)
GROUP = re.compile(r"^/proc/(\d+)/cgroup:\d+:[\w,]*:(.*)$", re.M)
TOLERANCE = 0.03
DIRECTORY = (0o40755, b"", (0, 0))


class Kernel(Proc, LinuxCase):
    groups = "cgroup2 none ${groups:=/sys/fs/cgroup}"
    naps = "35|230"  # numbers of nanosleep and clock_nanosleep
    threads = PROGRAM
    tty = "ttyS0"

    def files(self, busybox):
        """Files of the guest with busybox, and with a program that sleeps and has libraries."""
        return files_of({"bin/busybox": busybox, "bin/sleep": Path("/bin/sleep")})

    def boot_linux(self):
        deb = next(packages.ensure("4.17", print, self.port).glob("busybox-static_*.deb"))
        subprocess.run(["dpkg-deb", "-x", deb, self.scratch / "busybox"], check=True)
        init = self.scratch / "init"
        init.write_text(START.replace("GROUPS", self.groups).replace("DOCKER", DOCKER).replace("NAPS", self.naps))
        more = {**self.files(self.scratch / "busybox/bin/busybox"), "bin/linux-threads": (0o100755, self.threads.read_bytes(), (0, 0))}
        self.start_linux(f"quiet console={self.tty}", init, more=more)
        self.wait_for(lambda: "guest is up" in self.told(), "its programs do not begin", BOOT)

    def ask(self, *words):
        return json.loads(self.uniprof(*words, f"qemu:{self.qmp}", timeout=600))

    def spent(self):
        """CPU time of the processes that turn, ns, as the guest told last."""
        last = self.told().rpartition("told\n")[0].rpartition("told\n")[2]
        spent = {}
        for pid, ns in SPENT.findall(last):
            spent[int(pid)] = spent.get(int(pid), 0) + int(ns)
        return spent

    def rows(self, by, *options):
        """Samples of each row."""
        report = json.loads(self.uniprof("report", "--json", "--rows", 0, "--by", by, *options, "out.uniprof"))
        return {row[by]: row["self"]["samples"] for row in report["rows"]}

    def containers(self):
        """{pid: (name, path) of the container that it is in}, as the guest told."""
        names = {"/": "/", "/system.slice/nginx.service": "nginx.service", f"/system.slice/{DOCKER}": "docker:0123456789ab"}
        return {int(pid): (names[path], path) for pid, path in GROUP.findall(self.told())}

    def check_containers(self, listed):
        """Each process is told in the container that it is in, in the list and in the recording."""
        inside = self.containers()
        outside = {process["pid"]: (process.get("container"), process.get("cgroup")) for process in listed["processes"]}
        for pid, container in inside.items():
            # Some have ended since.
            self.assertIn(outside.get(pid), (container, None), listed)
        self.assertEqual(len(set(outside[pid] for pid in self.spent())), 3, outside)
        self.assertRegex(self.uniprof("ps", f"qemu:{self.qmp}", timeout=600), r"(?m) CONTAINER +NAME\n(.*\n)* .* nginx\.service +spin-a\n")
        processes, rows = self.rows("process"), self.rows("container")
        expected = {}
        for process, samples in processes.items():
            pid = process.rpartition("(")[2].rstrip(")")
            name = inside.get(int(pid), ("/",))[0] if pid.isdigit() else process
            expected[name] = expected.get(name, 0) + samples
        # Of a process that ended at once, the container is not known.
        unknown = rows.pop("[unknown]", 0) - expected.pop("[unknown]", 0)
        self.assertEqual(rows["nginx.service"], expected["nginx.service"])
        self.assertEqual(rows["docker:0123456789ab"], expected["docker:0123456789ab"])
        self.assertEqual(rows["/"], expected["/"] - unknown)
        self.assertLess(unknown, 0.05 * sum(rows.values()), rows)
        spins = {name: n for name, n in processes.items() if name.startswith("spin-")}
        of_docker = {name: n for name, n in spins.items() if not name.startswith("spin-a")}
        for words in "docker:0123456789ab", f"/system.slice/{DOCKER}":
            self.assertEqual(self.rows("process", "--container", words), of_docker)
        self.assertEqual(self.rows("process", "--container", "nginx.service,docker:0123456789ab"), spins)
        folded = self.uniprof("export", "--format", "folded", "--by", "container", "out.uniprof")
        self.assertLessEqual({"nginx.service", "docker:0123456789ab", "/"}, {line.split(";")[0] for line in folded.splitlines()})

    def take(self, attempt):
        before = self.spent()
        self.uniprof("record", "-q", "--max-overhead", 50, "-F", 97, "-T", 5 * chance.longer(attempt), "-o", "out.uniprof", f"qemu:{self.qmp}", timeout=600)
        had = {pid: ns - before[pid] for pid, ns in self.spent().items()}
        rows = {int(row.rpartition("(")[2][:-1]): samples for row, samples in self.rows("process").items() if row.endswith(")")}
        return {f"({pid})": rows.get(pid, 0) for pid in had}, {f"({pid})": ns / sum(had.values()) for pid, ns in had.items()}

    def check(self):
        self.boot_linux()
        listed = self.ask("ps", "--json", "--maps")
        self.assertEqual((listed["system"], listed["trouble"]), ("Linux", None))
        inside = self.inside()
        self.check_states(self.compare(listed, inside), inside)
        maps = self.check_maps(listed)
        dumped = self.ask("stack", "--all-threads", "--full-names", "--json")
        self.compare_stacks(dumped)
        self.check_calls(dumped, maps)
        self.wait_for(lambda: self.told().count("told") > 1, "it does not go on", BOOT)
        chance.check_shares(self.take, TOLERANCE)
        self.check_containers(listed)


class Linux510(Kernel):
    release = "4.14"

    def test_what_is_told_is_what_proc_tells(self):
        self.check()


class Linux61(Kernel):
    def test_what_is_told_is_what_proc_tells(self):
        self.check()


class Linux612(Kernel):
    release = "4.20"

    def test_what_is_told_is_what_proc_tells(self):
        self.check()


# A program for arm64 with libraries.
SLEEP = """
#include <stdlib.h>
#include <time.h>
int main(int argc, char **argv) { struct timespec time = {atoi(argv[1]), 0}; return clock_nanosleep(CLOCK_REALTIME, 0, &time, NULL); }
"""
ARM64_GCC = "aarch64-linux-gnu-gcc"
ARM64_LIBRARIES = Path("/usr/aarch64-linux-gnu/lib")


@unittest.skipUnless(shutil.which("qemu-system-aarch64"), "no qemu-system-aarch64 on this machine")
@unittest.skipUnless(shutil.which(ARM64_GCC), f"no {ARM64_GCC} on this machine")
class LinuxArm64(Kernel):
    """Debian's 6.12: its kernel 6.1 for arm64 has no names of data."""

    release = "4.20"
    port = ARM64
    naps = "101|115"
    threads = PROGRAM.with_name("linux-threads-arm64")
    tty = "ttyAMA0"

    def files(self, busybox):
        program = self.scratch / "sleep"
        subprocess.run([ARM64_GCC, "-O2", "-x", "c", "-o", program, "-"], input=SLEEP, text=True, check=True)
        libraries = {f"lib/{name}": ARM64_LIBRARIES / name for name in ("ld-linux-aarch64.so.1", "libc.so.6")}
        files = {"bin/busybox": busybox, "bin/sleep": program, **libraries}
        return {"bin": DIRECTORY, "lib": DIRECTORY, **{name: (0o100755, path.read_bytes(), (0, 0)) for name, path in files.items()}}

    def test_what_is_told_is_what_proc_tells(self):
        self.check()


class LinuxArm64Apart(LinuxArm64):
    """On a processor for which the kernel hides itself from programs (KPTI)."""

    cpu = "cortex-a57"


class LinuxOfDebian14(Kernel):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        try:
            cls.kernel = packages.kernel("forky", directory.name, print)
        except RigError as error:
            raise unittest.SkipTest(str(error)) from error

    def test_what_is_told_is_what_proc_tells(self):
        self.check()


if __name__ == "__main__":
    unittest.main()

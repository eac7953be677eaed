#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A busy domU with Debian's own kernel: a web server, Python, programs in C and C++ without frame pointers, a shell that forks all the
time, two containers. Its profile, by processes and containers, is compared with what the kernel accounts inside, and every stack
with the calls that there are.

UNIPROF_CROWD_SAMPLES (default: 500) is how many samples are judged at least. Under emulation the shell forks some 10 times in a second; where
instructions are counted, more than 200 times.
"""

import collections
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import chance
from guestcase import BUILD, LINUX_PARAMETERS, GuestCase
from linuxfiles import PYTHON, SORTER_CALLS, archive, files_of, python_files
from xenrig import packages

SAMPLES = int(os.environ.get("UNIPROF_CROWD_SAMPLES", "500"))

IDS = ("0123456789ab" + 26 * "01", "ba9876543210" + 26 * "10")
# Control groups, and what the report calls them.
GROUPS = {f"/docker/{IDS[0]}": "0123456789ab", f"/docker/{IDS[1]}": "ba9876543210", "/sorting": "sorting", "/web": "web", "/forks": "forks"}

# Each program in its control group; each second what the programs that stay have used of the CPU, and all of a group.
START = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /groups /www
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
$b mount -t cgroup2 none /groups
exec >/dev/hvc0 2>&1
$b ifconfig lo 127.0.0.1 up
$b dd if=/dev/zero of=/www/page bs=4k count=16
start() {
	$b mkdir -p /groups$1
	group=$1
	shift
	$b sh -c 'echo $$ >/groups'$group'/cgroup.procs; exec "$@"' sh "$@" &
}
start FIRST /bin/shapes
shapes=$!
start SECOND PYTHON -S -E -B /spin.py
python=$!
start /sorting /bin/sorter
sorter=$!
start /web $b httpd -f -p 80 -h /www
start /web $b sh -c 'while :; do /bin/busybox wget -q -O /dev/null http://127.0.0.1/page; done'
for loop in 1 2; do start /forks $b sh -c 'while :; do /bin/busybox true; done'; done
$b sleep 20
echo "programs $shapes $python $sorter"
while :; do
	told="told $($b awk '$1 == "processes" { print $2 }' /proc/stat)"
	for process in $shapes $python $sorter; do
		read ns rest </proc/$process/schedstat
		told="$told $ns"
	done
	for group in ALL; do
		read word us </groups$group/cpu.stat
		told="$told $us"
	done
	echo "$told end"
	$b sleep 1
done
""".replace("FIRST", f"/docker/{IDS[0]}").replace("SECOND", f"/docker/{IDS[1]}").replace("PYTHON", str(PYTHON)).replace("ALL", " ".join(GROUPS))

SPIN = """
def leaf(n):
    total = 0
    for i in range(n):
        total += i * i % 7
    return total

while True:
    leaf(1000)
"""

CREATE = r"""
rm -rf root && mkdir root && (cd root && cpio -idm <../crowd.cpio 2>/dev/null)
rm -f /var/log/xen/console/guest-crowd.log
printf 'name="crowd"\ntype="TYPE"\nkernel="linux"\nramdisk="crowd.cpio"\nmemory=256\nvcpus=2\ntsc_mode="native"\nextra="PARAMETERS"\n' >crowd.cfg
xl create crowd.cfg || exit
i=0
until grep -q '^told' /var/log/xen/console/guest-crowd.log; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; sleep 1; done
""".replace("PARAMETERS", LINUX_PARAMETERS)

# Who calls whom; libraries are between some. Of the library that calls main, and of the program's first instructions, nothing is said.
CALLS = {
    "shapes": {("main", "round_of"), ("round_of", "measure"), ("round_of", "grow"), ("round_of", "order"), ("round_of", "fall"), ("measure", "Circle::area"),
               ("measure", "Square::area"), ("Circle::area", "spin"), ("Square::area", "spin"), ("grow", "grow"), ("grow", "spin"), ("order", "by_bits"),
               ("by_bits", "spin"), ("fall", "climb"), ("climb", "climb"), ("climb", "spin")},
    "sorter": SORTER_CALLS,
}
# Files whose code one program alone runs, by the names of its processes.
FILES = {"shapes": {"shapes"}, "libstdc++.so.6": {"shapes"}, "libgcc_s.so.1": {"shapes"}, "sorter": {"sorter"}, PYTHON.name: {PYTHON.name}, "busybox": {"busybox", "init"}}

# At many more samples a second, sampling and the guest's own time slices would fall into step on one CPU.
RATE = 23
SECONDS = 20
# Of shells in a second, where instructions are counted.
FORKS = 200
TOLERANCE = 0.04


class Crowd(GuestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bring_linux()
        with tempfile.TemporaryDirectory() as directory:
            cls.rig.put(cls.files(Path(directory)))

    @classmethod
    def files(cls, scratch):
        """The guest's first root file system."""
        shapes = scratch / "shapes"
        subprocess.run(["g++", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o", shapes, Path(__file__).parent / "programs/shapes.cc"], check=True)
        subprocess.run(["dpkg-deb", "-x", next(packages.ensure("4.17", print).glob("busybox-static_*.deb")), scratch / "busybox"], check=True)
        programs = {"bin/busybox": scratch / "busybox/bin/busybox", "bin/shapes": shapes, "bin/sorter": BUILD / "tests/vmm/programs/sorter"}
        files = {"dev": (0o40755, b"", (0, 0)), "dev/console": (0o20600, b"", (5, 1)), "init": (0o100755, START.encode(), (0, 0)),
                 **python_files("spin.py", SPIN), **files_of(programs)}
        (scratch / "crowd.cpio").write_bytes(archive(files))
        return scratch / "crowd.cpio"

    def inside(self):
        """(number of processes until now, ns of {program}, ns of {container}), as it was told last."""
        told = re.findall(r"^told ([\d ]+) end\r?\n", self.console("crowd"), re.M)[-1].split()
        numbers = list(map(int, told))
        return numbers[0], dict(zip(self.programs, numbers[1:4])), {name: 1000 * us for name, us in zip(GROUPS.values(), numbers[4:])}

    def rows(self, by, key="self"):
        """{values of the keys: samples} of the last recording."""
        status, text = self.dom0(f"uniprof report --json --rows 0 --state all --by {by} crowd.uniprof", 200)
        if "tells of no processes" in text:
            # A short recording may end before the kernel's lists are found.
            return {}
        self.assertEqual(status, 0, text)
        return {tuple(row[name] for name in by.split(",")): row[key]["samples"] for row in json.loads(text)["rows"]}

    def check_files(self):
        """No stack has code of another program than its process's."""
        for (process, image), samples in self.rows("process,image", "total").items():
            file = Path(image).name
            if file in FILES and process != "[unknown]":
                self.assertIn(process.rpartition(" (")[0], FILES[file], f"{samples} samples: {process}, {image}")
                self.files_of[file] += samples

    def check_calls(self):
        """Functions of the programs whose calls are known are called by those that call them, and by no others."""
        status, text = self.dom0("uniprof export --format folded --no-inline --state all --weight samples --by process crowd.uniprof", 200)
        self.assertEqual(status, 0, text[-500:])
        for line in text.splitlines():
            stack, _, samples = line.rpartition(" ")
            process, *functions = stack.split(";")
            program = process.rpartition(" (")[0]
            if program not in CALLS:
                continue
            known = CALLS[program]
            own = [re.sub(r"^\(anonymous namespace\)::|\(.*$", "", name) for name in functions]
            own = [name for name in own if any(name in call for call in known)]
            self.wrong.update({(program, *call): int(samples) for call in zip(own, own[1:]) if call not in known})
            self.judged[program] += int(samples)
            self.whole[program] += int(samples) if own[:1] == ["main"] else 0

    def take(self, attempt, rate=RATE):
        forks, programs, groups = self.inside()
        self.record("crowd", f"-q -F {rate} -T {SECONDS * chance.longer(attempt)} --sysroot root", timeout=60 * chance.longer(attempt))
        forks_then, *then = self.inside()
        self.forks += forks_then - forks
        self.seconds += SECONDS * chance.longer(attempt)
        programs, groups = ({name: now[name] - ns for name, ns in before.items()} for now, before in zip(then, (programs, groups)))
        processes, containers = self.rows("process"), self.rows("container")
        self.taken.update({name: n for (name,), n in processes.items()})
        if processes:
            self.check_files()
            self.check_calls()
        known = sum(groups.values())
        self.expected.update(programs)
        self.of_containers.update({name: n for (name,), n in containers.items() if name in groups})
        return ({row: n for (row,), n in containers.items() if row in groups}, {name: ns / known for name, ns in groups.items()})

    def begin(self, kind):
        status, text = self.dom0(CREATE.replace("TYPE", kind), 500)
        self.assertEqual(status, 0, text + self.console("crowd"))
        pids = re.search(r"^programs (\d+) (\d+) (\d+)", self.console("crowd"), re.M).groups()
        self.programs = [f"{name} ({pid})" for name, pid in zip(("shapes", PYTHON.name, "sorter"), pids)]
        self.taken, self.expected, self.of_containers, self.wrong, self.judged, self.whole, self.files_of = (collections.Counter() for _ in range(7))
        self.forks = self.seconds = 0

    def check(self, kind):
        self.begin(kind)
        chance.check_shares(self.take, TOLERANCE)
        attempt = 0
        while sum(self.taken.values()) < SAMPLES:
            attempt += 1
            self.take(attempt)
        seen, known = ({name: counts[name] for name in self.programs} for counts in (self.taken, self.expected))
        print(f"\n{kind}: {sum(self.taken.values())} samples of {len(self.taken)} processes of {self.forks}; containers {dict(self.of_containers)};"
              f" programs {seen}, ns {known}; judged {dict(self.judged)}, whole {dict(self.whole)}; files {dict(self.files_of)}", end=" ", flush=True)
        self.assertEqual(self.wrong, {})
        self.assertEqual(set(self.files_of), set(FILES))
        for name in self.programs:
            share, had = (counts[name] / max(sum(counts.values()), 1) for counts in (seen, known))
            self.assertLessEqual(abs(share - had), TOLERANCE + chance.margin(had, sum(seen.values())), (seen, known))
        self.check_whole()
        self.runs_on("crowd")

    def check_whole(self):
        for program in CALLS:
            self.assertGreater(self.whole[program], 0.9 * self.judged[program], (self.whole, self.judged))

    def test_pv(self):
        self.check("pv")

    def test_pvh(self):
        self.check("pvh")


class Forks(Crowd):
    """On one CPU for dom0 and the guest that counts instructions: as fast as a real one. At this rate uniprof takes so much of it that shares of
    what runs for moments are not judged."""

    rig_options = {"icount": True}

    def check(self, kind):
        self.begin(kind)
        attempt = 0
        while sum(self.taken.values()) < SAMPLES:
            self.take(attempt, 97)
            attempt += 1
        print(f"\n{kind}: {sum(self.taken.values())} samples of {len(self.taken)} processes of {self.forks}, {self.forks / self.seconds:.0f} a second;"
              f" judged {dict(self.judged)}, whole {dict(self.whole)}; files {dict(self.files_of)}", end=" ", flush=True)
        self.assertEqual(self.wrong, {})
        self.check_whole()
        self.assertGreater(self.forks, FORKS * self.seconds)
        self.runs_on("crowd")


if __name__ == "__main__":
    unittest.main()

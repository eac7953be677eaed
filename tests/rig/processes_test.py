#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of Debian's own kernel as a domU, by processes: compared with the CPU time that its /proc tells inside."""

import collections
import json
import re
import unittest

import chance
from guestcase import GUESTS, LINUX_PARAMETERS, GuestCase

PATIENCE = 500

# Three processes that always want the CPU; again and again, how much they have had. Both programs are linked to the same
# addresses.
START = r"""
rm -rf tree && mkdir -p tree/bin tree/dev tree/proc && cp /bin/busybox linux-threads tree/bin/
cat >tree/init <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
exec >/dev/hvc0 2>&1
/bin/linux-threads & a=$!
$b dd if=/dev/zero of=/dev/null bs=64k & c=$!
$b sh -c 'while :; do :; done' & d=$!
until $b grep -q '^turns' /proc/$a/task/*/comm; do $b sleep 1; done
echo "processes $a $c $d"
while :; do
	for p in $a $c $d; do
		t=0
		for x in /proc/$p/task/*/schedstat; do read n rest <$x; t=$((t + n)); done
		echo "ran $p $t"
	done
	[ "$told" ] || echo guest is up
	told=yes
	$b sleep 1
done
END
chmod +x tree/init
(cd tree && find . | cpio -o -H newc 2>/dev/null) >linux.cpio
rm -f /var/log/xen/console/guest-linux.log
printf 'name="linux"\ntype="TYPE"\nkernel="linux"\nramdisk="linux.cpio"\nmemory=256\nvcpus=VCPUS\nMOREextra="PARAMETERS"\n' >linux.cfg
xl create linux.cfg && i=0
until grep -q 'guest is up' /var/log/xen/console/guest-linux.log; do i=$((i + 1)); [ $i -lt 900 ] || exit 1; sleep 1; done
"""

# Samples a second; at many more, sampling and the guest's own time slices would fall into step on one CPU.
RATE = 23
SECONDS = 14
# Between shares of samples and of CPU time.
TOLERANCE = 0.06


class ProcessesChecks:
    """Of a GuestCase with a kernel, `linux`, and the program `linux-threads` in dom0."""

    rate, tolerance = RATE, TOLERANCE
    settings = ""  # more of the domU's configuration

    def inside(self):
        """{process: ns of CPU time}, as it was told last."""
        return {int(pid): int(ns) for pid, ns in re.findall(r"^ran (\d+) (\d+)\r?\n", self.console("linux"), re.M)}

    def report(self, options):
        status, text = self.dom0(f"uniprof report --json --rows 0 --state all {options} linux.uniprof")
        if "tells of no processes" in text:
            # A short recording may end before the kernel's lists are found.
            return {"rows": []}
        self.assertEqual(status, 0, text)
        return json.loads(text)

    def rows(self, options, key="self"):
        """{row: samples}; a row is the values of the keys that were asked for."""
        keys = re.search(r"--by (\S+)", options)[1].split(",")
        return {tuple(row[name] for name in keys): row[key]["samples"] for row in self.report(options)["rows"]}

    def take(self, attempt):
        """({process: samples}, {process: share of the CPU time of those that are known})"""
        before = self.inside()
        self.record("linux", f"-q -F {self.rate} -T {SECONDS * chance.longer(attempt)}", timeout=60 * chance.longer(attempt))
        ran = {pid: ns - before[pid] for pid, ns in self.inside().items()}
        seen = {row: n for (row,), n in self.rows("--by process").items()}
        self.taken += collections.Counter(seen)
        return ({row: n for row, n in seen.items() if row in self.names.values()},
                {self.names[pid]: ns / max(sum(ran.values()), 1) for pid, ns in ran.items()})

    def start(self, kind, vcpus, parameters=LINUX_PARAMETERS):
        told = {"TYPE": kind, "VCPUS": str(vcpus), "MORE": self.settings, "PARAMETERS": parameters}
        status, text = self.dom0(re.sub("|".join(told), lambda word: told[word[0]], START), PATIENCE)
        self.assertEqual(status, 0, text)
        pids = [int(pid) for pid in re.search(r"^processes (\d+) (\d+) (\d+)", self.console("linux"), re.M).groups()]
        self.names = {pid: f"{name} ({pid})" for pid, name in zip(pids, ("linux-threads", "busybox", "busybox"))}
        self.taken = collections.Counter()
        return pids

    def check(self, kind, vcpus, parameters=LINUX_PARAMETERS):
        pids = self.start(kind, vcpus, parameters)
        # Its file is packed, and none is needed.
        self.assertNotIn("no names", self.record("linux", "-F 50 -T 0.1"))
        chance.check_shares(self.take, self.tolerance)
        print(f"\n{kind}: {dict(self.taken)}", end=" ", flush=True)
        self.check_threads(pids[0])
        self.check_stacks(self.names[pids[1]])
        self.check_filters(pids)
        self.check_pictures()
        self.check_live()
        self.check_names()
        self.runs_on("linux")

    def check_threads(self, pid):
        """Of the program with three threads, the one that turns has all samples."""
        found = {row: n for (row,), n in self.rows("--by thread").items() if row.startswith("linux-threads")}
        self.assertEqual([row.rsplit(" (", 1)[0] for row in found], ["linux-threads/turns (x) y"])
        tid = int(re.search(r"\((\d+)\)$", *found)[1])
        self.assertNotEqual(tid, pid)
        self.assertEqual(self.report(f"--tid {tid}")["stacks"]["selected"], sum(found.values()))

    def check_stacks(self, reader):
        """No other process has stacks of the one that reads zeros."""
        found = {process: n for (process, function), n in self.rows("--by process,function", "total").items() if function == "read_zero"}
        self.assertGreater(found.get(reader, 0), 0, found)
        # While the kernel switches between two, it is not known which one the stack is of.
        self.assertLessEqual(set(found), {reader, "[unknown]"}, found)

    def check_filters(self, pids):
        rows = {row: n for (row,), n in self.rows("--by process").items()}
        for pid in pids:
            self.assertEqual(self.report(f"--pid {pid}")["stacks"]["selected"], rows[self.names[pid]])
        both = rows[self.names[pids[1]]] + rows[self.names[pids[2]]]
        self.assertEqual(self.report(f"--pid {pids[1]},{pids[2]}")["stacks"]["selected"], both)
        self.assertEqual(self.report("--comm linux-threads")["stacks"]["selected"], rows[self.names[pids[0]]])
        self.assertEqual(self.report(f"--comm busybox --pid {pids[0]}")["stacks"]["selected"], 0)

    def check_pictures(self):
        """Processes stand around their functions in folded stacks and in a flame graph."""
        rows = {row: n for (row,), n in self.rows("--by process").items()}
        # Counts of folded stacks are rounded where they end, and their sum is exact.
        stacks = self.folded("linux", "--by process --state all --weight samples")
        self.assertEqual(set(stack[0] for stack in stacks), set(rows))
        for name, pid in ((name, pid) for pid, name in self.names.items()):
            self.assertAlmostEqual(sum(n for stack, n in stacks.items() if stack[0] == name), rows[name], delta=1, msg=pid)
        status, text = self.dom0("uniprof flamegraph --by process --state all linux.uniprof")
        self.assertEqual(status, 0, text[-500:])
        for name in self.names.values():
            self.assertIn(name, text)

    def check_live(self):
        status, text = self.dom0("uniprof top -b -n 4 -d 2 -F 100 --by process linux")
        self.assertEqual(status, 0, text)
        for name in self.names.values():
            self.assertRegex(text, rf"  {re.escape(name)}\n")

    def check_names(self):
        """A program's file names nothing of another program that has its code at the same addresses."""
        found = collections.Counter()
        # Each begins before it is known where the file is.
        for recording in range(10):
            if recording >= 3 and found["linux-threads"] > 50:
                break
            self.record("linux", "-q -F 97 -T 5 -s linux-threads", timeout=100)
            for (process, function), n in self.rows("--by process,function", "total").items():
                if function in ("turns", "waits", "user_entry", "_start"):
                    found[process.rsplit(" (", 1)[0]] += n
        print(f"named: {dict(found)}", end=" ", flush=True)
        self.assertGreater(found["linux-threads"], 0, found)
        # While the kernel switches between two, it is not known which one the stack is of.
        self.assertLessEqual(set(found), {"linux-threads", "[unknown]"}, found)


class Processes(ProcessesChecks, GuestCase):
    settings = r'tsc_mode="native"\n'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bring_linux()
        cls.rig.put(GUESTS / "linux-threads")

    def test_pv(self):
        self.check("pv", 1)

    def test_pvh(self):
        self.check("pvh", 2)

    def test_a_guest_without_processes_says_so(self):
        self.create("idle-pvh-fp")
        self.record("idle-pvh-fp", "-q -F 100 -T 1")
        for command in ("report --by process", "report --by function,thread", "report --pid 1", "report --comm init", "report --tid 1",
                        "flamegraph --by process", "export --format folded --by thread"):
            status, text = self.dom0(f"uniprof {command} idle-pvh-fp.uniprof")
            self.assertEqual(status, 2, text)
            self.assertIn("the recording tells of no processes", text)
        status, text = self.dom0("uniprof report --state all idle-pvh-fp.uniprof")
        self.assertEqual(status, 0, text)


if __name__ == "__main__":
    unittest.main()

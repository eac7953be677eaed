#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Processes and threads of Debian's own kernel as a domU, compared with what its /proc says from inside."""

import collections
import json
import re
import unittest

from guestcase import GUESTS, LINUX_PARAMETERS, GuestCase

PATIENCE = 500

# Processes that stand in a known state for ever; then all that /proc tells of each task, for the console.
START = r"""
rm -rf tree && mkdir -p tree/bin tree/dev tree/proc && cp /bin/busybox linux-threads tree/bin/
cat >tree/init <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
/bin/linux-threads &
$b sh -c '/bin/busybox true & exec /bin/busybox sleep 1000000' &
$b sleep 2000000 &
stopped=$!
kill -STOP $stopped
for state in Z T; do until $b grep -q "^State:.$state" /proc/[0-9]*/status; do $b sleep 1; done; done
for name in waits turns; do until $b grep -q "^$name" /proc/[0-9]*/task/*/comm; do $b sleep 1; done; done
exec >/dev/hvc0
# A thread that has not switched since its switches were read still stands where its stack says.
$b grep -s '' /proc/[0-9]*/task/*/stat
$b grep -s ctxt_switches /proc/[0-9]*/task/*/status
$b grep -s '' /proc/[0-9]*/task/*/stack
echo guest is up
exec $b sleep 3000000
END
chmod +x tree/init
(cd tree && find . | cpio -o -H newc 2>/dev/null) >linux.cpio
rm -f /var/log/xen/console/guest-linux.log
printf 'name="linux"\ntype="TYPE"\nkernel="linux"\nramdisk="linux.cpio"\nmemory=256\nvcpus=VCPUS\ntsc_mode="native"\nextra="PARAMETERS"\n' >linux.cfg
xl create linux.cfg && i=0
until grep -q 'guest is up' /var/log/xen/console/guest-linux.log; do i=$((i + 1)); [ $i -lt 900 ] || exit 1; sleep 1; done
""".replace("PARAMETERS", LINUX_PARAMETERS)

TASK = re.compile(r"^/proc/(\d+)/task/(\d+)/stat:\d+ \((.*)\) (\S) (.*)$", re.M)
SWITCHES = re.compile(r"^/proc/\d+/task/(\d+)/status:\w+:\s*(\d+)", re.M)
STACK = re.compile(r"^/proc/\d+/task/(\d+)/stack:\[<0>\] ([\w.]+)\+", re.M)
# Names of one function, of which the kernel tells another.
ENTRY = re.compile(r"^__(ia32|x64|se)_sys_")
KERNEL_THREAD = 0x00200000
ASLEEP = ("sleeping", "disk", "idle", "parked")
LETTERS = {"running": "R", "runnable": "R", "sleeping": "S", "idle": "I", "disk": "D", "stopped": "T", "zombie": "Z"}


class Processes(GuestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bring_linux()
        cls.rig.put(GUESTS / "linux-threads")

    def start(self, kind, vcpus):
        status, text = self.dom0(START.replace("TYPE", kind).replace("VCPUS", str(vcpus)), PATIENCE)
        self.assertEqual(status, 0, text)

    def inside(self):
        """Tasks by their number, as /proc told: process, name, state, start in ticks of 10 ms, of the kernel or not."""
        found = {}
        for pid, tid, name, state, rest in TASK.findall(self.console("linux").replace("\r", "")):
            fields = rest.split()
            found[int(tid)] = (int(pid), name, state, int(fields[18]), bool(int(fields[5]) & KERNEL_THREAD))
        return found

    def ps(self, options):
        status, text = self.dom0(f"uniprof ps {options} linux 2>ps.err; status=$?; cat ps.err >&2; exit $status", 120)
        self.assertEqual(status, 0, text)
        return text

    def compare(self, listed, inside):
        """Each task that is told from outside is the same inside, and none is missing but what has ended since."""
        seen = {}
        for process in listed["processes"]:
            for thread in process["threads"]:
                self.assertNotIn(thread["tid"], seen)
                seen[thread["tid"]] = (process, thread)
        for tid, (pid, name, state, start, kernel) in inside.items():
            # Workers come and go; and so did the process that read /proc.
            if tid not in seen:
                self.assertTrue(name.startswith("kworker") or state == "R", (tid, name))
                continue
            process, thread = seen[tid]
            self.assertEqual((process["pid"], process["kernel"], thread["start_ns"] // 10 ** 7), (pid, kernel, start), name)
            # /proc adds to the names of kernel threads what they work on. The shell has become another program since.
            if kernel:
                self.assertTrue(name.startswith(thread["name"]), (name, thread["name"]))
            elif tid != 1:
                self.assertEqual(thread["name"], name)
        latest = max(start for _, _, _, start, _ in inside.values())
        for tid, (_, thread) in seen.items():
            self.assertTrue(tid in inside or thread["start_ns"] // 10 ** 7 >= latest, thread)
        return seen

    def check_states(self, seen, inside):
        """What stands in one state for ever does so in both; what was on its way to sleep then does now."""
        states = set()
        for tid, (_, name, state, _, kernel) in inside.items():
            if kernel or tid not in seen or tid == 1:
                continue
            expected = state if state in "STZ" or name.startswith("turns") else "S"
            self.assertEqual(LETTERS[seen[tid][1]["state"]], expected, name)
            states.add(expected)
        self.assertEqual(states, {"R", "S", "T", "Z"})

    def check(self, kind, vcpus):
        self.start(kind, vcpus)
        inside = self.inside()
        listed = json.loads(self.ps("--json"))
        self.assertEqual((listed["system"], listed["trouble"], listed["name"]), ("Linux", None, "linux"))
        seen = self.compare(listed, inside)
        self.check_states(seen, inside)
        # Under emulation each takes ten seconds.
        threads = self.ps("--threads")
        self.check_threads(listed, threads)
        self.check_waits(seen, threads)
        self.check_stacks(seen)
        self.assertEqual([cpu["cpu"] for cpu in listed["cpus"]], list(range(vcpus)))
        self.check_time(listed)
        self.runs_on("linux")

    def check_threads(self, listed, text):
        process = next(process for process in listed["processes"] if process["name"] == "linux-threads")
        self.assertEqual([thread["name"] for thread in process["threads"]], ["linux-threads", "waits", "turns (x) y"])
        self.assertIn(process["state"], ("running", "runnable"))
        self.assertRegex(text, rf"(?m)^ +{process['pid']} +{process['threads'][2]['tid']} +run.* turns \(x\) y$")

    def listed_threads(self):
        return [(process, thread) for process in json.loads(self.ps("--json"))["processes"] for thread in process["threads"]]

    def unknown(self, threads):
        """The threads that sleep nobody knows where."""
        return {thread["tid"] for _, thread in threads if thread["state"] in ASLEEP and not thread["waits_in"]}

    def check_waits(self, seen, text):
        """What stands still is told with the function that it waits in, which is none of the scheduler's."""
        # What never waits was put off its CPU on its way back to the program, if it is not on one.
        places = {"waits": {"__do_sys_pause"}, "kthreadd": {"kthreadd"}, "turns (x) y": {None, "exit_to_user_mode_prepare"}}
        told = {thread["name"]: thread["waits_in"] for _, thread in seen.values()}
        for name, functions in places.items():
            self.assertIn(told[name] and ENTRY.sub("__do_sys_", told[name]), functions)
        stopped = [thread["waits_in"] for _, thread in seen.values() if thread["state"] == "stopped"]
        self.assertEqual(stopped, ["do_signal_stop"])
        asleep = [thread["waits_in"] for _, thread in seen.values() if thread["state"] in ASLEEP]
        # One that is just going to sleep is still on its CPU, and has no stack: not again and again.
        unknown = self.unknown(seen.values())
        for _ in range(5):
            unknown = unknown and unknown & self.unknown(self.listed_threads())
        self.assertFalse(unknown, asleep)
        asleep = [function for function in asleep if function]
        self.assertFalse([function for function in asleep if "schedule" in function and function != "smpboot_thread_fn"], asleep)
        self.assertRegex(text, r"(?m) sleeping .* __(do|ia32|x64)_sys_pause +waits$")

    def stacks_inside(self):
        """{(thread, how often it had switched): functions of the kernel that it stood in, innermost first}"""
        console = self.console("linux").replace("\r", "")
        switches, functions = collections.Counter(), collections.defaultdict(list)
        for tid, times in SWITCHES.findall(console):
            switches[int(tid)] += int(times)
        for tid, function in STACK.findall(console):
            functions[int(tid)].append(function)
        return {(tid, switches[tid]): stack for tid, stack in functions.items()}

    def check_stacks(self, seen):
        """Where each thread waits in the kernel is what the kernel itself says; that leaves the scheduler's own functions out."""
        status, text = self.dom0("uniprof stack --all-threads --full-names --json linux 2>stack.err || { cat stack.err; false; }", 120)
        self.assertEqual(status, 0, text)
        dumped = json.loads(text)
        self.assertNotIn("trouble", dumped)
        outside = {thread["tid"]: thread for thread in dumped["threads"]}
        inside = self.stacks_inside()
        compared = 0
        for tid, thread in outside.items():
            # Where it has not run since.
            functions = inside.get((tid, thread["switches"]))
            if not functions or "trace" not in thread:
                continue
            names = [ENTRY.sub("__do_sys_", frame.get("symbol", "")) for frame in thread["trace"] if int(frame["address"], 16) >> 63]
            functions = [ENTRY.sub("__do_sys_", function) for function in functions]
            self.assertTrue(thread["whole"], thread)
            self.assertEqual(names[-len(functions):], functions, (thread["name"], names))
            self.assertIn("schedule", names, thread["name"])
            compared += 1
        self.assertGreater(compared, 15)
        # A thread that runs has its stack in a vCPU; one that ran meanwhile has none either.
        for thread in outside.values():
            if thread["state"] in ("running", "zombie"):
                self.assertNotIn("trace", thread)

    def check_time(self, listed):
        """The thread that turns is seen on a CPU, and its CPU time grows."""
        times, on_cpus = set(), set()
        for _ in range(100):
            process = next(process for process in listed["processes"] if process["name"] == "linux-threads")
            times.add(process["cpu_ns"])
            on_cpus |= {cpu["name"] for cpu in listed["cpus"]}
            if len(times) > 1 and "turns (x) y" in on_cpus:
                return
            listed = json.loads(self.ps("--json"))
        self.fail("the thread that turns was never seen to")

    def test_pv(self):
        self.check("pv", 1)
        self.assertRegex(self.ps(""), r"(?m)^ +\d+ +3 .* linux-threads$")

    def test_pvh(self):
        self.check("pvh", 2)

    def test_a_guest_without_a_known_system_says_so(self):
        self.create("idle-pvh-fp")
        status, text = self.dom0("uniprof ps idle-pvh-fp")
        self.assertEqual(status, 3, text)
        self.assertIn("the guest runs no system whose threads are known", text)


if __name__ == "__main__":
    unittest.main()

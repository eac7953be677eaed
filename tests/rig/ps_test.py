#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Processes and threads of Debian's own kernel as a domU, compared with what its /proc says from inside."""

import json
import unittest

from guestcase import GUESTS, LINUX_PARAMETERS, GuestCase
from linuxproc import ASLEEP, ENTRY, Proc

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



class Processes(Proc, GuestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bring_linux()
        cls.rig.put(GUESTS / "linux-threads")

    def start(self, kind, vcpus):
        status, text = self.dom0(START.replace("TYPE", kind).replace("VCPUS", str(vcpus)), PATIENCE)
        self.assertEqual(status, 0, text)

    def told(self):
        return self.console("linux").replace("\r", "")

    def ps(self, options):
        status, text = self.dom0(f"uniprof ps {options} linux 2>ps.err; status=$?; cat ps.err >&2; exit $status", 120)
        self.assertEqual(status, 0, text)
        return text

    def dump(self, options):
        status, text = self.dom0(f"uniprof stack {options} --json linux 2>stack.err || {{ cat stack.err; false; }}", 120)
        self.assertEqual(status, 0, text)
        return json.loads(text)

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
        self.check_vcpus()
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

    def check_stacks(self, seen):
        """Where each thread waits in the kernel is what the kernel itself says; that leaves the scheduler's own functions out."""
        self.compare_stacks(self.dump("--all-threads --full-names"))

    def check_vcpus(self):
        """The thread that turns has a vCPU at nearly any moment."""
        for _ in range(10):
            vcpus = self.dump("")["vcpus"]
            if "turns (x) y" in {vcpu["thread"]["name"] for vcpu in vcpus if "thread" in vcpu}:
                return
        self.fail(f"no vCPU is told to run it: {vcpus}")

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

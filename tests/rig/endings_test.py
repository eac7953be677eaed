#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ends of recordings: by the guest's end, by signals, by time. What was recorded is always kept."""

import random
import re
import unittest

from guestcase import GuestCase
from xenrig import image

GUEST = "app1-pv-fp"
ENDED = 5  # the exit code for a guest that ended while it was recorded

# A Linux guest that is busy and does as `xl shutdown` asks.
LINUX = r"""
mkdir -p tree/bin tree/sbin tree/dev && cp /bin/busybox tree/bin/
cat >tree/init <<'END'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
echo guest is up >/dev/hvc0
while :; do :; done
END
printf '#!/bin/busybox sh\nexec /bin/busybox poweroff -f\n' >tree/sbin/poweroff
chmod +x tree/init tree/sbin/poweroff
(cd tree && find . | cpio -o -H newc 2>/dev/null) >linux.cpio
printf 'name="linux"\ntype="pv"\nkernel="linux"\nramdisk="linux.cpio"\nmemory=256\nextra="console=hvc0 quiet"\n' >linux.cfg
xl create linux.cfg && i=0
until grep -q 'guest is up' /var/log/xen/console/guest-linux.log; do i=$((i + 1)); [ $i -lt 300 ] || exit 1; usleep 200000; done
"""


# Shell: waits until a file is so large, and gives up after a while.
SIZE = """
size() { stat -c %s $1 2>/dev/null || echo 0; }
until_size() { i=0; until [ $(size $1) -ge $2 ] || [ $i -ge 600 ]; do i=$((i + 1)); usleep 100000; done; }
"""


class Endings(GuestCase):
    def recording_while(self, guest, during, options="-F 500 -T 60", begun=2000):
        """Records in the background while `during` runs in dom0; returns (status, what uniprof said)."""
        # However long it takes to begin: `during` comes some moments after samples were written, so many bytes of them.
        _, text = self.dom0(f"{SIZE} rm -f {guest}.uniprof; uniprof record {options} -o {guest}.uniprof {guest} >said 2>&1 & pid=$!;"
                            f" until_size {guest}.uniprof {begun}; usleep 300000; {during}; wait $pid; echo status $?; cat said", 120)
        status = [line for line in text.splitlines() if line.startswith("status ")][0]
        return int(status.split()[1]), text

    def kept(self, guest, at_least=10):
        """Asserts that the recording is whole up to its end, and holds samples."""
        report = self.report(guest)
        self.assertNotIn("stops in the middle", report)
        self.assertGreater(sum(self.folded(guest, "--state=all --weight=samples").values()), at_least)
        return report

    def test_destroying_the_guest_keeps_what_was_recorded(self):
        for guest in GUEST, "app1-pvh-fp":
            self.create(guest, cmdline="scale=5000")
            status, said = self.recording_while(guest, f"xl destroy {guest}")
            self.assertEqual(status, ENDED, said)
            self.assertRegex(said, r"the guest is gone after [\d.]+ s; .*kept|the guest is gone after [\d.]+ s; .*\.uniprof")
            self.assertIn("the guest is gone", self.kept(guest))

    def test_shutting_down_the_guest_keeps_what_was_recorded(self):
        self.rig.put(linux=image.locate("4.17") / "linux")
        status, text = self.dom0(LINUX, 120)
        self.assertEqual(status, 0, text)
        status, said = self.recording_while("linux", "xl shutdown linux")
        self.assertEqual(status, ENDED, said)
        self.assertRegex(said, r"the guest (shut down|is gone) after [\d.]+ s; what was recorded until then is in linux.uniprof")
        self.kept("linux")

    def test_a_guest_that_powers_off_is_told(self):
        for guest in "ends-pv-fp", "ends-pvh-fp":
            self.create(guest, paused=True, cmdline="seconds=5")
            status, said = self.recording_while(guest, f"sleep 1; xl unpause {guest}", begun=0)
            self.assertEqual(status, ENDED, said)
            self.assertRegex(said, "the guest (shut down|is gone)")
            self.kept(guest)
            stacks = self.folded(guest)
            self.assertGreater(sum(n for s, n in stacks.items() if "known_work" in s) / sum(stacks.values()), 0.9)

    def test_a_guest_that_crashes_is_told(self):
        self.create("ends-pv-fp", paused=True, cmdline="seconds=4 crash", on_crash="preserve")
        status, said = self.recording_while("ends-pv-fp", "sleep 1; xl unpause ends-pv-fp", begun=0)
        self.assertEqual(status, ENDED, said)
        self.assertIn("the guest crashed", said)
        self.assertIn("the guest crashed", self.kept("ends-pv-fp"))
        # Nor does it wait for ever when that guest is paused as well, or snapshot.
        self.dom0("xl pause ends-pv-fp")
        for options in "-o x.uniprof", "--snapshot x.snap":
            status, said = self.dom0(f"uniprof record {options} ends-pv-fp", 60)
            self.assertEqual(status, ENDED, said)
            self.assertIn("the guest crashed", said)

    def test_signals_end_a_recording_and_keep_it(self):
        self.busy(GUEST)
        for signal in "INT", "TERM", "HUP":
            status, said = self.recording_while(GUEST, f"kill -{signal} $pid")
            self.assertEqual(status, 0, said)
            self.assertIn("interrupted", self.kept(GUEST))
            self.runs_on(GUEST)

    def test_signals_at_any_moment_leave_the_guest_running(self):
        self.busy(GUEST)
        # Moments all over the life of the process: start-up, sampling, the end.
        status, text = self.dom0(
            "i=0; while [ $i -lt 10 ]; do"
            f" uniprof record --always-pause -F 2000 -T 2 -q -o s.uniprof {GUEST} & pid=$!;"
            f" usleep $((i * 70000 + {random.randrange(70000)})); kill -INT $pid; wait $pid; s=$?;"
            " [ $s = 0 ] || [ $s = 130 ] || { echo status $s in round $i; exit 1; };"
            " i=$((i + 1)); done", 120)
        self.assertEqual(status, 0, text)
        self.runs_on(GUEST)

    def test_a_killed_writer_leaves_a_readable_recording(self):
        self.busy(GUEST)
        status, said = self.recording_while(GUEST, "sleep 1; kill -KILL $pid", "-F 500 -T 60 -q")
        self.assertEqual(status, 137, said)
        self.assertIn("stops in the middle", self.report(GUEST).splitlines()[0])
        stacks = self.folded(GUEST)
        self.assertGreater(sum(stacks.values()), 10)
        # No names were written any more, but the recording knows the image they are in.
        self.assertTrue(any("function_3" in stack for stack in stacks))

    def test_a_profiler_killed_at_any_moment_leaves_the_guest_running(self):
        for guest in GUEST, "ends-pvh-fp":
            self.create(guest, cmdline="scale=5000 seconds=1000")
            # At this rate the guest is paused for a good part of the time.
            status, text = self.dom0(
                "i=0; while [ $i -lt 8 ]; do"
                f" uniprof record --always-pause -F 10000 -q -o s.uniprof {guest} & pid=$!;"
                f" usleep $((150000 + i * 6250 + {random.randrange(6250)})); kill -KILL $pid; wait $pid 2>/dev/null; i=$((i + 1)); done", 180)
            self.no_guard_is_left()
            self.runs_on(guest)
            self.dom0(f"xl destroy {guest}")

    def test_an_administrators_pause_stays(self):
        self.busy(GUEST)
        for how in "TERM", "KILL":
            self.dom0(f"xl pause {GUEST}")
            self.dom0(f"uniprof record -F 1000 -q -o s.uniprof {GUEST} & pid=$!; sleep 1; kill -{how} $pid; wait $pid")
            self.no_guard_is_left()
            self.assertIn("--p---", self.dom0(f"xl list {GUEST}")[1])
            self.dom0(f"xl unpause {GUEST}")
            self.runs_on(GUEST)

    def test_a_guest_paused_meanwhile_is_left_alone_and_then_sampled_on(self):
        self.busy(GUEST)
        status, said = self.recording_while(GUEST, f"xl pause {GUEST}; sleep 2; xl unpause {GUEST}; s=$(size {GUEST}.uniprof);"
                                            f" until_size {GUEST}.uniprof $((s + 2000)); kill -INT $pid", "-F 200 -T 200")
        self.assertEqual(status, 0, said)
        status, text = self.dom0(f"uniprof export --format=perf-script --state=all -o times {GUEST}.uniprof")
        self.assertEqual(status, 0, text)
        times = [float(time) for time in re.findall(r"(\d+\.\d+): ", self.rig.read("times").decode())]
        longest, after = max((late - early, late) for early, late in zip(times, times[1:]))
        self.assertGreater(longest, 1.9)
        self.assertGreater(sum(time < after for time in times), 20)
        self.assertGreater(sum(time > after for time in times), 20)
        self.runs_on(GUEST)

    def test_a_killed_guard_is_replaced(self):
        self.busy(GUEST)
        status, said = self.recording_while(
            GUEST, "old=$(pidof unpause-guard); kill -KILL $old; i=0; until pidof unpause-guard >guards && ! grep -q -w $old guards || [ $i = 300 ];"
            " do i=$((i + 1)); usleep 100000; done; grep -w $old guards; kill -KILL $pid", "-F 1000 -T 60 -q")
        self.assertEqual(status, 137, said)
        self.assertEqual(len(self.rig.read("guards").split()), 1)
        self.assertTrue(said.startswith("status"), said)
        self.no_guard_is_left()
        self.runs_on(GUEST)

    def test_half_a_second_is_half_a_second(self):
        self.busy(GUEST)
        # A machine that has just done something else took longer.
        self.assertTrue(any("in 0.5 s" in self.record(GUEST, "-F 100 -T 0.5") for _ in range(20)))
        self.runs_on(GUEST)


if __name__ == "__main__":
    unittest.main()

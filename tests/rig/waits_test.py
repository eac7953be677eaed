#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What threads of Debian's own kernel wait for, as a domU: shares compared with the times that their program tells inside."""

import json
import re
import unittest

import chance
from guestcase import GUESTS, LINUX_PARAMETERS, GuestCase

PATIENCE = 500

# A program that does nothing but wait, and tells how long for what.
START = r"""
rm -rf tree && mkdir -p tree/bin tree/dev tree/proc && cp /bin/busybox linux-waits tree/bin/
cat >tree/init <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
exec >/dev/hvc0 2>&1
/bin/linux-waits & p=$!
echo "process $p"
echo guest is up
exec $b sleep 1000000
END
chmod +x tree/init
(cd tree && find . | cpio -o -H newc 2>/dev/null) >linux.cpio
rm -f /var/log/xen/console/guest-linux.log
printf 'name="linux"\ntype="pv"\nkernel="linux"\nramdisk="linux.cpio"\nmemory=256\nvcpus=1\ntsc_mode="native"\nextra="PARAMETERS"\n' >linux.cfg
xl create linux.cfg && i=0
until grep -q '^waited' /var/log/xen/console/guest-linux.log; do i=$((i + 1)); [ $i -lt 900 ] || exit 1; sleep 1; done
""".replace("PARAMETERS", LINUX_PARAMETERS)

RATE = 97
SECONDS = 20
# Under emulation a look at a thread takes some milliseconds.
COST = 50
TOLERANCE = 0.03

# Functions of the kernel in which the program waits, in the order in which it tells its times; and the state that it is in then.
WAITS = {"hrtimer_nanosleep": "sleeping", "futex_wait": "sleeping", "kernel_clone": "disk"}
# ... called by these functions of the program, which no other program has.
CALLERS = {"hrtimer_nanosleep": "sleep_for", "futex_wait": "lock_for", "kernel_clone": "wait_for_child"}
STATES = ("queued", "sleeping", "disk", "stopped")


class Waits(GuestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bring_linux()
        cls.rig.put(GUESTS / "linux-waits")

    def inside(self):
        """ns that each kind of wait has had, as it was told last."""
        return [int(ns) for ns in re.findall(r"^waited (\d+) (\d+) (\d+)\r?\n", self.console("linux"), re.M)[-1]]

    def report(self, options):
        status, text = self.dom0(f"uniprof report --json --rows 0 {options} linux.uniprof")
        self.assertEqual(status, 0, text)
        return json.loads(text)

    def rows(self, options):
        """{values of the keys: weight in ns, callees' too}"""
        keys = re.search(r"--by (\S+)", options)[1].split(",")
        return {tuple(row[name] for name in keys): row["total"]["weight_ns"] for row in self.report(options)["rows"]}

    def take(self, attempt):
        before = self.inside()
        self.record("linux", f"-q --threads --thread-cost {COST} -F {RATE} -T {SECONDS * chance.longer(attempt)} -s linux-waits", timeout=60 * chance.longer(attempt))
        had = [after - ns for after, ns in zip(self.inside(), before)]
        options = f"--state off-cpu --pid {self.pid} --by function"
        samples = self.report(options)["stacks"]["selected"]
        weights = {row: ns for (row,), ns in self.rows(options).items() if row in WAITS}
        whole = max(sum(weights.values()), 1)
        return ({row: samples * ns / whole for row, ns in weights.items()},
                {function: ns / max(sum(had), 1) for function, ns in zip(WAITS, had)})

    def test_shares_of_waits(self):
        status, text = self.dom0(START, PATIENCE)
        self.assertEqual(status, 0, text)
        self.pid = int(re.search(r"^process (\d+)", self.console("linux"), re.M)[1])
        chance.check_shares(self.take, TOLERANCE)
        self.check_states()
        self.check_time()
        self.check_apart()
        self.check_programs()
        self.check_pictures()
        self.runs_on("linux")

    def check_states(self):
        """Each wait has its state; the time until the thread has the CPU, or until it has left it, is short."""
        rows = self.rows(f"--state off-cpu --pid {self.pid} --by function,state")
        for function, state in WAITS.items():
            all_of = sum(ns for (name, _), ns in rows.items() if name == function)
            self.assertGreater(rows.get((function, state), 0), 0.85 * all_of, rows)
        self.assertLessEqual({state for _, state in rows}, set(STATES))

    def check_time(self):
        """A thread that does nothing but wait has waited all the time, and has whole stacks."""
        told = self.report("--state off-cpu --by thread")
        elapsed = told["ticks"]["elapsed_ns"]
        rows = {row["thread"]: row["self"]["weight_ns"] for row in told["rows"]}
        of_program = next(ns for name, ns in rows.items() if name == f"linux-waits ({self.pid})")
        self.assertGreater(of_program, 0.8 * elapsed, rows)
        asleep = next(ns for name, ns in rows.items() if name.startswith("[kthreadd]"))
        self.assertGreater(asleep, 0.9 * elapsed, rows)
        self.assertLessEqual(max(rows.values()), 1.05 * elapsed, rows)
        # The program's children run on an array, whose end no table tells.
        mine, program = (self.report(f"--state off-cpu {which}")["stacks"] for which in (f"--tid {self.pid}", "--comm linux-waits"))
        self.assertGreaterEqual(mine["ends"]["whole"], 0.98 * mine["selected"])
        self.assertGreaterEqual(told["stacks"]["ends"]["whole"], told["stacks"]["selected"] - program["selected"])

    def check_apart(self):
        """Threads that wait are in no share of CPU time, and that is said."""
        told = self.report("--by state --state running")
        self.assertEqual([row["state"] for row in told["rows"]], ["running"])
        self.assertEqual(told["stacks"]["selected"], told["states"]["running"]["samples"])
        self.assertEqual({row for row, in self.rows("--by state")} - {"running", "runnable", "blocked"}, {row for row, in self.rows("--by state --state off-cpu")})
        status, text = self.dom0("uniprof report linux.uniprof")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"(?m)^waits    \d+ samples of threads that do not run.*; they are in no share below: --state=off-cpu shows them$")

    def check_programs(self):
        """Functions of the program are in its own stacks, each behind its own wait, and in no other program's."""
        status, text = self.dom0("uniprof export --format folded --state off-cpu --by process linux.uniprof")
        self.assertEqual(status, 0, text)
        seen = set()
        for process, *stack in (line.rsplit(" ", 1)[0].split(";") for line in text.splitlines() if ";" in line):
            callers = [function for function in stack if function in CALLERS.values()]
            if not callers:
                continue
            self.assertTrue(process.startswith("linux-waits"), (process, stack))
            # The child begins where its parent waits.
            seen |= {wait for wait in WAITS if wait in stack and CALLERS[wait] == callers[-1]}
            self.assertFalse([wait for wait in WAITS if wait in stack and CALLERS[wait] != callers[-1]], stack)
        self.assertEqual(seen, set(WAITS))

    def check_pictures(self):
        status, text = self.dom0("uniprof flamegraph --state off-cpu --comm linux-waits linux.uniprof")
        self.assertEqual(status, 0, text[-500:])
        for function in WAITS:
            self.assertIn(function, text)
        # All but those without a name are blue, the warning across the picture aside.
        colors = [int(color, 16) for color in re.findall(r'<rect (?![^>]*width="100%)[^>]*height="\d+" fill="#([0-9a-f]{6})"', text)]
        self.assertTrue(colors and all(color & 255 > color >> 16 for color in colors), colors[:5])


if __name__ == "__main__":
    unittest.main()

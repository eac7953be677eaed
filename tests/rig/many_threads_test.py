#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A domU with Debian's own kernel and ten thousand threads that sleep and wake: what `record --threads` costs it, and whoever records.

On one CPU that counts instructions. The figures are in docs/cost.md.
"""

import json
import re
import unittest

from guestcase import GUESTS, LINUX_PARAMETERS, GuestCase

START = r"""
rm -rf tree && mkdir -p tree/bin tree/dev tree/proc && cp /bin/busybox linux-many tree/bin/
cat >tree/init <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
exec >/dev/hvc0 2>&1
echo 30000 >/proc/sys/kernel/threads-max
exec /bin/linux-many
END
chmod +x tree/init
(cd tree && find . | cpio -o -H newc 2>/dev/null) >linux.cpio
rm -f /var/log/xen/console/guest-linux.log
printf 'name="linux"\ntype="TYPE"\nkernel="linux"\nramdisk="linux.cpio"\nmemory=768\nvcpus=1\ntsc_mode="native"\nextra="PARAMETERS"\n' >linux.cfg
xl create linux.cfg && i=0
until grep -q 'threads' /var/log/xen/console/guest-linux.log; do i=$((i + 1)); [ $i -lt 900 ] || exit 1; sleep 1; done
""".replace("PARAMETERS", LINUX_PARAMETERS)

RATE, SECONDS = 19, 60
# Of a CPU, the search for the kernel and its threads included.
MOST = 0.05
# In both recordings the thread that runs is copied; those that do not run are read while the guest runs.
LONGER = 1.005
# Threads whose turn has come by then.
ENOUGH = 500


class ManyThreads(GuestCase):
    rig_options = {"icount": True}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bring_linux()
        cls.rig.put(GUESTS / "linux-many")

    def cost(self, options):
        """Records; returns (median time that the guest stood still for a sample, ns; share of a CPU that uniprof took; what was recorded)."""
        status, text = self.dom0(f"sh -c 'uniprof record -q --always-pause -F {RATE} -T {SECONDS} {options} -o linux.uniprof linux;"
                                 " echo ended $? $(cat /proc/$$/stat)'", 60 + 2 * SECONDS)
        ended, *stat = re.search(r"^ended (.*)", text, re.M)[1].split()
        self.assertEqual((status, ended), (0, "0"), text)
        # cutime and cstime, in hundredths of a second (proc(5)).
        share = (int(stat[15]) + int(stat[16])) / 100 / SECONDS
        status, told = self.dom0("uniprof report --json --rows 0 --state off-cpu --by thread linux.uniprof", 200)
        self.assertEqual(status, 0 if options else 2, told)
        pauses = self.report("linux", "--rows 1 --state all")
        median, longest = (float(us) for us in re.search(r"a tick: median ([\d.]+) us, .*maximum ([\d.]+) us", pauses).groups())
        print(f"\n{options or 'without threads'}: stands still for {median} us, {longest} at most; {100 * share:.1f} % of a CPU", end=" ", flush=True)
        return median, share, json.loads(told) if options else {}

    def check(self, kind):
        status, text = self.dom0(START.replace("TYPE", kind), 500)
        self.assertEqual(status, 0, text + self.console("linux"))
        self.assertIn("all threads are there", self.console("linux"))
        alone, _, _ = self.cost("")
        median, share, told = self.cost("--threads")
        met = sum(row["thread"].startswith("linux-many (") for row in told["rows"])
        print(f"{met} threads met", end=" ", flush=True)
        self.assertLessEqual(median, LONGER * alone)
        self.assertLessEqual(share, MOST)
        self.assertGreater(met, ENOUGH)
        self.runs_on("linux")

    def test_pvh(self):
        self.check("pvh")

    def test_pv(self):
        self.check("pv")


if __name__ == "__main__":
    unittest.main()

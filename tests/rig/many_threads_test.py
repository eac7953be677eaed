#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A domU with Debian's own kernel and ten thousand threads that sleep and wake: what `record --threads` costs it, and whoever records.

On one CPU that counts instructions. The figures are in docs/cost.md.
"""

import json
import re
import unittest

from guestcase import GUESTS, LINUX_PARAMETERS, GuestCase

THREADS = 10000

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
# Of a pause, as of any program of one thread (docs/cost.md): which thread runs is copied.
LONGER = 1.04


class ManyThreads(GuestCase):
    rig_options = {"icount": True}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bring_linux()
        cls.rig.put(GUESTS / "linux-many")

    def cost(self, options):
        """Records: (pauses, share of a CPU that uniprof took, what the recording tells)."""
        status, text = self.dom0(f"uniprof record -q --always-pause -F {RATE} -T {SECONDS} {options} -o linux.uniprof linux; echo ended $? $(cat /proc/$$/stat)", 60 + 2 * SECONDS)
        ended, *stat = re.search(r"^ended (.*)", text, re.M)[1].split()
        self.assertEqual(ended, "0", text)
        status, told = self.dom0("uniprof report --json --rows 0 --state all --by state,process linux.uniprof")
        self.assertEqual(status, 0, told)
        # cutime and cstime, in hundredths of a second (proc(5)).
        return int(stat[15]) / 100 + int(stat[16]) / 100, json.loads(told)

    def check(self, kind):
        status, text = self.dom0(START.replace("TYPE", kind), 500)
        self.assertEqual(status, 0, text + self.console("linux"))
        self.assertIn("all threads are there", self.console("linux"))
        for options in ("", "--threads"):
            s, told = self.cost(options)
            rows = told.pop("rows")
            print(kind, options, s, json.dumps(told, indent=1), len(rows), rows[:10])
        self.runs_on("linux")

    def test_pvh(self):
        self.check("pvh")

    def test_pv(self):
        self.check("pv")


if __name__ == "__main__":
    unittest.main()

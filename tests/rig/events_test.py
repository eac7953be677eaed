#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""xl's commands on a guest while it is recorded: the guest is fine afterwards, and so is the recording.

The guest is Debian's Linux as a PV domain, which does as xl asks: takes its vCPUs off-line, gives memory
away, lets itself be saved. It is led through its whole life in one test, because its boot takes long.
"""

import re
import unittest

from guestcase import LINUX_PARAMETERS, GuestCase

ENDED = 5

# Bytes of a recording that holds samples.
BEGUN = 2000

LINUX = r"""
mkdir -p tree/bin tree/sbin tree/dev tree/sys tree/proc && cp /bin/busybox tree/bin/
cat >tree/init <<'END'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t proc none /proc
echo 1 >/proc/sys/kernel/sysrq
echo guest is up >/dev/hvc0
while :; do :; done &
# What udev would do: a vCPU that comes back is switched on.
while :; do
	[ "$(/bin/busybox cat /sys/devices/system/cpu/cpu1/online 2>/dev/null)" != 0 ] || echo 1 >/sys/devices/system/cpu/cpu1/online
done
END
printf '#!/bin/busybox sh\nexec /bin/busybox reboot -f\n' >tree/sbin/reboot
chmod +x tree/init tree/sbin/reboot
(cd tree && find . | cpio -o -H newc 2>/dev/null) >linux.cpio
printf 'name="linux"\ntype="pv"\nkernel="/job/linux"\nramdisk="/job/linux.cpio"\nmemory=160\nmaxmem=160\nvcpus=2\nextra="PARAMETERS"\n' >linux.cfg
xl create linux.cfg
""".replace("PARAMETERS", LINUX_PARAMETERS)

UP = "i=0; until grep -q 'guest is up' /var/log/xen/console/guest-linux.log; do i=$((i + 1)); [ $i -lt 120 ] || exit 1; sleep 1; done"


def seen(command, pattern):
    """Waits until a command says something, as long as a slow machine may take for it, and shows it then."""
    return f"i=0; until {command} | grep -q -e '{pattern}' || [ $i = 60 ]; do sleep 1; i=$((i + 1)); done; {command}"


class Events(GuestCase):
    def while_recorded(self, during, options="-F 200 -T 1000", wait=""):
        """Records Linux while `during` runs in dom0, and then ends the recording, or waits for its end; (status, text)."""
        stop = wait or "kill -INT $pid"
        _, text = self.dom0(f"rm -f *.uniprof; uniprof record {options} -q -o linux.uniprof linux >said 2>&1 & pid=$!;"
                            f" i=0; until [ $(stat -c %s linux.uniprof 2>/dev/null || echo 0) -ge {BEGUN} ] || [ $i = 2000 ]; do usleep 250000; i=$((i + 1)); done;"
                            f" sleep 1; {during}; echo did $?; {stop}; wait $pid; echo status $?; cat said", 240)
        self.assertIn("did 0", text)
        return int(re.search(r"^status (\d+)$", text, re.M)[1]), text

    def kept(self, at_least):
        report = self.report("linux", "--state=all")
        self.assertNotIn("stops in the middle", report)
        self.assertGreater(sum(self.folded("linux", "--state=all --weight=samples").values()), at_least)

    def goes_on(self, *events):
        """A recording goes on through all of (event, commands, pattern of each of what they say): it grows again after each."""
        grows = ("was=$(stat -c %s linux.uniprof); i=0; until [ $(stat -c %s linux.uniprof) -gt $was ] || [ $i = 240 ];"
                 " do usleep 250000; i=$((i + 1)); done; [ $i -lt 240 ]")
        steps = (f"{{ echo begin {i}; {commands}; }} && {{ {grows}; }} && echo end {i}" for i, (_, commands, *_) in enumerate(events))
        status, text = self.while_recorded(" && ".join(steps))
        for i, (event, _, *words) in enumerate(events):
            with self.subTest(event):
                said = re.search(rf"^begin {i}$(.*)^end {i}$", text, re.M | re.S)
                self.assertTrue(said, text)
                for word in words:
                    self.assertRegex(said[1], word)
        self.assertEqual(status, 0, text)
        self.kept(20)
        self.runs_on("linux")

    def ends(self, what, during, *words):
        """The domain ends while it is recorded, whether or not the guest goes on in another one."""
        with self.subTest(what):
            status, text = self.while_recorded(during, wait="true")
            self.assertEqual(status, ENDED, text)
            self.assertRegex(text, r"the guest [a-z ]+ after [\d.]+ s; what was recorded until then is in linux.uniprof")
            for word in words:
                self.assertIn(word, text)
            self.kept(5)

    def meanwhile(self, what, command, *outcomes):
        with self.subTest(f"{what} within a pause"):
            self.within_a_pause("linux", f"{command} 2>&1", *outcomes)

    def looked_at(self):
        """No file is given, and names of its kernel are found all the same, in the first look that finds a vCPU there."""
        with self.subTest("one look"):
            status, text = self.dom0("i=0; until uniprof stack linux >look 2>&1 && grep -A 1 'in kernel mode, 64 bits' look | grep -q '^rip .*+0x' &&"
                                     " grep -q '^[ ?] *[0-9]*  ffffffff[0-9a-f]*  [^ ]*+0x' look || [ $i = 60 ];"
                                     " do i=$((i + 1)); done; cat look; [ $i -lt 60 ]", 240)
            self.assertEqual(status, 0, text)

    def test_linux_is_recorded_through_all_that_xl_does(self):
        self.bring_linux()
        status, text = self.dom0(LINUX + UP, 180)
        self.assertEqual(status, 0, text)
        self.goes_on(
            ("paused twice", "xl pause linux; sleep 1; xl unpause linux; sleep 1; xl pause linux; usleep 300000; xl unpause linux"),
            ("vCPUs go and come", f"xl vcpu-set linux 1; {seen('xl vcpu-list linux', '--p')}; sleep 1; xl vcpu-set --ignore-host linux 2;"
             f" {seen('xl vcpu-list linux', ' 1 *[0-9]* *[r-][b-]-')}", r"linux +\d+ +1 +- +--p", r"linux +\d+ +1 +\d+ +[r-][b-]-"),
            ("ballooned", f"xl mem-set linux 120m; {seen('xl list linux', ' 120 ')}; sleep 1; xl mem-set linux 160m;"
             f" {seen('xl list linux', ' 1[56][0-9] ')}", r"linux +\d+ +120 ", r"linux +\d+ +1[56]\d "),
            ("saved as it runs on", "xl save -c linux /dev/null"))
        self.looked_at()
        self.meanwhile("a vCPU goes and comes", "xl vcpu-set linux 1; sleep 2; xl vcpu-set --ignore-host linux 2", (0, 0))
        self.runs_on("linux")
        self.meanwhile("saved as it runs on", "xl save -c linux /dev/null", (0, 0))
        self.runs_on("linux")
        # xl may give up, for it takes what it sees of page tables in a guest that stands still for wrong: the guest stays then.
        self.meanwhile("migrated", 'xl migrate -s "" linux "xl migrate-receive"', (0, 5), (1, 0))
        self.runs_on("linux")
        # Each ending from here on is one of a recording of the guest where the ending before has left it.
        self.ends("migrated", "xl migrate -s '' linux 'xl migrate-receive' >migrated 2>&1 || { cat migrated; false; }", "new id")
        self.runs_on("linux")
        # dom0 has little room for what is saved.
        self.dom0(f"xl mem-set linux 100m; {seen('xl list linux', ' 100 ')}", 120)
        self.ends("saved", "xl save linux /dev/shm/saved >saving 2>&1 || { cat saving; false; }", "new id")
        self.assertEqual(self.dom0("xl restore /dev/shm/saved >/dev/null 2>&1 && rm /dev/shm/saved", 120)[0], 0)
        self.runs_on("linux")
        self.ends("rebooted", ": >/var/log/xen/console/guest-linux.log; xl reboot linux", "new id")
        self.assertEqual(self.dom0(UP, 180)[0], 0)
        # It is recorded, too, and its end told, as it reboots within a pause.
        self.meanwhile("rebooted", ": >/var/log/xen/console/guest-linux.log; xl reboot -w linux", (0, 5))
        self.assertEqual(self.dom0(UP, 180)[0], 0)
        self.ends("crashed", "xl sysrq linux c")


if __name__ == "__main__":
    unittest.main()

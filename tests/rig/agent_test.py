#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The resident profiler on a Xen whose guests come, reboot, are saved, migrate and go, while it is killed again and again.

Each of its lives ends by SIGKILL but the last. Of a guest that stays, nothing may be lost but what was sampled in the
last second before a death; no guest may be left paused, no descriptor or domain be held that is over.

UNIPROF_AGENT_MINUTES says how long it takes, and so how many deaths there are: ten in 60 minutes. Without it, there is one death, and
no Linux, whose boot takes as long as all else: none of the others does as xl asks when it is to be saved or to migrate. With it, all
guests are PV: once in some 45 minutes, the emulator's SVM leaves Xen's own registers in a busy PVH guest, which is a triple fault.
"""

import json
import os
import re
import time
import unittest

from events_test import LINUX, UP
from guestcase import PATIENCE, GuestCase

MINUTES = float(os.environ.get("UNIPROF_AGENT_MINUTES") or 0)
DEATHS = max(1, round(MINUTES / 6))
LIFE_S = 60 * MINUTES / (DEATHS + 1)
TYPE = "pv" if MINUTES else "pvh"

RATE = 19
# Ticks that are not in the store yet: a second's, and those that the emulated dom0 has not passed on.
MAY_LOSE = 2 * RATE

# Of the agent, beside two for each guest: standard input, output and error, the store, and four sockets.
OWN_DESCRIPTORS = 8

# Linux's life, as long as there is no file `over`. What comes from `xl save` and goes to `xl restore` is a file for both.
# It is restored again where xl gave up.
LIFE_OF_LINUX = f"""
up() {{ {UP}; }}
back() {{ i=0; until xl restore /dev/shm/saved; do xl list; xl info | grep free_memory; i=$((i + 1)); [ $i -lt 3 ] || return 1; sleep 1; done; }}
while [ ! -e over ]; do
	: >/var/log/xen/console/guest-linux.log
	xl reboot linux && sleep 1 && up && echo rebooted
	[ -e over ] || {{ xl migrate -s '' linux 'xl migrate-receive' && echo migrated; }}
	xl mem-set linux 100m; i=0; until xl list linux | grep -q ' 100 ' || [ $i = 60 ]; do sleep 1; i=$((i + 1)); done
	[ -e over ] || {{ xl save linux /dev/shm/saved && back && echo saved; rm -f /dev/shm/saved; }}
done >linux.log 2>&1
"""


# What the host tells of guests that are not there.
WHAT_BECAME = "xl list; cat agent.log linux.log; tail -n 5 /var/log/xen/xl-*.log /var/log/xen/console/*.log; xl dmesg | tail -n 40; dmesg | tail; df /dev/shm; free"


def guests_of(status):
    return {guest["id"]: guest for guest in json.loads(status)["guests"]}


class Resident(GuestCase):
    rig_options = {"cpus": 2, "parallel": True}

    def directory(self):
        return self.dom0("pwd")[1].strip()

    def status(self):
        """What the agent tells of its guests, by their ids."""
        _, text = self.dom0("uniprof agent --status --json --store store")
        return guests_of(text) if text.startswith("{") else {}

    def kept(self, guest):
        """Ticks of a guest in the store."""
        status, text = self.dom0(f"uniprof report --json --state all --store store --last 1d {guest} 2>/dev/null")
        return json.loads(text)["ticks"]["count"] if status == 0 else 0

    def wait(self, what, condition, seconds=60 * PATIENCE):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, f"{what}: {self.dom0(WHAT_BECAME)[1]}")
            time.sleep(0.5)

    def wait_sampled(self, name, ticks):
        domid = self.dom0(f"xl domid {name}")[1].strip()

        def is_sampled():
            guest = self.status().get(domid)
            return guest and guest["name"] == name and guest["state"] == "sampled" and guest["ticks"] >= ticks

        self.wait(f"{name} is not sampled", is_sampled)
        return domid

    def begin_agent(self):
        status, self.agent = self.dom0(f"uniprof agent --store store --include 'xen:*' -F {RATE} -v >>agent.log 2>&1 & echo $!")
        self.assertEqual(status, 0, self.agent)
        self.agent = int(self.agent)

    def descriptors(self):
        """So many has the agent beside two for each guest, and so many a sampler at most.

        The least of some times, as it finds guests and answers by further ones meanwhile. A guest that comes or goes may have none or one.
        """
        seen = []
        for _ in range(20):
            guests = len(self.status())
            _, text = self.dom0(f"for p in {self.agent} $(cat /proc/{self.agent}/task/{self.agent}/children); do ls /proc/$p/fd 2>/dev/null | wc -l; done; sleep 1")
            own, *others = map(int, text.split())
            if guests == len(self.status()):
                seen.append((own - 2 * guests, max(others, default=0)))
            if len(seen) == 5:
                break
        return min(seen)

    # What happens

    def come(self, kind):
        """xl gives up where dom0 takes ten seconds for something."""
        for tries in range(3):
            try:
                return self.create(kind, "scale=100000 seconds=100000", name="visitor")
            except AssertionError:
                if tries == 2:
                    raise
        return None

    def visit(self, number):
        """A guest comes, is paused and let go on, gets another name, and is destroyed while it is sampled."""
        # What guests print, which are megabytes a minute, lies in dom0's memory.
        self.dom0("for guest in stays visitor; do : >/var/log/xen/console/guest-$guest.log; done")
        kind = ("app1-pv-fp", f"app1-{TYPE}-fp")[number % 2]
        self.come(kind)
        self.wait_sampled("visitor", 1)
        self.dom0("xl pause visitor; sleep 1; xl unpause visitor")
        self.runs_on("visitor")
        self.dom0("xl rename visitor moved")
        self.wait_sampled("moved", 1)
        self.assertEqual(self.dom0("xl destroy moved")[0], 0)

    def end_by(self, signal):
        """Sends the agent a signal once it has samples of the guest that stays; returns how many ticks of this life it knew of."""
        domid = self.wait_sampled("stays", 3 * RATE)
        self.descriptors_seen.append(self.descriptors())
        _, text = self.dom0(f"uniprof agent --status --json --store store; kill -{signal} {self.agent}")
        return guests_of(text)[domid]["ticks"]

    def is_kept(self, sampled):
        """What this life has sampled of the guest that stays is in the store, behind what the lives before have left there."""
        before, self.before = self.before, self.kept("stays")
        print(f"{sampled} ticks sampled, {self.before - before} kept; descriptors {self.descriptors_seen[-1]}", flush=True)
        self.assertGreaterEqual(self.before - before, sampled - MAY_LOSE)
        self.runs_on("stays")

    def die(self):
        """The agent dies; what it had sampled is there but for a second, and its guests run."""
        sampled = self.end_by("KILL")
        self.no_guard_is_left()
        status, text = self.dom0("i=0; while pidof uniprof; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; usleep 100000; done")
        self.assertEqual(status, 0, f"samplers outlive the agent: {text}")
        self.is_kept(sampled)

    def live(self):
        self.begin_agent()
        until = time.monotonic() + LIFE_S
        while True:
            self.visit(self.visits)
            self.visits += 1
            if time.monotonic() >= until:
                return

    def begin_linux(self):
        self.bring_linux()
        status, text = self.dom0(LINUX + UP, 180)
        self.assertEqual(status, 0, text)
        self.rig.write("life-of-linux", LIFE_OF_LINUX)
        return int(self.dom0("sh life-of-linux & echo $!")[1])

    def end_linux(self, life):
        """What it has gone through."""
        self.dom0("touch over")
        self.wait("Linux's life has no end", lambda: self.dom0(f"kill -0 {life} 2>/dev/null")[0])
        done = re.findall("^(rebooted|migrated|saved)$", self.dom0("cat linux.log")[1], re.M)
        self.assertEqual(set(done), {"rebooted", "migrated", "saved"}, self.dom0("cat linux.log")[1])
        status, text = self.dom0(f"xl domid linux || {{ {WHAT_BECAME}; exit 1; }}")
        self.assertEqual(status, 0, text)
        self.runs_on("linux")
        return done

    def test_nothing_but_a_second_is_lost_and_nothing_is_left_behind(self):
        self.create(f"app1-{TYPE}-fp", "scale=1000000 seconds=1000000", name="stays")
        # It ends, and begins again, several times a minute. xl looks for the kernel from the root directory then.
        ends = f"ends-{TYPE}-fp"
        self.create(ends, "seconds=15", name="reboots", on_poweroff="restart", kernel=f"{self.directory()}/{ends}.elf")
        life = self.begin_linux() if MINUTES else None
        self.before, self.descriptors_seen, self.visits = 0, [], 0
        for _ in range(DEATHS):
            self.live()
            self.die()
        self.live()
        done = self.end_linux(life) if life else []
        self.end()
        ticks = {guest: self.kept(guest) for guest in ("stays", "visitor", "moved", "reboots")}
        print(f"{self.visits} visits; Linux: {done}; ticks: {ticks}; {self.dom0('ls -l store/*')[1]}")
        self.assertGreater(ticks["moved"], 0)

    def end(self):
        """The agent ends, and holds nothing any more; nor did it hold more and more."""
        self.dom0("xl destroy reboots")
        lives = set(re.findall(r"sampling (\S+) into reboots", self.dom0("cat agent.log")[1]))
        self.assertGreater(len(lives), 2 * DEATHS, "a guest that reboots is not followed")
        _, nameless = self.dom0("ls -d store/xen-* 2>/dev/null")
        self.assertEqual(nameless, "", "guests are sampled before they have a name")
        sampled = self.end_by("TERM")
        status, text = self.dom0(f"i=0; while kill -0 {self.agent}; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; usleep 100000; done 2>/dev/null")
        self.assertEqual(status, 0, f"it does not end: {text}")
        self.no_guard_is_left()
        self.is_kept(sampled)
        self.wait("domains that are over are held", lambda: "(null)" not in self.dom0("xl list")[1])
        self.assertNotIn("and is ended", self.dom0("cat agent.log")[1])
        for own, most in self.descriptors_seen:
            self.assertLessEqual(own, OWN_DESCRIPTORS, self.descriptors_seen)
            self.assertLessEqual(most, self.descriptors_seen[0][1] + 1, self.descriptors_seen)


if __name__ == "__main__":
    unittest.main()

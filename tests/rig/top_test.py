#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`uniprof top` in a real terminal (tmux) in dom0, on guests of a real Xen: what it shows, keys, and all ways to end."""

import re
import shutil
import time
import unittest
from pathlib import Path

from guestcase import GuestCase
from terminal import Terminal

GUEST = "app1-pv-fp"
TERMINFO = Path("/lib/terminfo/t/tmux-256color")
LOCALE = Path("/usr/lib/locale/C.utf8")
ENVIRONMENT = "TERMINFO=/job/terminfo LOCPATH=/job/locale SHELL=/bin/sh"


class Top(GuestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("tmux") or not TERMINFO.exists():
            raise unittest.SkipTest("no tmux with its terminfo on this machine: there is no terminal to look at")
        super().setUpClass()
        cls.rig.put_as({"tmux": shutil.which("tmux"), "terminfo/t/tmux-256color": TERMINFO, "locale/C.utf8": LOCALE})

    def setUp(self):
        self.terminal = Terminal(self.dom0, environment=ENVIRONMENT)
        self.addCleanup(self.terminal.close)
        self.before = None
        # One guest for all tests, unless a test has ended it.
        if self.dom0(f"xl domid {GUEST}")[0]:
            self.create(GUEST, cmdline="scale=100000")
            self.at_work(GUEST)

    def tearDown(self):
        """The guest stays."""

    def start(self, options="", *also):
        self.before = self.before or self.terminal.state()
        self.terminal.type(f"clear; uniprof top -d 0.5 {options} {GUEST}")
        return self.terminal.see(r"\d  function_3", *also)

    def is_given_back(self):
        self.terminal.see(r"(?m)^\$ *$")
        self.assertEqual(self.terminal.state(), self.before)

    def pid(self):
        """The sampler itself, and not the processes that it has."""
        return self.dom0("for p in $(pidof uniprof); do [ \"$(cat /proc/$p/comm)\" = uniprof ] && echo $p; done")[1].split()[0]

    def test_functions_vcpus_pauses_and_the_hottest_stack_are_seen(self):
        self.start("-F 200", rf"xen:{GUEST} \(pv\) on Xen 4.17", r"ticks \d+ in [\d.]+ s.*paused [\d.]+ %, a tick: median [\d.]+ us",
                   r"vCPUs 1 +running +[\d.]+ %  runnable +[\d.]+ %  blocked +[\d.]+ %", r"(100|9\d).\d\d % [\d.-]+ +\d+  main")
        # It has 60 %, and some other share for a moment, where the last seconds had few samples.
        self.terminal.see(r"ticks \d{3,} in [\d.]+ s", r"the hottest stack: [\d.]+ %\n  \w+", r" [2-9]\d\.\d+ % [\d.-]+ +\d+  function_3\n")
        self.terminal.keys("q")
        self.is_given_back()
        self.runs_on(GUEST)

    def stays_for_a_second(self):
        before = self.terminal.screen().split("\n", 1)[1]
        time.sleep(1)
        return self.terminal.screen().split("\n", 1)[1] == before

    def test_keys(self):
        self.start()
        terminal = self.terminal
        terminal.keys("s")
        terminal.see(r"\[total\]")
        terminal.keys("h")
        terminal.see("Keys", "forget what was seen")
        terminal.keys("h", "/")
        terminal.see("functions that match: _")
        terminal.type("^function_[12]$")
        terminal.see(r"only \^function_\[12\]\$", without=r"\d  main\n")
        terminal.keys("/", "Enter")
        terminal.see(r"\d  main\n")
        terminal.keys("w")
        terminal.type("3")
        terminal.see(r"last 3.0 s")
        terminal.keys("+")
        terminal.see(r"last 6.0 s")
        terminal.keys("b")
        terminal.see("no processes are known", "samples  process")
        terminal.keys("b", "b", "b")
        terminal.see("samples  function", r"\d  main\n", without="no processes")
        terminal.keys("Space")
        terminal.see("HELD")
        self.assertTrue(any(self.stays_for_a_second() for _ in range(10)), "it is drawn anew though it is held")
        terminal.keys("p")
        terminal.see(r"last 6.0 s *\n")
        terminal.keys("/")
        terminal.type("^main$")
        terminal.see("only .main")
        terminal.keys("Enter")
        terminal.see("callers and callees of main", r"called by guest_start\n.*calls call\n")
        terminal.keys("Escape", "q")
        self.is_given_back()

    def test_the_screen_may_change_its_size(self):
        self.start()
        for width, height in (60, 12), (140, 40), (20, 5):
            self.terminal.resize(width, height)
            self.terminal.see(r"(?m)^uniprof top")
        self.terminal.resize(100, 30)
        self.terminal.see(r"\d  function_3")
        self.terminal.keys("q")
        self.is_given_back()

    def test_a_guest_that_ends_leaves_its_last_picture(self):
        self.start()
        self.dom0(f"xl destroy {GUEST}")
        self.terminal.see("this is the last that was seen", "the guest is gone", r"\d  function_3")
        self.terminal.keys("s")
        self.terminal.see(r"\[total\]", r"\d  function_3")
        self.terminal.keys("q")
        self.is_given_back()

    def test_signals_give_the_terminal_back_and_the_guest_runs_on(self):
        for signal in "TERM", "INT", "HUP", "KILL", "SEGV":
            with self.subTest(signal):
                self.start()
                self.dom0(f"kill -{signal} {self.pid()}")
                self.terminal.see(r"(?m)^(\$|Killed|Segmentation).*")
                self.terminal.keys("Enter")
                self.is_given_back()
                self.runs_on(GUEST)

    def test_what_the_shell_started_hands_signals_on_and_may_be_killed(self):
        for signal in "TERM", "INT", "HUP":
            with self.subTest(signal):
                self.start()
                self.dom0(f"kill -{signal} $(pidof uniprof-screen)")
                self.is_given_back()
        self.start()
        self.dom0("kill -KILL $(pidof uniprof-screen)")
        self.assertEqual(self.dom0("i=0; while pidof uniprof unpause-guard; do i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.5; done")[0], 0)
        self.runs_on(GUEST)

    def test_a_guard_that_is_killed_is_replaced(self):
        self.start()
        self.dom0("kill -KILL $(pidof unpause-guard)")
        self.terminal.keys("z")
        self.terminal.see(r"ticks \d+ in [1-9].*(.|\n)*\d  function_3")
        self.assertEqual(self.dom0("i=0; until pidof unpause-guard; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; usleep 100000; done")[0], 0)
        self.terminal.keys("q")
        self.is_given_back()

    def test_it_has_no_rights_while_it_shows_what_others_wrote(self):
        self.start()
        status = self.dom0(f"cat /proc/{self.pid()}/status")[1]
        for line in r"Uid:\s+65534\s+65534\s+65534", r"CapPrm:\s+0+$", r"NoNewPrivs:\s+1", r"Seccomp:\s+2":
            self.assertRegex(status, re.compile("^" + line, re.M))
        self.terminal.keys("q")
        self.is_given_back()

    def test_batch_mode_writes_pictures(self):
        status, text = self.dom0(f"uniprof top -b -n 3 -d 1 -F 200 {GUEST}")
        self.assertEqual(status, 0, text)
        self.assertEqual(text.count("uniprof top  xen:"), 3)
        self.assertRegex(text, r"\d  function_3")
        self.assertNotIn("\x1b", text)
        status, text = self.dom0(f"uniprof top {GUEST} </dev/null")
        self.assertEqual(status, 2)
        self.assertIn("top -b", text)


if __name__ == "__main__":
    unittest.main()

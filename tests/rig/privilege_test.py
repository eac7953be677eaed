#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Rights of uniprof once its handles and files are open: none but for its work, which must go on all the same."""

import re
import shutil
import unittest
from pathlib import Path

from guestcase import SERVICE_USER, GuestCase, service_rights

GUEST = "app1-pv-fp"

CONFINED = {"Uid": "65534", "Gid": "65534", "Groups": "", "CapInh": "0" * 16, "CapPrm": "0" * 16, "CapEff": "0" * 16,
            "CapBnd": "0" * 16, "CapAmb": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}


# Shell: `confined PID` waits until a process is, and gives up after a while; `guard` names the guard of now.
WAITING = """
confined() { i=0; until grep -q 'Seccomp:.2' /proc/$1/status 2>/dev/null || [ $i = 600 ]; do usleep 50000; i=$((i + 1)); done; }
guard() { i=0; until pidof unpause-guard || [ $i = 600 ]; do usleep 50000; i=$((i + 1)); done; }
"""


class Privilege(GuestCase):
    def setUp(self):
        self.busy(GUEST)

    def assert_confined(self, status, who):
        """`status` is what /proc/PID/status says."""
        fields = dict(re.findall(r"^(\w+):[ \t]*(\S*)", status, re.M))
        self.assertEqual({name: fields.get(name) for name in CONFINED}, CONFINED, f"{who}: {status}")

    def statuses_while(self, command, confined=True):
        """/proc/PID/status of the profiler and of its guard while a command runs, which is then interrupted; its output is in the file `said`."""
        wait = "confined $pid; " if confined else ""
        _, text = self.dom0(f"{WAITING} {command} >said 2>&1 & pid=$!; g=$(guard); confined $g; {wait}cat /proc/$pid/status; echo GUARD;"
                            " cat /proc/$g/status; kill -INT $pid; wait $pid; echo ended $?", 120)
        self.assertIn("ended 0", text, self.dom0("cat said")[1])
        return text.split("GUARD")

    def test_while_it_samples_it_has_no_rights(self):
        for command in (f"uniprof record -v -F 500 -T 100 -o p.uniprof {GUEST}", f"uniprof -v -F 100 -T 100 p.raw {GUEST}",
                        f"uniprof record -v -F 50 -T 100 --snapshot p.snap {GUEST}"):
            profiler, guard = self.statuses_while(command)
            self.assert_confined(profiler, command)
            self.assert_confined(guard, "guard")
            said = self.dom0("cat said")[1]
            self.assertIn("goes on as user 65534, without capabilities, system calls are filtered", said)
        self.runs_on(GUEST)

    def test_recordings_are_complete_and_belong_to_who_started_it(self):
        self.check_shares(GUEST, {"function_3": 0.6}, 0.1, "-F 500", 1)
        self.assertIn("the time was over", self.report(GUEST))
        self.assertEqual(self.dom0(f"stat -c '%u %a' {GUEST}.uniprof")[1].strip(), "0 600")

    def test_a_guard_that_replaces_a_killed_one_is_confined_too(self):
        _, text = self.dom0(f"{WAITING} uniprof record -F 1000 -q -o p.uniprof {GUEST} & pid=$!; old=$(guard); confined $pid;"
                            " kill -KILL $old; while [ -e /proc/$old ]; do usleep 50000; done; new=$(guard); confined $new;"
                            " cat /proc/$new/status; kill -KILL $pid; wait $pid", 120)
        self.assert_confined(text, "new guard")
        self.no_guard_is_left()
        self.runs_on(GUEST)

    def test_files_are_parsed_without_rights(self):
        # A pipe that nothing comes out of for a while: the reader waits in the middle of its work.
        self.record(GUEST, "-F 100 -T 0.2")
        for command in "symbolize fifo /dev/null", f"uniprof report -s fifo {GUEST}.uniprof":
            _, text = self.dom0(f"{WAITING} rm -f fifo go; mkfifo fifo; (until [ -e go ]; do usleep 50000; done; cat {GUEST}.elf) >fifo &"
                                f" {command} >said 2>&1 & pid=$!; confined $pid;"
                                " cat /proc/$pid/status; touch go; wait $pid; echo ended $?; cat said")
            self.assert_confined(text, command)
            self.assertIn("ended 0", text)

    def test_files_are_parsed_in_a_process_that_holds_nothing(self):
        for command in f"uniprof record -T 0.3 -o p.uniprof -s fifo {GUEST}", f"uniprof -E fifo p.raw {GUEST}":
            _, text = self.dom0(f"{WAITING} rm -f fifo go; mkfifo fifo; (until [ -e go ]; do usleep 50000; done; cat {GUEST}.elf) >fifo &"
                                f" {command} >said 2>&1 & pid=$!; i=0;"
                                " until pidof uniprof-reader >/dev/null || [ $i = 600 ]; do usleep 50000; i=$((i + 1)); done;"
                                " reader=$(pidof uniprof-reader); confined $reader; cat /proc/$reader/status; ls -l /proc/$reader/fd; echo END;"
                                " ls -l /proc/$pid/fd; touch go; wait $pid; echo ended $?; cat said", 60)
            self.assertIn("ended 0", text)
            reader, profiler = text.split("END")
            self.assert_confined(reader, command)
            self.assertNotIn("/dev/xen", reader)
            self.assertIn("/dev/xen/privcmd", profiler)

    def test_files_that_only_root_may_read_and_write_serve(self):
        self.dom0(f"rm -rf out; mkdir -m 700 out; cp {GUEST}.elf out/; chmod 600 out/{GUEST}.elf; umask 077")
        for command in (f"uniprof record -T 0.5 -F 200 -s out/{GUEST}.elf -o out/a.uniprof {GUEST}",
                        f"chmod 600 out/a.uniprof; uniprof report -s out/{GUEST}.elf -o out/a.txt out/a.uniprof",
                        "uniprof flamegraph -o out/a.svg out/a.uniprof",
                        "uniprof export --format=raw -o out/a.raw out/a.uniprof",
                        f"uniprof -T 0.5 -F 200 -E out/{GUEST}.elf out/b.raw {GUEST}",
                        f"chmod 600 out/a.raw; symbolize out/{GUEST}.elf out/a.raw >out/c.raw"):
            status, text = self.dom0(f"umask 077; {command}")
            self.assertEqual(status, 0, f"{command}: {text}")
        for name in "a.txt", "a.svg", "b.raw", "c.raw":
            self.assertIn("function_3", self.rig.read(f"out/{name}").decode(), name)

    def test_run_leaves_everything_though_it_has_given_up_its_rights(self):
        self.dom0(f"xl destroy {GUEST}; rm -rf out; mkdir -m 700 out")
        status, text = self.dom0(f"umask 077; uniprof run -v -F 500 -T 2 -o out -- xl create {GUEST}.cfg 'cmdline=\"scale=5000\"'", 60)
        self.assertEqual(status, 0, text)
        self.assertIn("goes on as user 65534", text)
        for ending in "resolved.raw", "folded", "svg", "syms":
            self.assertIn("function_3", self.rig.read(f"out/{GUEST}.{ending}").decode(), ending)

    def test_rights_are_kept_when_asked(self):
        status, guard = self.statuses_while(f"uniprof record -v --no-sandbox -F 100 -T 100 -o p.uniprof {GUEST}", confined=False)
        self.assert_confined(guard, "guard")
        self.assertRegex(status, r"Uid:\s+0\s")
        self.assertRegex(status, r"Seccomp:\s+0\s")
        self.assertIn("all rights are kept", self.dom0("cat said")[1])

    def test_it_says_what_it_does(self):
        self.assertIn("gives up root, filters system calls", self.dom0("uniprof -V")[1])

    def test_the_agents_service_needs_but_its_capabilities(self):
        library = next(Path("/usr/lib").glob("*/libcap-ng.so.0"), None)
        if not library or not shutil.which("setpriv"):
            self.skipTest("without setpriv of util-linux")
        self.rig.put(Path(shutil.which("setpriv")))
        self.rig.put(library)
        _, text = self.dom0(f"chmod 755 .; rm -rf store; mkdir store; chown {SERVICE_USER}:{SERVICE_USER} store;"
                            f" LD_LIBRARY_PATH=$PWD ./setpriv {' '.join(service_rights())} $(command -v uniprof) agent --store $PWD/store -v -F 50 >said 2>&1 & pid=$!;"
                            f" i=0; until uniprof report --store store --last 10m {GUEST} 2>/dev/null | grep -q function_3 || [ $i = 60 ];"
                            " do sleep 1; i=$((i + 1)); done; echo after $i;"
                            " for child in $(cat /proc/$pid/task/$pid/children); do cat /proc/$child/status; done;"
                            " kill -TERM $pid; wait $pid; echo ended $?; cat said", 120)
        self.assertIn("ended 0", text)
        self.assertNotIn("after 60", text)
        self.assertRegex(text, rf"(?s)Uid:\s{SERVICE_USER}\b.*CapEff:\s0{{16}}\n")
        self.runs_on(GUEST)

    def test_a_failed_result_is_not_left_as_if_it_were_one(self):
        self.record(GUEST, "-F 100 -T 0.5")
        self.dom0("mkdir -p out; mount -t tmpfs -o size=4k none out")
        status, text = self.dom0(f"uniprof flamegraph -o out/a.svg {GUEST}.uniprof; s=$?; wc -c <out/a.svg; umount out; exit $s")
        self.assertEqual(status, 7, text)
        self.assertEqual(text.splitlines()[-1].strip(), "0")


if __name__ == "__main__":
    unittest.main()

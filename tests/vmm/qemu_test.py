#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests of QEMU by its gdb stub: true shares, and a machine that goes on as if nobody looked.

UNIPROF_KILLS: how often the profiler is killed (default 20).
"""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
import unittest
from pathlib import Path

from hostcase import BUILD, UNIPROF, HostCase, chance, impossible_edges

KILLS = int(os.environ.get("UNIPROF_KILLS", "20"))

TOLERANCE = 0.12

# Samples that may be outside main.
ELSEWHERE = 0.01

APP1 = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}
APP2 = {"function_1": 0.4, "function_2": 0.6, "function_3": 0.4, "function_4": 0.4, "function_5": 0.2}


# What a guest of a platform runs on, where that is not the usual: QEMU, machine, processor, MiB.
MACHINES = {
    "arm64": ("qemu-system-aarch64", "virt", "cortex-a57", "64"),
    "arm64g16": ("qemu-system-aarch64", "virt", "max", "64"),
    "arm64g64": ("qemu-system-aarch64", "virt", "cortex-a57", "64"),
    "arm32": ("qemu-system-arm", "virt", "cortex-a15", "64"),
    "arm32t": ("qemu-system-arm", "virt", "cortex-a15", "64"),
    "pvh57": ("qemu-system-x86_64", "pc", "max,la57=on", "64"),
    "large-pages": ("qemu-system-x86_64", "pc", "max,la57=on", "1088"),
}
USUAL = ("qemu-system-x86_64", "pc", "qemu64", "64")


def moved_there(image, to):
    """An image of 32-bit Arm for where Xen puts it: QEMU puts what it takes for Linux elsewhere, and this moves it."""
    behind, place = 0x40010000 + 4, 0x40008000
    code = image.read_bytes()
    code += bytes(-len(code) % 4)
    branch = 0xea000000 | (4 + len(code) - 8) // 4
    move = [0xe59f0018, 0xe59f1018, 0xe59f3018,  # ldr r0, =place; ldr r1, =behind; ldr r3, =words
            0xe4915004, 0xe4805004, 0xe2533001, 0x1afffffb,  # 1: ldr r5, [r1], #4; str r5, [r0], #4; subs r3, #1; bne 1b
            0xe59ff008,  # ldr pc, =place
            place, behind, len(code) // 4, place]
    to.write_bytes(struct.pack("<I", branch) + code + struct.pack(f"<{len(move)}I", *move))
    return to


class Monitor:
    """A QMP connection of the test's own."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        # For reading only: one that writes, too, forgets then what it has read ahead, such as half an event.
        self.stream = self.socket.makefile("r", encoding="utf-8")
        self.stream.readline()
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = json.loads(self.stream.readline())
            if "return" in answer or "error" in answer:
                return answer.get("return")

    def close(self):
        self.stream.close()
        self.socket.close()

    def runs(self):
        return self.ask("query-status")["running"]

    def stubs(self):
        """Character devices of gdb stubs."""
        return [device for device in self.ask("query-chardev") if "gdb" in device["label"]]


@unittest.skipUnless(shutil.which("qemu-system-x86_64"), "no qemu-system-x86_64 on this machine")
class QemuCase(HostCase):
    def command(self, guest="app1-pvh-fp", *more, append="scale=1000", qemu=None):
        self.console, self.qmp, self.own, self.gdb = (self.scratch / name for name in ("console.txt", "qmp.sock", "own.sock", "gdb.sock"))
        program, platform, _ = guest.rsplit("-", 2)
        usual, machine, cpu, memory = MACHINES.get(program) or MACHINES.get(platform) or USUAL
        if not shutil.which(qemu or usual):
            self.skipTest(f"no {qemu or usual} on this machine")
        kernel = BUILD / "guests" / f"{guest}.{'image' if platform.startswith('arm') else 'elf'}"
        if platform.startswith("arm") and not kernel.exists():
            self.skipTest("guests for Arm were not built (gcc-aarch64-linux-gnu)")
        if platform.startswith("arm32"):
            kernel = moved_there(kernel, self.scratch / "kernel")
        return [qemu or usual, "-accel", "tcg", "-M", machine, "-cpu", cpu, "-m", memory, "-display", "none", "-no-reboot",
                "-serial", f"file:{self.console}", "-name", f"guest={guest},debug-threads=on", "-kernel", str(kernel), "-append", append, *more]

    def boot(self, *words, **more):
        process = self.start(*self.command(*words, **more))
        self.wait_for(lambda: self.console.exists() and self.console.stat().st_size, "the guest says nothing")
        return process

    def qemu(self, guest="app1-pvh-fp", *more, **how):
        process = self.boot(guest, "-qmp", f"unix:{self.scratch}/qmp.sock,server=on,wait=off",
                            "-qmp", f"unix:{self.scratch}/own.sock,server=on,wait=off", *more, **how)
        self.monitor = Monitor(self.own)
        self.addCleanup(self.monitor.close)
        return process

    def stop(self):
        """Stops the guest as its owner. Whoever does so while it is stopped for a sample cannot be told from the sample."""
        def stops():
            self.monitor.ask("stop")
            return self.stands_still(lambda: self.console.stat().st_size, lambda: not self.monitor.runs())

        self.wait_for(stops, "it runs though it was stopped")

    def goes_on_printing(self):
        """The guest runs, and no stub is left."""
        self.wait_for(lambda: not self.monitor.stubs(), "a stub is left in QEMU")
        self.assertTrue(self.monitor.runs(), "the guest was left stopped")
        self.prints()

    def recorder(self, *options, rate=50, **more):
        """By the socket; with a stub there is something to be recorded."""
        return super().recorder(f"qemu:{self.qmp}", *options, rate=rate, **more)

    def by_stub(self, **more):
        profiler = self.recorder(**more)
        self.wait_for(self.monitor.stubs, "no stub comes")
        return profiler

    def check_stacks(self, guest, stacks):
        self.assertLessEqual(sum(n for stack, n in stacks.items() if "main" not in stack), chance.most(ELSEWHERE * sum(stacks.values())))
        self.assertFalse(impossible_edges(guest, stacks)[0])


class Profiles(QemuCase):
    def profile(self, guest, known, *more, seconds=5, **how):
        process = self.qemu(guest, *more, **how)
        # What QEMU is given for Arm is no ELF file.
        elf = BUILD / "guests" / f"{guest}.elf"
        stacks = self.check_shares(f"qemu:{guest}", known, TOLERANCE, ("-F", 200, "-s", elf), seconds, self.busy)
        self.goes_on_printing()
        self.check_stacks(guest, stacks)
        self.end(process)

    def busy(self):
        return self.folded("out.uniprof", "--state", "running,runnable")

    def test_app1(self):
        self.profile("app1-pvh-fp", APP1)

    def test_app2_without_frame_pointers(self):
        self.profile("app2-pvh-nofp", APP2)

    def test_32_bits_with_two_levels_of_tables(self):
        self.profile("app1-pvh32-fp", APP1)

    def test_32_bits_with_pae(self):
        self.profile("app1-pvh32pae-nofp", APP1)

    def test_32_bits_without_tables(self):
        self.profile("app1-pvh32flat-fp", APP1)

    def test_by_an_emulator_of_32_bits(self):
        self.profile("app1-pvh32pae-fp", APP1, qemu="qemu-system-i386")

    def test_five_levels_of_tables(self):
        self.profile("app1-pvh57-nofp", APP1)

    def test_large_pages(self):
        self.profile_pages("large-pages-pvh-fp")

    def test_large_pages_below_five_levels(self):
        self.profile_pages("large-pages-pvh57-nofp")

    def profile_pages(self, guest):
        self.qemu(guest, append="seconds=1000")
        known = dict.fromkeys(["spin_on_4k", "spin_on_2m", "spin_on_1g"], 1 / 3)
        stacks = self.check_shares(f"qemu:{guest}", known, TOLERANCE, ("-F", 200), 5, self.busy)
        self.check_stacks(guest, stacks)

    def test_memory_that_qemu_shares(self):
        self.profile("app1-pvh-fp", APP1, "-object", "memory-backend-memfd,id=shared,size=64M,share=on", "-machine", "memory-backend=shared")

    def test_arm64(self):
        self.profile("app1-arm64-fp", APP1)

    def test_arm64_app2_without_frame_pointers(self):
        self.profile("app2-arm64-nofp", APP2)

    def test_arm64_with_granules_of_16k(self):
        self.profile("app1-arm64g16-nofp", APP1)

    def test_arm64_with_granules_of_64k(self):
        self.profile("app1-arm64g64-fp", APP1)

    def test_arm32(self):
        self.profile("app1-arm32-fp", APP1)

    def test_arm32_by_t32_code_without_frame_pointers(self):
        self.profile("app2-arm32t-nofp", APP2)

    def test_arm32_by_an_emulator_of_64_bits(self):
        self.profile("app1-arm32-fp", APP1, qemu="qemu-system-aarch64")

    def test_each_vcpu(self):
        self.check_vcpus("vcpus-pvh-fp")

    def test_each_vcpu_on_arm64(self):
        self.check_vcpus("vcpus-arm64-fp")

    def check_vcpus(self, guest):
        self.qemu(guest, "-smp", "4", append="seconds=60")
        self.uniprof("record", "-F", 50, "-T", 4, "-s", BUILD / "guests" / f"{guest}.elf", "-o", "out.uniprof", f"qemu:{self.qmp}")
        for vcpu in range(4):
            stacks = self.folded("out.uniprof", "--vcpu", str(vcpu), "--state", "all")
            workers = {name for stack in stacks for name in stack if name.startswith("worker_")}
            self.assertEqual(workers, {f"worker_{vcpu}"})


class Leaves(QemuCase):
    def test_by_process_by_name_and_by_socket(self):
        process = self.qemu()
        for guest in (process.pid, "app1-pvh-fp", self.qmp):
            self.uniprof("record", "-F", 50, "-T", 0.5, "-o", "out.uniprof", f"qemu:{guest}")
            self.goes_on_printing()

    def test_a_guest_that_its_owner_stops_stays_stopped(self):
        self.qemu()
        profiler = self.by_stub()
        self.stop()
        size = self.console.stat().st_size
        time.sleep(1)
        self.assertEqual(self.console.stat().st_size, size, "it runs though it was stopped")
        self.interrupt(profiler)
        self.assertFalse(self.monitor.runs())
        self.monitor.ask("cont")
        self.goes_on_printing()

    def test_a_stopped_guest_is_looked_at_and_stays_stopped(self):
        self.qemu()
        self.monitor.ask("stop")
        seen = json.loads(self.uniprof("stack", "-q", "--json", f"qemu:{self.qmp}"))
        self.assertEqual((seen["state"], seen["paused_ns"]), ("paused", 0))
        self.assertIn("main", [frame.get("symbol") for frame in seen["vcpus"][0]["trace"]])
        self.assertFalse(self.monitor.runs())
        self.monitor.ask("cont")
        self.goes_on_printing()

    def test_a_stopped_guest_is_recorded_once_it_runs(self):
        self.qemu()
        self.monitor.ask("stop")
        profiler = self.by_stub()
        time.sleep(0.5)
        self.assertFalse(self.monitor.runs())
        before = (self.scratch / "out.uniprof").stat().st_size
        self.monitor.ask("cont")
        self.wait_for(lambda: (self.scratch / "out.uniprof").stat().st_size > before + 500, "it is not recorded")
        self.interrupt(profiler)
        self.assertTrue(self.folded("out.uniprof"))
        self.goes_on_printing()

    def test_it_runs_on_when_the_profiler_is_killed(self):
        process = self.qemu()
        self.survives_kills(process, f"qemu:{self.qmp}", KILLS, after=self.goes_on_printing)

    def test_its_end_ends_the_recording(self):
        self.qemu("ends-pvh-fp", append="seconds=3")
        # Its time stands still, too, until somebody looks.
        self.monitor.ask("stop")
        profiler = self.by_stub(quiet=False)
        self.monitor.ask("cont")
        self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())
        self.assertIn("shut down", profiler.log.read_text())
        self.assertTrue(self.folded("out.uniprof"))

    def test_qemus_death_ends_the_recording(self):
        process = self.qemu()
        profiler = self.by_stub(quiet=False)
        time.sleep(0.5)
        process.kill()
        self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())


class Changes(QemuCase):
    """What becomes of a guest is told, and what was recorded is kept."""

    begun = 0  # how large the recording was when it began

    def record(self, *more, **how):
        self.qemu(*more, **how)
        return self.record_this()

    def record_this(self):
        recording = self.scratch / "out.uniprof"
        recording.unlink(missing_ok=True)
        profiler = self.recorder(quiet=False)
        self.records(profiler)
        # Until now there is hardly anything in it but what begins every recording.
        self.begun = recording.stat().st_size if recording.exists() else 0
        return profiler

    def interrupt(self, profiler):
        self.wait_for(lambda: (self.scratch / "out.uniprof").stat().st_size > self.begun, "nothing is sampled")
        super().interrupt(profiler)
        self.assertTrue(self.folded("out.uniprof"))

    def test_reset(self):
        profiler = self.record("app1-pvh-fp", "-action", "reboot=reset")
        self.monitor.ask("system_reset")
        self.says(profiler, "was reset")
        self.prints()
        self.interrupt(profiler)
        self.assertFalse(impossible_edges("app1-pvh-fp", {stack: n for stack, n in self.folded("out.uniprof").items() if "main" in stack})[0])
        self.goes_on_printing()

    def test_stops_of_its_owner_that_are_over_when_they_are_heard_of(self):
        profiler = self.record()
        for _ in range(20):
            self.monitor.ask("stop")
            self.monitor.ask("cont")
            time.sleep(0.1)
            self.prints()
        self.interrupt(profiler)
        self.goes_on_printing()

    def test_a_vcpu_that_is_plugged_in(self):
        profiler = self.record("app1-pvh-fp", "-smp", "1,maxcpus=2", "-cpu", "qemu64")
        self.monitor.ask("device_add", driver="qemu64-x86_64-cpu", id="more", **{"socket-id": 0, "core-id": 1, "thread-id": 0})
        self.says(profiler, "was plugged in")
        self.interrupt(profiler)
        self.goes_on_printing()

    def test_memory_that_is_plugged_in(self):
        # Its stack in a page of 1 GiB is in there.
        profiler = self.record("large-pages-pvh-fp", "-m", "64M,slots=1,maxmem=1G", append="seconds=60 gib=4")
        self.monitor.ask("object-add", **{"qom-type": "memory-backend-ram", "id": "more", "size": 64 << 20})
        self.monitor.ask("device_add", driver="pc-dimm", id="dimm", memdev="more")
        self.says(profiler, "the guest's memory has changed")
        time.sleep(3)
        self.interrupt(profiler)
        stacks = self.folded("out.uniprof", *self.last("out.uniprof", 3), "--state", "running,runnable")
        there = {stack: n for stack, n in stacks.items() if "spin_on_1g" in stack}
        self.assertTrue(there, stacks)
        self.assertTrue(all("main" in stack for stack in there), there)

    def test_migration(self):
        profiler = self.record()
        self.monitor.ask("migrate", uri="exec:cat >/dev/null")
        self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())
        self.assertIn("was migrated", profiler.log.read_text())
        self.assertTrue(self.folded("out.uniprof"))
        self.assertEqual(self.monitor.ask("query-status")["status"], "postmigrate")

    def test_a_guest_that_was_migrated_before_is_sampled(self):
        # Let go on where it was saved, then where it was restored: QEMU tells of the migration as before.
        first, state = self.qemu(), self.scratch / "state"
        self.monitor.ask("migrate", uri=f"exec:cat >{state}")
        self.wait_for(lambda: self.monitor.ask("query-status")["status"] == "postmigrate", "it is not saved")
        self.monitor.ask("cont")
        self.interrupt(self.record_this())
        self.goes_on_printing()
        first.kill()
        first.wait()
        for left in self.console, self.qmp, self.own:
            left.unlink()
        self.interrupt(self.record("app1-pvh-fp", "-incoming", f"exec:cat {state}"))
        self.assertEqual(self.monitor.ask("query-migrate")["status"], "completed")
        self.goes_on_printing()

    def test_a_migration_that_is_cancelled(self):
        profiler = self.record()
        self.monitor.ask("migrate-set-parameters", **{"max-bandwidth": 4096})
        self.monitor.ask("migrate", uri="exec:cat >/dev/null")
        self.prints()
        time.sleep(1)
        self.monitor.ask("migrate_cancel")
        self.wait_for(lambda: self.monitor.ask("query-migrate").get("status") == "cancelled", "it is not cancelled")
        # Told with the first sample that comes after it.
        self.says(profiler, "left alone")
        self.interrupt(profiler)
        self.goes_on_printing()

    def test_a_qemu_that_does_not_stop_it_in_time(self):
        process = self.qemu()
        profiler = self.by_stub(rate=5000)
        # More than once, since not every one meets it in a sample.
        for _ in range(4):
            time.sleep(1)
            process.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            process.send_signal(signal.SIGCONT)
            self.prints()
        self.interrupt(profiler)
        self.goes_on_printing()


class Runs(QemuCase):
    def test_a_qemu_that_run_starts(self):
        # Its end ends the recording, and all that is made of that is left.
        command = self.command("ends-pvh-fp", "-qmp", f"unix:{self.scratch}/qmp.sock,server=on,wait=off", append="seconds=6")
        text = self.uniprof("run", "-F", 50, "--", *command)
        self.assertRegex(text, "[0-9]+ samples")
        self.assertTrue(self.folded("ends-pvh-fp.uniprof"))
        self.assertTrue((self.scratch / "ends-pvh-fp.svg").exists(), text)


class Ways(QemuCase):
    """Whichever way it is read: the same is seen, and the guest goes on."""

    def profile(self, guest, way, said, *options):
        text = self.uniprof("record", "-F", 100, "-T", 3, "-o", "out.uniprof", *options, f"qemu:{guest}")
        self.assertIn(f"via {way}", text)
        self.assertIn(said, text)
        self.assertIn(way, self.uniprof("report", "--json", "out.uniprof"))
        self.prints()
        stacks = self.folded("out.uniprof", "--state", "running,runnable")
        self.assertTrue(stacks)
        self.assertFalse(impossible_edges("app1-pvh-fp", stacks)[0])

    def test_by_the_stub_that_qemu_was_started_with_and_nothing_else(self):
        process = self.boot("app1-pvh-fp", "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        self.profile(process.pid, "its own gdb stub", "no QMP socket")
        # It is there for the next, too.
        self.profile(process.pid, "its own gdb stub", "no QMP socket")

    def test_it_runs_on_when_the_profiler_by_its_own_stub_is_killed(self):
        process = self.boot("app1-pvh-fp", "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        self.survives_kills(process, f"qemu:{process.pid}", KILLS, after=self.prints)

    def test_by_qmp_where_others_may_need_the_stub(self):
        process = self.qemu("app1-pvh-fp", "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        self.profile(process.pid, "QMP alone", "stands still")
        self.assertEqual(len(self.monitor.stubs()), 1)
        self.assertTrue(self.monitor.runs())

    def test_it_runs_on_when_the_profiler_by_qmp_is_killed(self):
        process = self.qemu("app1-pvh-fp", "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        self.survives_kills(process, f"qemu:{self.qmp}", KILLS, after=self.prints)

    def test_a_stop_by_its_owner_is_respected_by_qmp(self):
        self.qemu()
        profiler = self.recorder("--via", "qmp", rate=5)
        self.records(profiler)
        self.stop()
        size = self.console.stat().st_size
        time.sleep(1)
        self.assertEqual(self.console.stat().st_size, size, "it runs though it was stopped")
        self.interrupt(profiler)
        self.assertFalse(self.monitor.runs())

    def test_all_ways_see_the_same_of_a_stopped_guest(self):
        self.qemu("vcpus-pvh-fp", "-smp", "2", append="seconds=60")
        self.monitor.ask("stop")
        seen = [json.loads(self.uniprof("stack", "-q", "--json", "--via", way, f"qemu:{self.qmp}"))["vcpus"] for way in ("stub", "qmp")]
        self.assertEqual(*seen)
        self.assertEqual(len(seen[0]), 2)
        self.assertTrue(seen[0][1]["trace"])

    def listed(self, process):
        listed = subprocess.run([UNIPROF, "list"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
        return next(line for line in listed.splitlines() if line.startswith(f"qemu     {process.pid} "))

    def test_the_list_tells_the_way(self):
        gdb = "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off"
        idle = "qemu-system-x86_64", "-accel", "tcg", "-display", "none", "-S"
        self.assertRegex(self.listed(self.qemu()), r" qemu +1 +stub +[0-9]+ us  uniprof record qemu:app1-pvh-fp$")
        self.assertRegex(self.listed(self.boot("app1-pvh-fp", *gdb)), r" own-stub .*qemu:app1-pvh-fp$")
        self.assertRegex(self.listed(self.start(*idle)), r" - \(give it a QMP socket: -qmp unix:")

    def test_ways_that_are_not_there(self):
        self.qemu()
        self.assertIn("stub, own-stub, qmp", self.uniprof("record", "--via", "x", f"qemu:{self.qmp}", expect=2))
        self.assertIn("no choice", self.uniprof("record", "--via", "x", "core:1", expect=2))
        self.assertIn("without a gdb stub", self.uniprof("record", "--via", "own-stub", f"qemu:{self.qmp}", expect=3))


class Refusals(QemuCase):
    def test_a_socket_that_is_none(self):
        self.assertIn("cannot connect", self.uniprof("record", "-o", "out.uniprof", "qemu:/nowhere/qmp.sock", expect=4))

    def test_a_socket_that_somebody_else_uses(self):
        self.qemu()
        self.assertIn("another program", self.uniprof("record", "-o", "out.uniprof", f"qemu:{self.own}", expect=4))

    def test_without_a_socket(self):
        process = self.start("qemu-system-x86_64", "-accel", "tcg", "-display", "none", "-S")
        self.wait_for(lambda: "qemu" in Path(f"/proc/{process.pid}/comm").read_text(), "QEMU does not start")
        self.assertIn("-qmp unix:", self.uniprof("record", "-o", "out.uniprof", f"qemu:{process.pid}", expect=4))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests of QEMU by its gdb stub: true shares, and a machine that goes on as if nobody looked.

UNIPROF_KILLS: how often the profiler is killed (default 12).
"""

import json
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

from hostcase import BUILD, UNIPROF, chance, impossible_edges, named
from qemucase import QemuCase

KILLS = int(os.environ.get("UNIPROF_KILLS", "12"))

TOLERANCE = 0.12

# Where shares are asked for: a guest is stopped for as long as it takes, so that a short recording has enough samples on a busy host, too.
OFTEN = "-F", 200, "--max-overhead", 100

APP1 = {"function_1": 0.1, "function_2": 0.3, "function_3": 0.6}
APP2 = {"function_1": 0.4, "function_2": 0.6, "function_3": 0.4, "function_4": 0.4, "function_5": 0.2}


class Profiles(QemuCase):
    def profile(self, guest, known, *more, **how):
        process = self.qemu(guest, *more, **how)
        # QEMU's kernel file for Arm is no ELF file.
        elf = BUILD / "guests" / f"{guest}.elf"
        stacks = self.check_shares(f"qemu:{self.qmp}", known, TOLERANCE, (*OFTEN, "-s", elf), 2, self.busy, among=True)
        self.goes_on_printing()
        self.check_stacks(guest, stacks)
        self.end(process)

    def busy(self):
        return self.folded("out.uniprof", "--state", "running,runnable")

    def test_app1(self):
        self.profile("app1-pvh-fp", APP1)

    def test_app2_without_frame_pointers(self):
        self.profile("app2-pvh-nofp", APP2)

    def test_unwind_tables_of_a_stripped_image_are_used_without_its_names(self):
        stripped = self.scratch / "stripped.elf"
        subprocess.run(["objcopy", "--strip-all", BUILD / "guests" / "app2-pvh-nofp.elf", stripped], check=True)
        process = self.qemu("app2-pvh-nofp", "-kernel", str(stripped))
        said = self.uniprof("record", *OFTEN, "-T", 1.5, "-o", "out.uniprof", f"qemu:{self.qmp}")
        self.assertIn("was stripped, its unwind tables are used", said)
        self.assertEqual(self.head("out.uniprof")["stacks"]["truncated_share"], 0)
        # Those that are named afterwards are all there.
        stacks = self.folded("out.uniprof", "--state", "running,runnable", "-s", BUILD / "guests" / "app2-pvh-nofp.elf")
        self.assertTrue(stacks)
        self.check_stacks("app2-pvh-nofp", stacks)
        self.end(process)

    def test_code_that_runs_between_accesses_to_a_device_has_its_share(self):
        self.qemu("noreturn-pvh-fp", append="seconds=1000")
        self.check_shares(f"qemu:{self.qmp}", {"function_1": 0.25, "function_3": 0.75}, 0.03, ("-F", 500, "--max-overhead", 100), 4)

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
        stacks = self.check_shares(f"qemu:{self.qmp}", known, TOLERANCE, OFTEN, 3, self.busy)
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

    def test_riscv64(self):
        self.profile("app1-riscv64-fp", APP1)

    def test_riscv64_app2_without_frame_pointers(self):
        self.profile("app2-riscv64-nofp", APP2)

    def test_riscv64_with_addresses_of_48_bits(self):
        self.profile("app1-riscv64sv48-nofp", APP1)

    def test_riscv64_with_addresses_of_57_bits(self):
        self.profile("app1-riscv64sv57-fp", APP1)

    def test_riscv64_interrupted(self):
        self.check_interrupted("interrupt-riscv64-fp")

    def test_riscv64_interrupted_without_frame_pointers_on_a_stack_of_the_handlers_own(self):
        self.check_interrupted("interrupt-riscv64-nofp", "stack=own")

    def check_interrupted(self, guest, stack=""):
        """Handlers stand on what they have interrupted."""
        self.qemu(guest, append=f"seconds=1000 {stack}")
        # The bound on its pauses stays: one that is stopped for most of the time finds its timer due whenever it goes on.
        for attempt in range(chance.TAKES):
            self.uniprof("record", "-F", 500, "-T", 3 * chance.longer(attempt), "-s", BUILD / "guests" / f"{guest}.elf", "-o", "out.uniprof", f"qemu:{self.qmp}")
            stacks = self.busy()
            self.check_stacks(guest, stacks)
            handlers = [stack for stack in stacks if "tick_spin" in stack]
            for stack in handlers:
                self.assertIn("main", stack[:stack.index("timer_entry")])
            if handlers:
                return
        self.fail(f"no handler was sampled: {stacks}")

    def test_riscv64_recursion(self):
        guest = "recursion-riscv64-nofp"
        self.qemu(guest, append="seconds=1000 depth=100")
        known = {"bottom": 0.97}
        stacks = self.check_shares(f"qemu:{self.qmp}", known, TOLERANCE, (*OFTEN, "-s", BUILD / "guests" / f"{guest}.elf"), 2, self.busy)
        self.check_stacks(guest, stacks)
        self.assertEqual({stack.count("recurse") for stack in stacks if "bottom" in stack}, {100})

    def test_a_riscv64_guest_at_one_moment(self):
        guest = "app2-riscv64-nofp"
        self.qemu(guest)
        seen = json.loads(self.uniprof("stack", "-q", "--json", "-s", BUILD / "guests" / f"{guest}.elf", f"qemu:{self.qmp}"))
        vcpu = seen["vcpus"][0]
        self.assertEqual(seen["guest"]["arch"] if "guest" in seen else seen["arch"], "riscv64")
        self.assertIn("main", [frame.get("symbol") for frame in vcpu["trace"]])
        self.assertIn("ra", json.dumps(vcpu))

    def test_each_vcpu(self):
        self.check_vcpus("vcpus-pvh-fp")

    def test_each_vcpu_on_arm64(self):
        self.check_vcpus("vcpus-arm64-fp")

    def test_each_vcpu_on_riscv64(self):
        self.check_vcpus("vcpus-riscv64-fp")

    def check_vcpus(self, guest):
        self.qemu(guest, "-smp", "4", append="seconds=1000", says="vcpus: 4 workers")
        seen = set()
        # A vCPU that was just told to begin may still be on its way when all of a recording is taken.
        for attempt in range(chance.TAKES):
            self.uniprof("record", "-F", 50, "--max-overhead", 100, "-T", chance.longer(attempt), "-s", BUILD / "guests" / f"{guest}.elf", "-o", "out.uniprof",
                         f"qemu:{self.qmp}")
            for vcpu in range(4):
                stacks = self.folded("out.uniprof", "--vcpu", str(vcpu), "--state", "all", "--weight=samples")
                workers = {name for stack in stacks for name in stack if name.startswith("worker_")}
                self.assertLessEqual(workers, {f"worker_{vcpu}"})
                seen |= workers
            if len(seen) == 4:
                return
        self.fail(f"only {seen} of 4 vCPUs were seen at work")


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
        self.monitor.ask("cont")
        self.samples_come(profiler)
        self.interrupt(profiler)
        # On a busy host, the first samples may hold no CPU time.
        self.assertTrue(self.folded("out.uniprof", "--weight=samples", "--state", "all"))
        self.goes_on_printing()

    def test_it_runs_on_when_the_profiler_is_killed(self):
        process = self.qemu()
        self.survives_kills(process, f"qemu:{self.qmp}", KILLS, after=self.goes_on_printing, held=lambda: self.stands(process))

    def test_its_end_ends_the_recording(self):
        self.qemu("ends-pvh-fp", append="seconds=6")
        # Its time stands still, too, until somebody looks.
        self.monitor.ask("stop")
        profiler = self.by_stub(quiet=False)
        self.monitor.ask("cont")
        self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())
        self.assertIn("shut down", profiler.log.read_text())
        self.assertTrue(self.folded("out.uniprof", "--weight=samples", "--state", "all"))

    def test_qemus_death_ends_the_recording(self):
        process = self.qemu()
        profiler = self.by_stub(quiet=False)
        self.samples_come(profiler)
        process.kill()
        self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())


class Changes(QemuCase):
    """Events of a guest are reported, and the recording is kept."""

    def record(self, *more, **how):
        self.qemu(*more, **how)
        return self.record_this()

    def record_this(self, *options):
        (self.scratch / "out.uniprof").unlink(missing_ok=True)
        profiler = self.recorder(*options, quiet=False)
        self.samples_come(profiler)
        return profiler

    def interrupt(self, profiler):
        self.samples_come(profiler)
        super().interrupt(profiler)
        self.assertTrue(self.folded("out.uniprof", "--weight=samples", "--state", "all"))

    def test_reset(self):
        profiler = self.record("app1-pvh-fp", "-action", "reboot=reset")
        self.monitor.ask("system_reset")
        self.says(profiler, "was reset")
        self.prints()
        self.interrupt(profiler)
        self.assertFalse(impossible_edges("app1-pvh-fp", {stack: n for stack, n in self.folded("out.uniprof").items() if "main" in stack})[0])
        self.goes_on_printing()

    def test_stops_of_its_owner_that_are_over_when_they_are_heard_of(self):
        self.qemu()
        profiler = self.record_this("--max-overhead", "100")
        # A stop spoils no sample, or one, but not all until the next stop, however long that takes. A busy machine takes few in a short time.
        for between in 0.1, 0.2, 0.4, 0.8, 1.6:
            before = self.samples()
            for _ in range(20):
                self.monitor.ask("stop")
                self.monitor.ask("cont")
                time.sleep(between)
                self.prints()
            if self.samples() - before > 40:
                break
        else:
            self.fail(f"no more than {self.samples() - before} samples between 20 stops")
        self.interrupt(profiler)
        # Nor does it wait for a stub that has lost a request, while the guest stands still.
        self.assertNotIn("did not stop the guest", profiler.log.read_text())
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
        # It is looked for about once a second.
        time.sleep(6)
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
        self.assertTrue(self.folded("out.uniprof", "--weight=samples", "--state", "all"))
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
        self.interrupt(self.record("app1-pvh-fp", "-incoming", f"exec:cat {state}", says="function_"))
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
        for _ in range(3):
            time.sleep(1)
            process.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            process.send_signal(signal.SIGCONT)
            self.prints()
        self.interrupt(profiler)
        self.goes_on_printing()


class WithinAPause(QemuCase):
    """What happens while the guest is stopped for a sample: the profiler is stopped meanwhile, and then goes on or dies."""

    def each_way(self, event, check, *more):
        for options in (), ("--via", "qmp"):
            for dies in False, True:
                with self.subTest(options=options, dies=dies):
                    process = self.qemu("app1-pvh-fp", *more)
                    profiler = self.stopped_within_a_pause(f"qemu:{self.qmp}", lambda process=process: self.stands(process), *options)
                    event()
                    if dies:
                        profiler.kill()
                    profiler.send_signal(signal.SIGCONT)
                    check(profiler, dies)
                    self.end(profiler)
                    self.end(process)
                    self.monitor.close()
                    for left in self.console, self.qmp, self.own:
                        left.unlink(missing_ok=True)

    def goes_on(self, profiler, dies, says):
        self.runs_and_prints()
        if not dies:
            self.says(profiler, says)
            self.interrupt(profiler)
            self.runs_and_prints()

    def test_a_stopped_profiler_lets_the_guest_go(self):
        process = self.qemu()
        profiler = self.stopped_within_a_pause(f"qemu:{self.qmp}", lambda: self.stands(process))
        self.wait_for(self.monitor.runs, "it stays stopped")
        self.prints()
        profiler.send_signal(signal.SIGCONT)
        self.interrupt(profiler)
        self.goes_on_printing()

    def test_migration(self):
        def moved():
            return self.monitor.ask("query-status")["status"] == "postmigrate"

        def check(profiler, dies):
            self.wait_for(moved, "it is not migrated")
            if not dies:
                self.assertEqual(profiler.wait(60), 5, profiler.log.read_text())
                self.assertIn("was migrated", profiler.log.read_text())
            self.wait_for(lambda: not named("unpause-guard"), "a guard does not end")
            self.assertTrue(moved(), "it runs here and where it went")

        self.each_way(lambda: self.monitor.tell("migrate", uri="exec:cat >/dev/null"), check)

    def test_reset(self):
        self.each_way(lambda: self.monitor.tell("system_reset"), lambda profiler, dies: self.goes_on(profiler, dies, "was reset"), "-action", "reboot=reset")

    def test_a_vcpu_that_is_plugged_in(self):
        more = {"socket-id": 0, "core-id": 1, "thread-id": 0}
        self.each_way(lambda: self.monitor.tell("device_add", driver="qemu64-x86_64-cpu", id="more", **more),
                      lambda profiler, dies: self.goes_on(profiler, dies, "was plugged in"), "-smp", "1,maxcpus=2", "-cpu", "qemu64")

    def test_its_end(self):
        def check(profiler, dies):
            self.assertEqual(profiler.wait(60), -signal.SIGKILL if dies else 5, profiler.log.read_text())

        self.each_way(lambda: self.monitor.tell("quit"), check)


class Runs(QemuCase):
    def test_a_qemu_that_run_starts(self):
        # Its end ends the recording, and all that is made of that is left.
        command = self.command("ends-pvh-fp", "-qmp", f"unix:{self.scratch}/qmp.sock,server=on,wait=off", append="seconds=10")
        text = self.uniprof("run", "-F", 50, "--", *command)
        self.assertRegex(text, "[0-9]+ samples")
        self.assertTrue(self.folded("ends-pvh-fp.uniprof", "--weight=samples", "--state", "all"))
        self.assertTrue((self.scratch / "ends-pvh-fp.svg").exists(), text)


class Ways(QemuCase):
    """Whichever way it is read: the same is seen, and the guest goes on."""

    def profile(self, guest, way, said, *options):
        text = self.uniprof("record", "-F", 100, "--max-overhead", 100, "-T", 1.5, "-o", "out.uniprof", *options, f"qemu:{guest}")
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
        # uniprof knows of the stub alone: QEMU's other socket is asked by the test.
        process = self.qemu("app1-pvh-fp", "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        self.survives_kills(process, f"qemu:{process.pid}", KILLS, options=("--via", "own-stub"), after=self.runs_and_prints, held=lambda: self.stands(process))

    def test_it_runs_on_when_the_profiler_by_its_own_stub_is_killed_while_qemu_hangs(self):
        """QEMU hears all at once then what it was told meanwhile, such as to let the guest go."""
        process = self.qemu("app1-pvh-fp", "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        for hangs_s in 3, 5:
            profiler = self.start(UNIPROF, "record", "-q", "-F", "1000", "--via", "own-stub", "-o", self.scratch / "out.uniprof", f"qemu:{process.pid}")
            self.records(profiler)
            process.send_signal(signal.SIGSTOP)
            # A sample is begun, and waits for QEMU.
            time.sleep(0.3)
            profiler.kill()
            profiler.wait()
            time.sleep(hangs_s)
            process.send_signal(signal.SIGCONT)
            self.wait_for(lambda: not named("unpause-guard"), "a guard does not end")
            self.assertIsNone(process.poll(), "QEMU has ended")
            self.assertTrue(self.monitor.runs(), "the guest was left stopped")
            self.prints()
            (self.scratch / "out.uniprof").unlink()

    def test_by_qmp_where_others_may_need_the_stub(self):
        process = self.qemu("app1-pvh-fp", "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        self.profile(process.pid, "QMP alone", "stands still")
        self.assertEqual(len(self.monitor.stubs()), 1)
        self.assertTrue(self.monitor.runs())

    def test_it_runs_on_when_the_profiler_by_qmp_is_killed(self):
        process = self.qemu("app1-pvh-fp", "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        self.survives_kills(process, f"qemu:{self.qmp}", KILLS, after=self.runs_and_prints, held=lambda: self.stands(process))

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
        self.qemu("vcpus-pvh-fp", "-smp", "2", append="seconds=1000")
        self.wait_for(lambda: "worker_1" in self.uniprof("stack", f"qemu:{self.qmp}"), "its second vCPU does not begin")
        self.monitor.ask("stop")
        seen = [json.loads(self.uniprof("stack", "-q", "--json", "--via", way, f"qemu:{self.qmp}"))["vcpus"] for way in ("stub", "qmp")]
        self.assertEqual(*seen)
        self.assertEqual(len(seen[0]), 2)
        self.assertTrue(seen[0][1]["trace"])

    def test_its_own_stub_beside_a_qmp_socket(self):
        process = self.qemu("app1-pvh-fp", "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        text = self.uniprof("record", "-F", 100, "-T", 1, "-o", "out.uniprof", "--via", "own-stub", f"qemu:{process.pid}")
        self.assertIn("--via qmp tells them apart", text)
        self.assertNotIn("no QMP socket", text)
        self.prints()

    def test_a_guest_that_is_held_for_long_by_request_is_told_of(self):
        self.qemu()
        text = self.uniprof("record", "-F", 5000, "-T", 1, "--max-overhead", 100, "-o", "out.uniprof", f"qemu:{self.qmp}")
        self.assertNotIn("put off", text)
        self.assertRegex(self.uniprof("report", "out.uniprof"), r"the guest was stopped for \d+ % of the time")

    def test_a_guest_is_not_held_for_long_unless_that_is_asked_for(self):
        self.qemu()
        text = self.uniprof("record", "-F", 5000, "-T", 1, "-o", "out.uniprof", f"qemu:{self.qmp}")
        self.assertRegex(text, r"not to pause the guest for more than 5 % of the time \(--max-overhead 100 lifts this bound\)")
        self.prints()

    def test_a_socket_in_the_current_directory(self):
        self.qemu()
        self.assertIn("function_3", self.uniprof("top", "-b", "-n", 1, "qemu:qmp.sock"))
        self.goes_on_printing()

    @unittest.skipUnless(os.access("/dev/kvm", os.R_OK | os.W_OK), "no /dev/kvm that could be used on this machine")
    def test_a_qemu_with_kvm_by_its_name(self):
        command = self.command("app1-pvh-fp", "-qmp", f"unix:{self.scratch}/qmp.sock,server=on,wait=off")
        command[command.index("-accel") + 1] = "kvm"
        command[command.index("-name") + 1] = "with-kvm"
        process = self.start(*command)
        self.wait_for((self.scratch / "qmp.sock").exists, "QEMU makes no socket")
        self.wait_for(lambda: "with-kvm" in subprocess.run([UNIPROF, "list"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.decode(),
                      "QEMU does not start")
        self.assertIn("QEMU with KVM", self.uniprof("stack", "qemu:with-kvm"))
        self.assertIsNone(process.poll())

    def listed(self, process):
        def lines():
            listed = subprocess.run([UNIPROF, "list"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
            return [line for line in listed.splitlines() if line.startswith(f"qemu     {process.pid} ")]

        self.wait_for(lines, "it is not listed")
        return lines()[0]

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

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Processes and threads of Debian's kernel in QEMU, in recordings by its stub, with the kernel's tables for user mode apart or not."""

import json
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from hostcase import BUILD, PROGRAMS, chance
from linuxcase import BOOT, LinuxCase
from linuxfiles import LOADER, files_of
from linuxproc import Proc
from xenrig import packages

TURNS = "init/turns (x) y "

# Does nothing but wait, and tells how long for what (guests/linux/waits.c); in these functions of the kernel.
WAITING = BUILD / "guests" / "linux-waits"
WAITS = ("hrtimer_nanosleep", "futex_wait", "kernel_clone")
TOLERANCE = 0.03
# ... called by these functions of the program, and these by those.
CALLERS = {"hrtimer_nanosleep": "sleep_for", "futex_wait": "lock_for", "kernel_clone": "wait_for_child"}
OUTER = {"sleep_for": {"_start;user_entry", "wait_for_child;child"}, "lock_for": {"_start;user_entry"}, "wait_for_child": {"_start;user_entry"}}
KERNEL_ENTRY = "entry_SYSCALL_64_after_hwframe"

ENOUGH = 150

# Programs that wait for ever, one with shared libraries, one of another file system, one whose file is gone; what /proc says of them, for the console.
START = b"""#!/bin/busybox sh
b=/bin/busybox
$b mkdir /proc /mnt
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
$b mount -t tmpfs none /mnt
$b mkdir /mnt/tools /mnt/gone
$b cp $b /mnt/tools
$b cp $b /mnt/gone
/bin/sleep 1000000 &
/bin/sleep 1500000 &
/mnt/tools/busybox sleep 2000000 &
/mnt/gone/busybox sleep 3000000 &
until [ $($b cat /proc/[0-9]*/syscall | $b grep -c -E '^(35|230) ') = 4 ]; do $b sleep 1; done
$b rm /mnt/gone/busybox
for process in /proc/[0-9]*; do $b sed "s|^|maps $process |" $process/maps; echo "syscall $process $($b cat $process/syscall)"; done
echo guest is up
exec $b sleep 4000000
"""

# Two processes of it execute it again and again, at other addresses (tests/vmm/programs/two-files.c); code without a name, as reports tell it.
TWO_FILES = PROGRAMS / "two-files"
PARTS = {"two-files": "own_work", "libc.so.6": "memfrob"}
AT_OFFSET = re.compile(r"(.+)\+0x([0-9a-f]+)$")
# Of samples in programs, those in the moment in which one gives way to the next, whose files are not told.
UNTOLD = 0.05
PARTS_TOLERANCE = 0.05

# Its functions have names in its table of symbols alone, and it calls them through libc (tests/vmm/programs/sorter.c).
SORTER = PROGRAMS / "sorter"
SORTER_CALLS = ["main", "rounds", "sort_all", "by_bits", "spin"]


class Linux(Proc, LinuxCase):
    def rows(self, by):
        text = self.uniprof("report", "--json", "--rows", 0, "--state", "all", "--by", by, "out.uniprof")
        keys = by.split(",")
        return {tuple(row[key] for key in keys): row["self"]["samples"] for row in json.loads(text)["rows"]}

    def recorded(self):
        """Samples of each thread, from when the kernel was found on, which takes a while."""
        for attempt in range(chance.TAKES):
            self.uniprof("record", "-q", "-F", 50, "-T", 5 * chance.longer(attempt), "-o", "out.uniprof", f"qemu:{self.qmp}", timeout=600)
            rows = {row: n for (row,), n in self.rows("thread").items() if row != "[unknown]"}
            if sum(rows.values()) >= ENOUGH:
                return rows
        self.fail(f"no threads are told: {rows}")

    def check(self, words):
        self.start_linux(words)
        self.wait_for_thread("turns (x) y")
        self.assertRegex(self.uniprof("stack", f"qemu:{self.qmp}"), r"; thread \d+ turns \(x\) y of process 1 init\n")
        rows = self.recorded()
        turning = [row for row in rows if row.startswith(TURNS)]
        self.assertEqual(len(turning), 1, rows)
        # One of the two CPUs has it all the time, the other one nearly nothing to do.
        total = sum(rows.values())
        self.assertLessEqual(abs(rows[turning[0]] / total - 0.5), 0.1 + chance.margin(0.5, total), rows)
        # Code of programs is the only one that has no name, and is told by its file.
        programs = {process for process, function in self.rows("process,function") if function.startswith(("0x", "[init]"))}
        self.assertLessEqual(programs, {"init (1)", "[unknown]"})
        self.assertIn(("init (1)", "[init]"), self.rows("process,function"))

    def waited(self):
        """ns that each kind of wait has had, as the program told last."""
        return [int(ns) for ns in re.findall(r"^waited (\d+) (\d+) (\d+)\r?\n", self.console.read_text(), re.M)[-1]]

    def take_waits(self, attempt):
        before = self.waited()
        self.uniprof("record", "-q", "--threads", "--thread-cost", 50, "--max-overhead", 50, "-F", 97, "-T", 8 * chance.longer(attempt), "-s", WAITING,
                     "-o", "out.uniprof", f"qemu:{self.qmp}", timeout=600)
        had = [after - ns for after, ns in zip(self.waited(), before)]
        report = json.loads(self.uniprof("report", "--json", "--rows", 0, "--state", "off-cpu", "--pid", 1, "out.uniprof"))
        rows = {row["function"]: row["total"]["weight_ns"] for row in report["rows"] if row["function"] in WAITS}
        whole, samples = max(sum(rows.values()), 1), report["stacks"]["selected"]
        return ({row: samples * ns / whole for row, ns in rows.items()},
                {function: ns / max(sum(had), 1) for function, ns in zip(WAITS, had)})

    def check_programs_stacks(self):
        """Behind each wait in the kernel lies what called it in the program, and nothing else; threads of the kernel have none."""
        stacks = [line.rsplit(" ", 1)[0].split(";") for line in self.uniprof("export", "--format", "folded", "--state", "off-cpu", "--by", "process", "out.uniprof").splitlines()]
        seen = 0
        for process, *stack in stacks:
            wait = [function for function in stack if function in CALLERS]
            if not process.startswith("init") or not wait or KERNEL_ENTRY not in stack:
                self.assertFalse(set(stack) & (set(OUTER) | {"user_entry", "child"}) and not process.startswith("init"), (process, stack))
                continue
            program = stack[:stack.index(KERNEL_ENTRY)]
            # Until its file was found, the kernel's part is all.
            if program:
                self.assertEqual(program[-1], CALLERS[wait[0]], stack)
                self.assertIn(";".join(program[:-1]), OUTER[program[-1]], stack)
                seen += 1
        self.assertGreaterEqual(seen, len(CALLERS), stacks)

    def check_waits(self, words):
        self.start_linux(f"quiet console=ttyS0 {words}", WAITING)
        self.wait_for(lambda: self.console.exists() and "waited" in self.console.read_text(), "its program does not begin", BOOT)
        self.wait_for_thread("init")
        chance.check_shares(self.take_waits, TOLERANCE)
        self.check_programs_stacks()
        told = json.loads(self.uniprof("report", "--json", "--rows", 0, "out.uniprof"))
        self.assertEqual(told["stacks"]["selected"], told["states"]["running"]["samples"])
        self.assertGreater(told["states"]["disk"]["samples"], 0)

    def test_waits_have_the_shares_that_their_program_tells_and_its_stacks(self):
        self.check_waits("pti=on")

    def programs(self):
        """A shell without libraries, and a program of this machine with them."""
        deb = next(packages.ensure("4.17", print).glob("busybox-static_*.deb"))
        subprocess.run(["dpkg-deb", "-x", deb, self.scratch / "busybox"], check=True)
        return files_of({"bin/busybox": self.scratch / "busybox/bin/busybox", "bin/sleep": Path("/bin/sleep")})

    def check_files(self, told, maps):
        """Files that are mapped elsewhere in each program are found in each: its stack goes on to its beginning."""
        sleeps = [pid for pid, mappings in maps.items() if any(path == "/bin/sleep" for *_, path in mappings)]
        self.assertEqual(len({maps[pid][0][0] for pid in sleeps}), 2, maps)
        for thread in told["threads"]:
            if thread["pid"] in sleeps:
                self.assertFalse(thread["program"], thread)
                self.assertTrue(thread["whole"], thread)
                self.assertTrue(any(frame.get("symbol", "").startswith("clock_nanosleep") for frame in thread["trace"]), thread)
                self.assertEqual(thread["trace"][-1].get("image"), "/bin/sleep", thread)

    def test_mappings_are_those_of_proc(self):
        init = self.scratch / "init"
        init.write_bytes(START)
        self.start_linux("quiet console=ttyS0", init, more=self.programs())
        self.wait_for(lambda: self.console.exists() and "guest is up" in self.console.read_text(), "its programs do not begin", BOOT)
        maps = self.check_maps(json.loads(self.uniprof("ps", "--json", "--maps", f"qemu:{self.qmp}", timeout=600)))
        self.check_calls(json.loads(self.uniprof("stack", "--all-threads", "--json", f"qemu:{self.qmp}", timeout=600)), maps)
        libc = next(f"/{name}" for name in self.programs() if name.endswith("libc.so.6"))
        self.check_files(json.loads(self.uniprof("stack", "-q", "--all-threads", "--json", "-s", "/bin/sleep", "-s", libc, f"qemu:{self.qmp}", timeout=600)), maps)
        self.put_root(self.programs())
        self.check_files(json.loads(self.uniprof("stack", "-q", "--all-threads", "--json", "--sysroot", self.root, f"qemu:{self.qmp}", timeout=600)), maps)
        self.assertRegex(self.uniprof("stack", "--all-threads", f"qemu:{self.qmp}", timeout=600), r"called by its program at libc\.so\.6\+0x[0-9a-f]+, whose")

    def start_two_files(self):
        files = files_of({"bin/two-files": TWO_FILES})
        self.start_linux("quiet console=ttyS0 pti=on rdinit=/bin/two-files", more=files)
        self.wait_for(lambda: self.console.exists() and "spent" in self.console.read_text(), "its programs do not begin", BOOT)
        self.libc = next(Path(f"/{name}") for name in files if name.endswith("libc.so.6"))

    def spent(self):
        """Shares of its time in each part, as the two processes told last."""
        told = {pid: (int(own), int(libc)) for pid, own, libc in re.findall(r"^spent (\d+) (\d+) (\d+)\r?\n", self.console.read_text(), re.M)}
        own, libc = (sum(parts) for parts in zip(*told.values()))
        return {"own_work": own / (own + libc), "memfrob": libc / (own + libc)}

    def ranges(self):
        """Addresses of each part's function in its file, by the name of that."""
        found = {}
        for path in (TWO_FILES, self.libc):
            text = subprocess.run(["nm", "-D", "-S", path], check=True, stdout=subprocess.PIPE, text=True).stdout
            start, size = re.search(rf"^(\w+) (\w+) T {PARTS[path.name]}\b", text, re.M).groups()
            found[path.name] = range(int(start, 16), int(start, 16) + int(size, 16))
        return found

    def part_of(self, name, ranges):
        """Part of the program that a row is; of code without a name by its file and offset there, of which a part has none."""
        at = AT_OFFSET.fullmatch(name)
        if not at:
            return name if name in PARTS.values() else None
        self.assertIn(at[1], {*PARTS, Path(LOADER).name, "[vdso]"})
        self.assertNotIn(int(at[2], 16), ranges.get(at[1], ()), name)
        return at[1]

    def take_parts(self, attempt):
        self.uniprof("record", "-q", "--max-overhead", 50, "-F", 97, "-T", 5 * chance.longer(attempt), "-o", "out.uniprof", f"qemu:{self.qmp}", timeout=600)
        report = json.loads(self.uniprof("report", "--json", "--rows", 0, "--addresses", "--by", "process,function", "out.uniprof"))
        ranges, seen, untold = self.ranges(), {}, 0
        for row in report["rows"]:
            name, samples = row["function"], row["self"]["samples"]
            if not row["process"].startswith("two-files") or not samples:
                continue
            untold += samples if name.startswith("0x") else 0
            part = None if name.startswith("0x") else self.part_of(name, ranges)
            seen[part] = seen.get(part, 0) + samples
        # Code of the kernel, and of the loader, is neither's.
        total = sum(n for part, n in seen.items() if part) + untold
        self.assertLessEqual(untold / total, UNTOLD + chance.margin(UNTOLD, total), report)
        return {part: seen.get(part, 0) for part in PARTS.values()}, self.spent()

    def test_code_of_programs_is_told_by_its_files_wherever_each_is(self):
        self.start_two_files()
        self.wait_for_thread("two-files")
        chance.check_shares(self.take_parts, PARTS_TOLERANCE)

    def start_sorter(self):
        """A stripped program in the guest; below self.root the one that it was made of."""
        stripped = self.scratch / "stripped"
        subprocess.run(["objcopy", "--strip-all", SORTER, stripped], check=True)
        files = files_of({"bin/sorter": stripped})
        self.start_linux("quiet console=ttyS0 pti=on rdinit=/bin/sorter", more=files)
        self.put_root({**files, "bin/sorter": (0o100755, SORTER.read_bytes(), (0, 0))})
        self.wait_for(lambda: self.console.exists() and "sorts" in self.console.read_text(), "its program does not begin", BOOT)
        self.wait_for_thread("sorter")

    def sorter_stacks(self, *options):
        text = self.uniprof("export", "--format", "folded", "--state", "all", *options, "out.uniprof")
        stacks = [line.rsplit(" ", 1)[0].split(";") for line in text.splitlines()]
        return [stack for stack in stacks if stack[-1] in SORTER_CALLS or stack[-1].startswith("sorter+0x")]

    def record_sorter(self, enough, *options):
        """What uniprof says; of longer recordings, until there are enough stacks: the kernel has to be found, and then files."""
        for attempt in range(chance.TAKES):
            said = self.uniprof("record", "--max-overhead", 50, "-F", 97, "-T", 5 * chance.longer(attempt), *options, "-o", "out.uniprof", f"qemu:{self.qmp}", timeout=600)
            if enough(self.sorter_stacks()):
                return said
        self.fail(f"not found: {self.sorter_stacks()}")

    def check_sorter(self, stacks):
        """All code of the program has its name; stacks go from its beginning to its work, through libc and back."""
        self.assertFalse([stack for stack in stacks for name in stack if name.startswith("sorter+0x")])
        whole = [stack for stack in stacks if "main" in stack and stack[-1] == "spin"]
        self.assertGreater(len(whole), 1, stacks)
        for stack in whole:
            calls = stack[stack.index("main"):]
            self.assertEqual([name for name in calls if name in SORTER_CALLS], SORTER_CALLS, stack)
            self.assertIn("qsort_r", calls[calls.index("sort_all"):calls.index("by_bits")], stack)

    def test_programs_have_names_and_unwind_tables_from_the_root_directory_of_the_guest(self):
        self.start_sorter()
        self.record_sorter(bool)
        self.assertFalse([stack for stack in self.sorter_stacks() if set(stack) & set(SORTER_CALLS)])
        # Naming afterwards.
        self.check_sorter(self.sorter_stacks("--sysroot", self.root))
        said = self.record_sorter(lambda stacks: any("main" in stack for stack in stacks), "--sysroot", self.root)
        self.assertNotIn("is not what the guest runs", said)
        self.check_sorter(self.sorter_stacks())
        self.assertIn("spin", self.uniprof("top", "--batch", "-n", 1, "-d", 10, "--sysroot", self.root, f"qemu:{self.qmp}", timeout=600))
        # Another program at its path.
        shutil.copy(TWO_FILES, self.root / "programs" / "sorter")
        said = self.record_sorter(bool, "--sysroot", self.root)
        self.assertRegex(said, r"/bin/sorter \(build id [0-9a-f]+\) is not what the guest runs")
        self.assertFalse([stack for stack in self.sorter_stacks() if set(stack) & set(SORTER_CALLS)])

    def test_threads(self):
        self.check("")

    def test_threads_where_programs_run_on_tables_without_the_kernel(self):
        self.check("pti=on")


if __name__ == "__main__":
    unittest.main()

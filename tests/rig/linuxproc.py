# SPDX-License-Identifier: BSD-3-Clause
"""Tasks of a Linux guest: what /proc tells inside, on its console, compared with what is told from outside."""

import collections
import re
from pathlib import Path

TASK = re.compile(r"^/proc/(\d+)/task/(\d+)/stat:\d+ \((.*)\) (\S) (.*)$", re.M)
SWITCHES = re.compile(r"^/proc/\d+/task/(\d+)/status:\w+:\s*(\d+)", re.M)
STACK = re.compile(r"^/proc/\d+/task/(\d+)/stack:\[<0>\] ([\w.]+)\+", re.M)
# Names of one function, of which the kernel tells another.
ENTRY = re.compile(r"^__(ia32|x64|se)_sys_")
MAPS = re.compile(r"^maps /proc/(\d+) ([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ \d+ *(.*?)$", re.M)
SYSCALL = re.compile(r"^(?:syscall )?/proc/(\d+)(?:/syscall:| ).* 0x([0-9a-f]+)$", re.M)
KERNEL_THREAD = 0x00200000
ASLEEP = ("sleeping", "disk", "idle", "parked")
LETTERS = {"running": "R", "runnable": "R", "sleeping": "S", "idle": "I", "disk": "D", "stopped": "T", "zombie": "Z"}


class Proc:
    """A test case whose told() is the text of the console; see what the patterns above look for."""

    maxDiff = None

    def inside(self):
        """Tasks by their number, as /proc told: process, name, state, start in ticks of 10 ms, of the kernel or not."""
        found = {}
        for pid, tid, name, state, rest in TASK.findall(self.told()):
            fields = rest.split()
            found[int(tid)] = (int(pid), name, state, int(fields[18]), bool(int(fields[5]) & KERNEL_THREAD))
        return found

    def compare(self, listed, inside):
        """Each task that is told from outside is the same inside, and none is missing but what has ended since."""
        seen = {}
        for process in listed["processes"]:
            for thread in process["threads"]:
                self.assertNotIn(thread["tid"], seen)
                seen[thread["tid"]] = (process, thread)
        for tid, (pid, name, state, start, kernel) in inside.items():
            # Workers come and go; and so did the process that read /proc.
            if tid not in seen:
                self.assertTrue(name.startswith("kworker") or state == "R", (tid, name))
                continue
            process, thread = seen[tid]
            self.assertEqual((process["pid"], process["kernel"], thread["start_ns"] // 10 ** 7), (pid, kernel, start), name)
            # /proc adds to the names of kernel threads what they work on. The shell has become another program since.
            if kernel:
                self.assertTrue(name.startswith(thread["name"]), (name, thread["name"]))
            elif tid != 1:
                self.assertEqual(thread["name"], name)
        latest = max(start for _, _, _, start, _ in inside.values())
        for tid, (_, thread) in seen.items():
            self.assertTrue(tid in inside or thread["start_ns"] // 10 ** 7 >= latest, thread)
        return seen

    def check_states(self, seen, inside):
        """What stands in one state for ever does so in both; what was on its way to sleep then does now."""
        states = set()
        for tid, (_, name, state, _, kernel) in inside.items():
            if kernel or tid not in seen or tid == 1:
                continue
            expected = state if state in "STZ" or name.startswith(("turns", "spin")) else "S"
            self.assertEqual(LETTERS[seen[tid][1]["state"]], expected, name)
            states.add(expected)
        self.assertEqual(states, {"R", "S", "T", "Z"})

    def stacks_inside(self):
        """{(thread, how often it had switched): functions of the kernel that it stood in, innermost first}"""
        console = self.told()
        switches, functions = collections.Counter(), collections.defaultdict(list)
        for tid, times in SWITCHES.findall(console):
            switches[int(tid)] += int(times)
        for tid, function in STACK.findall(console):
            functions[int(tid)].append(function)
        return {(tid, switches[tid]): stack for tid, stack in functions.items()}

    def check_maps(self, told):
        """All mappings of all processes are those that /proc tells; returns {pid: mappings}."""
        seen, maps = {}, {}
        for pid, start, end, access, offset, path in MAPS.findall(self.told()):
            # The pages of the kernel's clock have no name here.
            seen.setdefault(int(pid), []).append((int(start, 16), int(end, 16), access, int(offset, 16), "" if path.startswith("[vvar") else path))
        for process in told["processes"]:
            # Those that have begun since come and go.
            if process["pid"] > max(seen):
                continue
            self.assertNotIn("trouble", process)
            maps[process["pid"]] = [(at["start"], at["end"], at["access"], at["offset"], (at["path"] or "") + (" (deleted)" if at["deleted"] else ""))
                                    for at in process.get("mappings", [])]
        # The first process has become another program since.
        seen = {pid: mappings for pid, mappings in seen.items() if pid in maps and pid != 1}
        self.assertEqual(seen, {pid: mappings for pid, mappings in maps.items() if mappings and pid != 1})
        self.assertLessEqual({"/bin/sleep", "/mnt/tools/busybox", "/mnt/gone/busybox (deleted)", "[heap]", "[stack]", "[vdso]"},
                             {path for mappings in seen.values() for *_, path in mappings})
        return maps

    def check_calls(self, told, maps):
        """The place at which each program called the kernel is that which /proc tells, in the file that is mapped there."""
        places = {int(pid): int(pc, 16) for pid, pc in SYSCALL.findall(self.told())}
        seen = set()
        for thread in told["threads"]:
            # /proc tells of the first thread of each.
            if thread["tid"] not in places or not thread.get("program") or thread["pid"] == 1:
                continue
            pc = int(thread["program_address"], 16)
            start, _, _, offset, path = next(at for at in maps[thread["pid"]] if at[0] <= pc < at[1])
            self.assertEqual((pc, thread["image"], thread["image_offset"]), (places[thread["tid"]], path.removesuffix(" (deleted)"), offset + pc - start))
            seen.add(Path(thread["image"]).name)
        self.assertLessEqual({"libc.so.6", "busybox"}, seen)

    def compare_stacks(self, dumped):
        """Where each thread waits in the kernel is what the kernel itself says; that leaves the scheduler's own functions out."""
        self.assertNotIn("trouble", dumped)
        outside = {thread["tid"]: thread for thread in dumped["threads"]}
        inside = self.stacks_inside()
        compared = 0
        for tid, thread in outside.items():
            # Where it has not run since.
            functions = inside.get((tid, thread["switches"]))
            if not functions or "trace" not in thread:
                continue
            names = [ENTRY.sub("__do_sys_", frame.get("symbol", "")) for frame in thread["trace"] if int(frame["address"], 16) >> 63]
            functions = [ENTRY.sub("__do_sys_", function) for function in functions]
            self.assertTrue(thread["whole"], thread)
            self.assertEqual(names[-len(functions):], functions, (thread["name"], names))
            self.assertIn("schedule", names, thread["name"])
            compared += 1
        self.assertGreater(compared, 15)
        # A thread that runs has its stack in a vCPU; one that ran meanwhile has none either.
        for thread in outside.values():
            if thread["state"] in ("running", "zombie"):
                self.assertNotIn("trace", thread)

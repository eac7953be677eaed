#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Code that processes of a Linux guest make themselves: the names that each writes for perf(1) are its own alone."""

import collections
import os
import re
import subprocess
import sys
import unittest

from hostcase import PROGRAMS, UNIPROF, chance
from linuxcase import BOOT, LinuxCase
from linuxfiles import files_of

# Three processes with code at the same address (tests/vmm/programs/jit.c): names of two, and turns of each function; the third writes no names.
NAMES = {"red": 3, "pink": 1}, {"green": 1, "lime": 3}
OWN = {name for names in NAMES for name in names}
USERS = 0, 1007
TOLERANCE = 0.03
ENOUGH = 100


@unittest.skipIf(sys.platform != "linux" or os.uname().machine != "x86_64", "its program makes code for x86-64")
@unittest.skipIf(os.geteuid() != 0, "needs the rights of root, to make files of the guest's users")
class LinuxJit(LinuxCase):
    def start_jit(self):
        files = files_of({"bin/jit": PROGRAMS / "jit"})
        self.start_linux("quiet console=ttyS0 pti=on rdinit=/bin/jit", more=files)
        self.put_root(files)
        self.wait_for(lambda: len(re.findall(r"^map \d+ .* lie$", self.told(), re.M)) == len(NAMES), "its processes do not begin", BOOT)
        self.wait_for_thread("jit")
        maps = collections.defaultdict(list)
        for pid, line in re.findall(r"^map (\d+) (.*)$", self.told(), re.M):
            maps[int(pid)].append(line)
        # The guest's /tmp, as its disk would have it.
        (self.root / "tmp").mkdir()
        self.pids = [next(pid for pid, lines in maps.items() if any(line.endswith(f" {name}") for line in lines)) for name in ("red", "green")]
        for pid, user in zip(self.pids, USERS):
            path = self.root / "tmp" / f"perf-{pid}.map"
            path.write_text("".join(f"{line}\n" for line in maps[pid]))
            os.chown(path, user, user)

    def record(self, enough):
        """Samples of each process by the innermost function, in longer recordings until there are enough: the kernel has to be found first."""
        for attempt in range(chance.TAKES):
            said = self.uniprof("record", "--max-overhead", 50, "-F", 97, "-T", 6 * chance.longer(attempt), "--sysroot", self.root, "-o", "out.uniprof", f"qemu:{self.qmp}", timeout=600)
            done = subprocess.run([UNIPROF, "export", "--format=folded", "--by", "process", "out.uniprof"], cwd=self.scratch, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, check=False)
            found = collections.defaultdict(collections.Counter)
            for process, *_, function, n in re.findall(r"^jit \((\d+)\)(;.*)?;(.*) (\d+)$", done.stdout, re.M):
                found[int(process)][function] += int(n)
            self.check_names(found)
            if enough(found):
                return found
        self.fail(f"too few samples: {found}, {said}")

    def check_names(self, found):
        """None that is another process's, or of a file; the third process has none at all."""
        for pid, functions in found.items():
            own = NAMES[self.pids.index(pid)] if pid in self.pids else {}
            self.assertLessEqual(set(functions) & OWN, set(own), (pid, functions))
            self.assertNotIn("lie", functions)

    def named(self, found, kind):
        return sum(found[self.pids[kind]][name] for name in NAMES[kind])

    def test_names_are_those_of_each_process_alone(self):
        self.start_jit()
        found = self.record(lambda found: min(self.named(found, kind) for kind in range(len(NAMES))) >= ENOUGH)
        for kind, names in enumerate(NAMES):
            functions, n = found[self.pids[kind]], self.named(found, kind)
            print(f"\n{dict(functions)}", end=" ", flush=True)
            for name, turns in names.items():
                self.assertLessEqual(abs(functions[name] / n - turns / 4), TOLERANCE + chance.margin(turns / 4, n), functions)
        # The file's code is told by the file.
        self.assertTrue([name for functions in found.values() for name in functions if name.startswith("code+0x")], found)
        # The third process: its code has no name, and it is there.
        self.assertTrue([name for pid, functions in found.items() if pid not in self.pids for name in functions if name.startswith("0x5000")], found)

        text = self.uniprof("top", "--batch", "-n", 1, "-d", 10, "--sysroot", self.root, f"qemu:{self.qmp}", timeout=600)
        self.assertRegex(text, r"\bred\b")
        self.assertNotRegex(text, r"\blie\b")

        # Written by another user of the guest.
        os.chown(self.root / "tmp" / f"perf-{self.pids[1]}.map", USERS[1] + 1, 0)
        found = self.record(lambda found: self.named(found, 0) >= ENOUGH)
        self.assertFalse(set(found[self.pids[1]]) & OWN, found)
        self.assertTrue(found[self.pids[1]], found)


if __name__ == "__main__":
    unittest.main()

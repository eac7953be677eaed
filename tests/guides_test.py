#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""That the guides can be followed: their commands are typed, and what they show is compared with what comes.

In docs/guides, a block marked sh is typed into one shell after the other, where each must succeed. A block marked text
behind it shows lines of its output, in this order and perhaps with others between; a number stands for any number.
"""

import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("rig", "vmm", "exports")]

from guestcase import GuestCase  # noqa: E402
from linuxcase import LinuxCase  # noqa: E402
from qemucase import BUILD, QemuCase  # noqa: E402
from receiver import Receiver  # noqa: E402

GUIDES = ROOT / "docs" / "guides"
PYROSCOPE = 4040


def blocks(guide):
    """(commands, lines that are shown of their output) of each block of a guide."""
    found = []
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", (GUIDES / f"{guide}.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if language == "sh":
            found.append((body, []))
        elif language == "text" and found:
            found[-1][1].extend(line for line in body.splitlines() if line.strip())
    return found


def pattern(line):
    """A line that is shown, with any numbers in place of its own, any distances between its words, and more behind it."""
    words = [re.sub(r"\d+(?:\\?[.:]\d+)*", r"[\\d.:]+", re.escape(word)) for word in line.split()]
    return re.compile(r"^\s*" + r"\s+".join(words))


class Guide(unittest.TestCase):
    """Follows a guide; `typed` runs commands and returns their output."""

    def follow(self, guide, typed):
        commands = blocks(guide)
        self.assertTrue(commands, f"{guide} has no commands")
        for body, shown in commands:
            output = typed(body)
            lines = iter(output.splitlines())
            for line in shown:
                self.assertTrue(any(pattern(line).match(there) for there in lines), f"{guide} shows: {line}\nbut there is:\n{output}")


class Shown(unittest.TestCase):
    def test_numbers_and_distances_may_differ_and_words_may_not(self):
        row = pattern("  86.48 % 37.0-98.6   5  bare_drain")
        self.assertTrue(row.match("7.5 %  1.4-63.0 71 bare_drain"))
        self.assertFalse(row.match("7.5 %  1.4-63.0 71 out8"))

    def test_each_guide_is_followed_here_or_has_no_commands(self):
        followed = {"qemu", "xen", "linux", "unikernels", "agent"}
        self.assertEqual({path.stem for path in GUIDES.glob("*.md")}, followed | {"reading"})
        self.assertEqual(blocks("reading"), [])


class Here(QemuCase, Guide):
    """On this host: guests of QEMU."""

    def typed(self, commands):
        path = f"{BUILD}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        shell = self.start("bash", "-euc", commands, cwd=self.scratch, start_new_session=True,
                           env={"PATH": path, "HOME": str(self.scratch), "LC_ALL": "C.UTF-8"})
        self.addCleanup(self.end_group, shell.pid)
        status = shell.wait(600)
        output = shell.log.read_text(errors="replace")
        self.assertEqual(status, 0, f"{commands}{output}")
        return output

    def web(self):
        """A guest of this name, and its file."""
        shutil.copy(BUILD / "guests" / "app1-pvh-fp.elf", self.scratch / "web.elf")
        command = [word.replace("guest=app1-pvh-fp", "guest=web") for word in self.command("app1-pvh-fp", append="scale=100000")]
        command[command.index("-kernel") + 1] = str(self.scratch / "web.elf")
        self.start(*command, "-qmp", f"unix:{self.qmp},server=on,wait=off")
        self.begins("app1")

    def test_qemu(self):
        self.web()
        self.follow("qemu", self.typed)
        self.assertIn("<svg", (self.scratch / "web.svg").read_text(encoding="utf-8"))

    def test_unikernels(self):
        image = self.scratch / "app_qemu-x86_64"
        shutil.copy(BUILD / "guests" / "app1-pvh-fp.elf", f"{image}.dbg")
        subprocess.run(["objcopy", "--strip-all", f"{image}.dbg", image], check=True)
        self.follow("unikernels", self.typed)
        self.assertRegex(self.typed("uniprof report app_qemu-x86_64.uniprof"), r"\d +function_3\b")

    def test_agent(self):
        try:
            receiver = Receiver(self, port=PYROSCOPE)
        except OSError as error:
            self.skipTest(f"port {PYROSCOPE} is not free here: {error}")
        self.web()
        self.follow("agent", self.typed)
        self.assertEqual({request.path.partition("?")[0] for request in receiver.requests}, {"/ingest"})


class HereLinux(LinuxCase, Guide):
    """A Linux guest of QEMU."""

    typed = Here.typed

    def test_linux(self):
        self.start_linux("x", name="web")
        self.wait_for_thread("turns")
        self.follow("linux", self.typed)


class InDom0(GuestCase, Guide):
    def test_xen(self):
        self.create("app1-pv-fp", "scale=100000", name="web")
        self.at_work("web")

        def typed(commands):
            status, output = self.dom0(commands, 300)
            self.assertEqual(status, 0, f"{commands}{output}")
            return output

        self.follow("xen", typed)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: BSD-3-Clause
"""A Linux guest in QEMU for tests: Debian's kernel, and one program that starts as init."""

import re
import time
import unittest

from hostcase import BUILD, UNIPROF
from linuxfiles import archive
from qemucase import QemuCase
from xenrig import RigError, image
from xenrig.port import ARM64, X86

# Its leader and one thread wait for ever, another turns (guests/linux/threads.c).
PROGRAM = BUILD / "guests" / "linux-threads"

# QEMU and its machine for each kind of processor, and the kernel's words for that.
MACHINES = {X86: ("qemu-system-x86_64", "pc", "no_timer_check"), ARM64: ("qemu-system-aarch64", "virt", "")}

# Seconds until a kernel under emulation, on a busy machine, has started a program.
BOOT = 300


class LinuxCase(QemuCase):
    release = "4.17"  # of Xen in the rig, whose Debian has the kernel
    port = X86
    cpu = "max"

    @classmethod
    def setUpClass(cls):
        try:
            cls.kernel = image.ensure(cls.release, print, cls.port) / "linux"
        except RigError as error:
            raise unittest.SkipTest(str(error)) from error

    def start_linux(self, words, program=PROGRAM, name="linux", more=None, options=()):
        """`more`: files beside the program, as archive() has them; `options`: further ones of QEMU's."""
        files = self.scratch / "files"
        self.console = self.scratch / "console"
        files.write_bytes(archive({"dev": (0o40755, b"", (0, 0)), "dev/console": (0o20600, b"", (5, 1)),
                                   "init": (0o100755, program.read_bytes(), (0, 0)), **(more or {})}))
        self.qmp = self.scratch / "qmp.sock"
        qemu, machine, needed = MACHINES[self.port]
        self.start(qemu, "-accel", "tcg", "-M", machine, "-cpu", self.cpu, "-m", "192", "-smp", "2", "-nodefaults", "-display", "none",
                   "-no-reboot", *options, "-name", name, "-kernel", self.kernel, "-initrd", files, "-append", f"{needed} panic=-1 {words}",
                   "-serial", f"file:{self.console}",
                   "-qmp", f"unix:{self.qmp},server=on,wait=off")
        self.wait_for(self.qmp.is_socket, "QEMU makes no socket")

    def told(self):
        """What the guest has written."""
        return self.console.read_text(errors="replace").replace("\r", "") if self.console.exists() else ""

    def wait_for_thread(self, name):
        def is_there():
            # A search in a kernel that still boots takes its CPUs and ours.
            time.sleep(1)
            done = self.start(UNIPROF, "ps", f"qemu:{self.qmp}")
            done.wait(BOOT)
            return f" {name}" in done.log.read_text(errors="replace")

        self.wait_for(is_there, "its program does not begin", BOOT)

    def put_root(self, files):
        """The root directory of a guest with these files; /bin leads elsewhere, as in distributions, and to no path of this host's."""
        self.root = self.scratch / "root"
        for name, (mode, data, _) in files.items():
            path = self.root / re.sub("^bin/", "programs/", name)
            if mode & 0o100000:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        (self.root / "bin").symlink_to("/programs")
        # The profiler gives up its rights.
        for path in self.scratch, self.root:
            path.chmod(0o755)

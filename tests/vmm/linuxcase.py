# SPDX-License-Identifier: BSD-3-Clause
"""A Linux guest in QEMU for tests: Debian's kernel, and one program that starts as init."""

import re
import subprocess
import time
import unittest
from pathlib import Path

from hostcase import BUILD, UNIPROF
from qemucase import QemuCase
from xenrig import RigError, image

# Its leader and one thread wait for ever, another turns (guests/linux/threads.c).
PROGRAM = BUILD / "guests" / "linux-threads"

LOADER = "lib64/ld-linux-x86-64.so.2"

# Seconds until a kernel under emulation, on a busy machine, has started a program.
BOOT = 300


def archive(files):
    """A cpio archive ("newc") of {name: (mode, contents, device)}."""
    out = b""
    for number, (name, (mode, data, device)) in enumerate([*files.items(), ("TRAILER!!!", (0, b"", (0, 0)))], 1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return out


class LinuxCase(QemuCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.kernel = image.ensure("4.17", print) / "linux"
        except RigError as error:
            raise unittest.SkipTest(str(error)) from error

    def start_linux(self, words, program=PROGRAM, name="linux", more=None):
        """`more`: files beside the program, as archive() has them."""
        files = self.scratch / "files"
        self.console = self.scratch / "console"
        files.write_bytes(archive({"dev": (0o40755, b"", (0, 0)), "dev/console": (0o20600, b"", (5, 1)),
                                   "init": (0o100755, program.read_bytes(), (0, 0)), **(more or {})}))
        self.qmp = self.scratch / "qmp.sock"
        self.start("qemu-system-x86_64", "-accel", "tcg", "-M", "pc", "-cpu", "max", "-m", "192", "-smp", "2", "-nodefaults", "-display", "none",
                   "-no-reboot", "-name", name, "-kernel", self.kernel, "-initrd", files, "-append", f"no_timer_check panic=-1 {words}",
                   "-serial", f"file:{self.console}",
                   "-qmp", f"unix:{self.qmp},server=on,wait=off")
        self.wait_for(self.qmp.is_socket, "QEMU makes no socket")

    def wait_for_thread(self, name):
        def is_there():
            # A search in a kernel that still boots takes its CPUs and ours.
            time.sleep(1)
            done = self.start(UNIPROF, "ps", f"qemu:{self.qmp}")
            done.wait(BOOT)
            return f" {name}" in done.log.read_text(errors="replace")

        self.wait_for(is_there, "its program does not begin", BOOT)

    def files_of(self, programs):
        """Files of a guest with these programs {name: path} and the libraries of this machine that they need."""
        told = "".join(subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout for path in programs.values())
        files = {**programs, LOADER: Path("/") / LOADER, **{library.lstrip("/"): Path(library) for library in re.findall(r"=> (/\S+)", told)}}
        directories = {str(parent) for name in files for parent in Path(name).parents} - {"."}
        return {**{name: (0o40755, b"", (0, 0)) for name in sorted(directories)}, **{name: (0o100755, path.read_bytes(), (0, 0)) for name, path in files.items()}}

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

# SPDX-License-Identifier: BSD-3-Clause
"""An emulated machine: what users may choose about each, and QEMU's command line but for what it starts from.

xen.py and kvm.py make machines of it. To add another: a class with the fields that users may choose,
and with what Machine leaves open; its command line is a row of cli.py.
"""

import dataclasses
import functools
import shutil
import subprocess

from .errors import RigError

NEEDED = {"apt-get": "apt", "dpkg-deb": "dpkg", "ldd": "libc-bin"}


@dataclasses.dataclass(frozen=True)
class Machine:
    cpus: int = 1
    parallel: bool = False  # see command()
    icount: bool = False  # one instruction takes one nanosecond: repeatable, but shows no cost of traps
    mem: int = 4096       # MiB of the machine
    plugin: str = ""      # a TCG plugin of QEMU's, as it stands after "-plugin"

    # The system that runs commands, as sentences name it.
    system = "the machine"

    # Commands for that system: before a snapshot is saved, and after one was restored.
    before_save = after_restore = b""

    def __post_init__(self):
        if not 1 <= self.cpus <= 8:
            raise RigError(f"{self.cpus} CPUs are not possible; 1 to 8 are")
        if self.parallel and self.cpus == 1:
            raise RigError("one CPU has no other to run beside; ask for more")
        if self.icount and self.parallel:
            raise RigError("instructions are counted only where CPUs take turns")
        if not 1024 <= self.mem <= 65536:
            raise RigError(f"{self.mem} MiB of memory are not possible; 1024 to 65536 are")

    @property
    def port(self):
        """The one of port.PORTS whose QEMU and libraries it takes."""
        raise NotImplementedError

    def name(self):
        """Name of its snapshots."""
        raise NotImplementedError

    def title(self):
        """Name of what is booted, for people."""
        raise NotImplementedError

    def board(self):
        """QEMU's options for board and processor."""
        raise NotImplementedError

    def serial(self):
        """The device that the agent's port is at."""
        raise NotImplementedError

    def build(self, say):
        """Makes what is not in the cache and takes long. Takes the cache's lock itself."""

    def locate(self):
        """The directory of what it boots from, whether it is there or not; None before its packages are there."""
        raise NotImplementedError

    def ensure(self, say):
        """locate(), made when it is missing. Needs the cache's exclusive lock."""
        raise NotImplementedError

    def boot_arguments(self, directory):
        """Arguments that let QEMU boot from such a directory rather than wait for a snapshot."""
        raise NotImplementedError

    def prepare(self, channel):
        """Does in a machine that has booted what is to be part of its snapshot."""

    def suffix(self):
        """End of name(), for options that all machines have."""
        return f"-cpus{self.cpus}-mem{self.mem}" + ("-parallel" if self.parallel else "") + ("-icount" if self.icount else "")

    def command(self, ram, private, agent, console):
        """QEMU's command line but for what it starts from.

        `ram` is the file behind the memory, written to unless `private`: while a snapshot is made, when
        no plugin watches. `agent` and `console` are what stands after "-chardev" for the agent's port and
        for the serial port.

        CPUs take turns in one thread. Only `parallel` gives each its own: QEMU before 8.1 then keeps what it translated
        while another CPU wrote to that code, so that Linux, which patches its own, dies of an int3 that is gone.
        """
        accelerator = "tcg,thread=multi" if self.parallel else "tcg,thread=single"
        words = [
            self.port.qemu, "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
            *self.board(), "-accel", accelerator,
            "-smp", str(self.cpus), "-m", f"{self.mem}M",
            "-object", f"memory-backend-file,id=ram,size={self.mem}M,mem-path={escaped(ram)},"
                       f"share={'off' if private else 'on'}",
            "-chardev", f"{console},id=console", "-serial", "chardev:console",
            "-chardev", f"{agent},id=agent",
            "-device", self.serial(),
            "-device", "virtserialport,chardev=agent,nr=1,name=agent",
        ]
        if self.plugin and private:
            words += ["-plugin", self.plugin]
        if self.icount:
            words += ["-icount", "shift=0,sleep=off"]
        return words

    def check_tools(self):
        needed = {self.port.qemu: self.port.qemu_package, **NEEDED}
        missing = [f"{tool} (package {package})" for tool, package in needed.items() if not shutil.which(tool)]
        if missing:
            raise RigError(f"this machine lacks {', '.join(missing)}; install with 'apt-get install' and try again")


@functools.cache
def qemu_version(port):
    return subprocess.run([port.qemu, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def escaped(path):
    """QEMU separates options by commas and takes a doubled one for a comma."""
    return str(path).replace(",", ",,")

# SPDX-License-Identifier: BSD-3-Clause
"""The emulated machine: what users may choose about it, and QEMU's command line for that."""

import dataclasses
import shutil
import subprocess

from . import packages
from .errors import RigError

QEMU = "qemu-system-x86_64"
NEEDED = {QEMU: "qemu-system-x86", "apt-get": "apt", "dpkg-deb": "dpkg", "ldd": "libc-bin"}
DOM0_MEGABYTES = 512

# What QEMU 7.2 emulates wrongly is left out: dom0 dies with SMAP, Xen panics with MONITOR and two CPUs,
# and with XSAVE (hence no AVX) programs in dom0 find garbage in XMM registers while a guest is busy.
CPU = "EPYC,-smap,-monitor,-xsave"


@dataclasses.dataclass(frozen=True)
class Options:
    xen: str = "4.17"     # one of packages.DEBIAN
    cpus: int = 1         # with two or more, dom0 keeps CPU 0 and guests may have the others
    icount: bool = False  # one instruction takes one nanosecond: repeatable, but shows no cost of traps
    mem: int = 4096       # MiB of the machine; dom0 has DOM0_MEGABYTES of them

    def __post_init__(self):
        if self.xen not in packages.DEBIAN:
            raise RigError(f"no Xen {self.xen}; there are {', '.join(packages.DEBIAN)}")
        if not 1 <= self.cpus <= 8:
            raise RigError(f"{self.cpus} CPUs are not possible; 1 to 8 are")
        if self.icount and self.cpus != 1:
            raise RigError("counting instructions works with one CPU only")
        if not 1024 <= self.mem <= 65536:
            raise RigError(f"{self.mem} MiB of memory are not possible; 1024 to 65536 are")

    def name(self):
        return f"{self.xen}-cpus{self.cpus}-mem{self.mem}" + ("-icount" if self.icount else "")


def check_tools():
    missing = [f"{tool} (package {package})" for tool, package in NEEDED.items() if not shutil.which(tool)]
    if missing:
        raise RigError(f"this machine lacks {', '.join(missing)}; install with 'apt-get install' and try again")


def qemu_version():
    return subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def command(options, ram, private, agent, console):
    """QEMU's command line but for what it starts from.

    `ram` is the file behind the memory, written to unless `private`. `agent` and `console` are what
    stands after "-chardev" for the agent's port and for the serial port.
    """
    accelerator = "tcg,thread=single" if options.icount or options.cpus == 1 else "tcg,thread=multi"
    words = [
        QEMU, "-no-user-config", "-nodefaults", "-display", "none", "-vga", "none", "-no-reboot",
        "-machine", "pc,memory-backend=ram", "-accel", accelerator, "-cpu", CPU,
        "-smp", str(options.cpus), "-m", f"{options.mem}M",
        "-object", f"memory-backend-file,id=ram,size={options.mem}M,mem-path={_escaped(ram)},"
                   f"share={'off' if private else 'on'}",
        "-chardev", f"{console},id=console", "-serial", "chardev:console",
        "-chardev", f"{agent},id=agent",
        "-device", "virtio-serial-pci,iommu_platform=on,disable-legacy=on,max_ports=2",
        "-device", "virtserialport,chardev=agent,nr=1,name=agent",
    ]
    if options.icount:
        words += ["-icount", "shift=0,sleep=off"]
    return words


def boot_arguments(image, options):
    """What makes QEMU start Xen with dom0 rather than wait for a snapshot."""
    xen = (f"console=com1 com1=115200,8n1 loglvl=warning guest_loglvl=warning no-real-mode edd=off bootscrub=0 "
           f"dom0_mem={DOM0_MEGABYTES}M,max:{DOM0_MEGABYTES}M dom0_max_vcpus=1 dom0_vcpus_pin")
    modules = f"{_escaped(image / 'linux')} console=hvc0 quiet loglevel=3,{_escaped(image / 'dom0.cpio')}"
    return ["-kernel", str(image / "xen"), "-append", xen, "-initrd", modules]


def _escaped(path):
    """QEMU separates options by commas and takes a doubled one for a comma."""
    return str(path).replace(",", ",,")

# SPDX-License-Identifier: BSD-3-Clause
"""The emulated machine: what users may choose about it, and QEMU's command line for that."""

import dataclasses
import shutil
import subprocess

from .errors import RigError
from .port import PORTS, X86

NEEDED = {"apt-get": "apt", "dpkg-deb": "dpkg", "ldd": "libc-bin"}
DOM0_MEGABYTES = 512

X86_SERIAL = "virtio-serial-pci,iommu_platform=on,disable-legacy=on,max_ports=2"
# Interrupts by message would need an ITS, which Xen does not give dom0.
ARM64_SERIAL = "virtio-serial-pci,disable-legacy=on,vectors=0,max_ports=2"

# Where the modules lie while Xen boots: behind it, and far enough apart.
ARM64_LINUX, ARM64_DOM0 = 0x50000000, 0x58000000

# What QEMU 7.2 emulates wrongly is left out: dom0 dies with SMAP, Xen panics with MONITOR and two CPUs,
# and with XSAVE (hence no AVX) programs in dom0 find garbage in XMM registers while a guest is busy.
X86_CPU = "EPYC,-smap,-monitor,-xsave"


@dataclasses.dataclass(frozen=True)
class Options:
    arch: str = "x86"     # one of PORTS
    xen: str = "4.17"     # one of its releases
    cpus: int = 1         # with two or more, dom0 keeps CPU 0 and guests may have the others
    icount: bool = False  # one instruction takes one nanosecond: repeatable, but shows no cost of traps
    mem: int = 4096       # MiB of the machine; dom0 has DOM0_MEGABYTES of them
    plugin: str = ""      # a TCG plugin of QEMU's, as it stands after "-plugin"

    def __post_init__(self):
        if self.arch not in PORTS:
            raise RigError(f"no machine called {self.arch}; there are {', '.join(PORTS)}")
        if self.xen not in self.port.releases:
            raise RigError(f"no Xen {self.xen} for {self.arch}; there are {', '.join(self.port.releases)}")
        if not 1 <= self.cpus <= 8:
            raise RigError(f"{self.cpus} CPUs are not possible; 1 to 8 are")
        if self.icount and self.cpus != 1:
            raise RigError("counting instructions works with one CPU only")
        if not 1024 <= self.mem <= 65536:
            raise RigError(f"{self.mem} MiB of memory are not possible; 1024 to 65536 are")

    @property
    def port(self):
        return PORTS[self.arch]

    def name(self):
        return f"{self.port.key(self.xen)}-cpus{self.cpus}-mem{self.mem}" + ("-icount" if self.icount else "")


def check_tools(options):
    needed = {options.port.qemu: options.port.qemu_package, **NEEDED}
    missing = [f"{tool} (package {package})" for tool, package in needed.items() if not shutil.which(tool)]
    if missing:
        raise RigError(f"this machine lacks {', '.join(missing)}; install with 'apt-get install' and try again")


def qemu_version(port):
    return subprocess.run([port.qemu, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def command(options, ram, private, agent, console):
    """QEMU's command line but for what it starts from.

    `ram` is the file behind the memory, written to unless `private`: while a snapshot is made, when
    no plugin watches. `agent` and `console` are what stands after "-chardev" for the agent's port and
    for the serial port.
    """
    accelerator = "tcg,thread=single" if options.icount or options.cpus == 1 else "tcg,thread=multi"
    words = [
        options.port.qemu, "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
        *(_x86_board() if options.port is X86 else _arm64_board()), "-accel", accelerator,
        "-smp", str(options.cpus), "-m", f"{options.mem}M",
        "-object", f"memory-backend-file,id=ram,size={options.mem}M,mem-path={_escaped(ram)},"
                   f"share={'off' if private else 'on'}",
        "-chardev", f"{console},id=console", "-serial", "chardev:console",
        "-chardev", f"{agent},id=agent",
        "-device", X86_SERIAL if options.port is X86 else ARM64_SERIAL,
        "-device", "virtserialport,chardev=agent,nr=1,name=agent",
    ]
    if options.plugin and private:
        words += ["-plugin", options.plugin]
    if options.icount:
        words += ["-icount", "shift=0,sleep=off"]
    return words


def _x86_board():
    return ["-vga", "none", "-machine", "pc,memory-backend=ram", "-cpu", X86_CPU]


def _arm64_board():
    # The only processor of QEMU 7.2 that has granules of all sizes and guests of 32 bits.
    return ["-machine", "virt,virtualization=on,gic-version=3,memory-backend=ram", "-cpu", "cortex-a35"]


def boot_arguments(image, options):
    """What makes QEMU start Xen with dom0 rather than wait for a snapshot."""
    return _x86_boot(image) if options.port is X86 else _arm64_boot(image)


def _arm64_boot(image):
    """Linux and its root file system where Xen expects boot modules: told by the device tree."""
    xen = (f"console=dtuart dtuart=/pl011@9000000 loglvl=warning guest_loglvl=warning bootscrub=0 "
           f"dom0_mem={DOM0_MEGABYTES}M dom0_max_vcpus=1 dom0_vcpus_pin")
    return ["-kernel", str(image / "xen"), "-append", xen,
            "-device", f"guest-loader,addr={ARM64_LINUX:#x},kernel={_escaped(image / 'linux')},"
                       "bootargs=console=hvc0 rdinit=/init quiet loglevel=3",
            "-device", f"guest-loader,addr={ARM64_DOM0:#x},initrd={_escaped(image / 'dom0.cpio')}"]


def _x86_boot(image):
    xen = (f"console=com1 com1=115200,8n1 loglvl=warning guest_loglvl=warning no-real-mode edd=off bootscrub=0 "
           f"dom0_mem={DOM0_MEGABYTES}M,max:{DOM0_MEGABYTES}M dom0_max_vcpus=1 dom0_vcpus_pin")
    modules = f"{_escaped(image / 'linux')} console=hvc0 quiet loglevel=3,{_escaped(image / 'dom0.cpio')}"
    return ["-kernel", str(image / "xen"), "-append", xen, "-initrd", modules]


def _escaped(path):
    """QEMU separates options by commas and takes a doubled one for a comma."""
    return str(path).replace(",", ",,")

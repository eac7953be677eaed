# SPDX-License-Identifier: BSD-3-Clause
"""A machine with Xen and a dom0."""

import dataclasses

from . import built, image
from .errors import RigError
from .machine import Machine, escaped
from .port import BUILT, PORTS, X86

DOM0_MEGABYTES = 512
HVM_MEGABYTES = 768  # with a device model for each guest
FLASK = ("enforcing", "permissive")

X86_SERIAL = "virtio-serial-pci,iommu_platform=on,disable-legacy=on,max_ports=2"
# Interrupts by message would need an ITS, which Xen does not give dom0.
ARM64_SERIAL = "virtio-serial-pci,disable-legacy=on,vectors=0,max_ports=2"

# Addresses of the modules while Xen boots: behind it, and far enough from each other.
ARM64_LINUX, ARM64_DOM0 = 0x50000000, 0x58000000

# Features that QEMU 7.2 emulates wrongly are left out: dom0 dies with SMAP, Xen panics with MONITOR and two CPUs,
# and with XSAVE (hence no AVX) programs in dom0 find garbage in XMM registers while a guest is busy.
X86_CPU = "EPYC,-smap,-monitor,-xsave"


@dataclasses.dataclass(frozen=True)
class Xen(Machine):
    """With two or more CPUs, dom0 keeps CPU 0 and guests may have the others; of the memory, dom0 has dom0_megabytes()."""

    arch: str = "x86"  # one of PORTS
    xen: str = "4.17"  # one of its releases
    hvm: bool = False  # dom0 has a device model, for guests of type "hvm"
    flask: str = ""    # "enforcing", "permissive": a policy decides who may do what, in a Xen that is built here

    system = "dom0"

    def __post_init__(self):
        if self.arch not in PORTS:
            raise RigError(f"no machine called {self.arch}; there are {', '.join(PORTS)}")
        if self.xen not in self.port.releases:
            raise RigError(f"no Xen {self.xen} for {self.arch}; there are {', '.join(self.port.releases)}")
        if self.hvm and self.port is not X86:
            raise RigError(f"there are no HVM guests on {self.arch}")
        if self.flask and self.xen != BUILT:
            raise RigError(f"Debian's Xen {self.xen} has no Flask; the one that is built here has it: --xen {BUILT}")
        if self.flask not in ("", *FLASK):
            raise RigError(f"Flask cannot be {self.flask}, but {' or '.join(FLASK)}")
        super().__post_init__()

    @property
    def port(self):
        return PORTS[self.arch]

    def name(self):
        return self.port.key(self.xen, self.hvm) + self.suffix() + (f"-{self.flask}" if self.flask else "")

    def title(self):
        return f"Xen {self.xen}"

    def board(self):
        if self.port is X86:
            return ["-vga", "none", "-machine", "pc,memory-backend=ram", "-cpu", X86_CPU]
        # The only processor of QEMU 7.2 that has granules of all sizes and guests of 32 bits.
        return ["-machine", "virt,virtualization=on,gic-version=3,memory-backend=ram", "-cpu", "cortex-a35"]

    def serial(self):
        return X86_SERIAL if self.port is X86 else ARM64_SERIAL

    def build(self, say):
        if self.xen == BUILT:
            built.ensure(say)

    def locate(self):
        return image.locate(self.xen, self.port, self.hvm)

    def ensure(self, say):
        return image.ensure(self.xen, say, self.port, self.hvm)

    def dom0_megabytes(self):
        return HVM_MEGABYTES if self.hvm else DOM0_MEGABYTES

    def boot_arguments(self, directory):
        return _x86_boot(directory, self) if self.port is X86 else _arm64_boot(directory)


def _arm64_boot(directory):
    """Linux and its root file system where Xen expects boot modules: told by the device tree."""
    xen = (f"console=dtuart dtuart=/pl011@9000000 loglvl=warning guest_loglvl=warning bootscrub=0 "
           f"dom0_mem={DOM0_MEGABYTES}M dom0_max_vcpus=1 dom0_vcpus_pin")
    return ["-kernel", str(directory / "xen"), "-append", xen,
            "-device", f"guest-loader,addr={ARM64_LINUX:#x},kernel={escaped(directory / 'linux')},"
                       "bootargs=console=hvc0 rdinit=/init quiet loglevel=3",
            "-device", f"guest-loader,addr={ARM64_DOM0:#x},initrd={escaped(directory / 'dom0.cpio')}"]


def _x86_boot(directory, options):
    xen = (f"console=com1 com1=115200,8n1 loglvl=warning guest_loglvl=warning no-real-mode edd=off bootscrub=0 "
           f"dom0_mem={options.dom0_megabytes()}M,max:{options.dom0_megabytes()}M dom0_max_vcpus=1 dom0_vcpus_pin")
    if options.xen == BUILT:
        xen += f" flask={options.flask or 'disabled'}"
    modules = f"{escaped(directory / 'linux')} console=hvc0 quiet loglevel=3,{escaped(directory / 'dom0.cpio')}"
    return ["-kernel", str(directory / "xen"), "-append", xen, "-initrd", modules]

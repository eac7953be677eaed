# SPDX-License-Identifier: BSD-3-Clause
"""What differs between the machines that uniprof is built for, and those that the rig emulates: x86 and arm64."""

import dataclasses


# In place of a release of Xen: one that is built here (built.py).
BUILT = "built"


@dataclasses.dataclass(frozen=True)
class Host:
    name: str        # as in rig/xen-NAME
    debian: str      # Debian's name of the architecture
    triplet: str     # of its libraries' directory


@dataclasses.dataclass(frozen=True)
class Port(Host):
    loader: str      # of programs, where they expect it
    qemu: str
    qemu_package: str
    linux: str       # the package of dom0's kernel
    releases: tuple  # of Xen, that can be run here
    tools: tuple     # of Xen's, beside those that all have
    modules: tuple   # of dom0's kernel, under drivers/, in the order in which they can be loaded

    def key(self, xen, hvm=False):
        """A name for this release in the cache; `hvm`: with a device model."""
        return ("hvm-" if hvm else "") + (xen if self is X86 else f"{self.name}-{xen}")

    def library_directories(self):
        return [f"lib/{self.triplet}", f"usr/lib/{self.triplet}", "lib64", "usr/lib64"]


_XEN_MODULES = ("xen/xen-evtchn", "xen/xen-gntdev", "xen/xen-gntalloc", "xen/xen-privcmd", "xen/xenfs/xenfs")
_VIRTIO_PCI = ("virtio/virtio", "virtio/virtio_ring", "virtio/virtio_pci_modern_dev", "virtio/virtio_pci_legacy_dev",
               "virtio/virtio_pci", "char/virtio_console")

X86 = Port(
    name="x86", debian="amd64", triplet="x86_64-linux-gnu", loader="lib64/ld-linux-x86-64.so.2",
    qemu="qemu-system-x86_64", qemu_package="qemu-system-x86",
    linux="linux-image-amd64",  # the cloud kernel has no CONFIG_XEN_DOM0
    releases=("4.14", "4.17", "4.20", BUILT),
    tools=("xen-hvmctx", "xen-hvmcrash", "xenperf", "lsevtchn"),
    modules=_VIRTIO_PCI + _XEN_MODULES)

ARM64 = Port(
    name="arm64", debian="arm64", triplet="aarch64-linux-gnu", loader="lib/ld-linux-aarch64.so.1",
    qemu="qemu-system-aarch64", qemu_package="qemu-system-arm",
    linux="linux-image-cloud-arm64",
    releases=("4.17", "4.20"),
    tools=("xenperf",),
    modules=_VIRTIO_PCI + _XEN_MODULES)

# No rig: Xen for it is only in Debian's older releases.
ARMHF = Host(name="armhf", debian="armhf", triplet="arm-linux-gnueabihf")

PORTS = {port.name: port for port in (X86, ARM64)}

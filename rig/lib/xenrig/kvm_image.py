# SPDX-License-Identifier: BSD-3-Clause
"""What a host with KVM boots from: Debian's kernel, and a root file system with QEMU as a monitor.

The packages are those that dom0 of a release of Xen is made of (packages.py): they are downloaded
once for both. QEMU, its firmware and the libraries are this machine's own; those for arm64 are
packages of the same release.
"""

import hashlib
import lzma
import re
import shutil
import struct
import subprocess
from pathlib import Path

from . import bundle, cache, cpio, elf, packages
from .errors import RigError
from .image import C_RUNTIME, GROUPS, HOST_C_LIBRARY, LOADED_LATE, USERS
from .machine import qemu_version
from .port import ARM64, X86

RIG = Path(__file__).resolve().parents[2]
INIT, AGENT = RIG / "kvm" / "init", RIG / "dom0" / "agent"

# Debian's releases have one each: by the release of Xen that comes with it.
KERNELS = {"5.10": "4.14", "6.1": "4.17", "6.12": "4.20"}

# In the order in which they can be loaded. What a kernel has built in, as Arm's KVM always is, is no file.
_VIRTIO = ["drivers/virtio/virtio", "drivers/virtio/virtio_ring", "drivers/virtio/virtio_pci_modern_dev",
           "drivers/virtio/virtio_pci_legacy_dev", "drivers/virtio/virtio_pci", "drivers/char/virtio_console"]
MODULES = {X86.name: [*_VIRTIO, "virt/lib/irqbypass", "arch/x86/kvm/kvm", "drivers/char/hw_random/rng-core",
                      "drivers/crypto/ccp/ccp", "arch/x86/kvm/kvm-amd"],
           ARM64.name: _VIRTIO}

# For guests of microvm; those of arm64's virt are begun without any.
FIRMWARE = ["bios-microvm.bin", "pvh.bin", "qboot.rom", "linuxboot_dma.bin", "kvmvapic.bin"]
FIRMWARE_DIRECTORIES = [Path("/usr/share/qemu"), Path("/usr/share/seabios")]


def kernels(port):
    """Those that there are for its machines."""
    return [kernel for kernel, release in KERNELS.items() if release in port.releases]


def key(kernel, port):
    """A name for this kernel in the cache."""
    return "kvm-" + port.key(kernel)


def locate(kernel, port):
    """Where the image with this kernel is or will be; None before its packages are there."""
    debs = _debs(kernel, port)
    return cache.root() / "images" / f"{key(kernel, port)}-{_digest(debs, port)}" if all(path.is_dir() for path in debs) else None


def ensure(kernel, say, port):
    """The directory with `linux` and `host.cpio`, made when it is missing."""
    packages.ensure(KERNELS[kernel], say, port)
    if port is ARM64:
        packages.ensure_monitor(say, port)
    directory = locate(kernel, port)
    if not directory.is_dir():
        say(f"building a host with Linux {kernel} on {port.name}")
        with cache.new_directory(directory) as work, cache.scratch_directory() as tree:
            system, *monitor = _debs(kernel, port)
            packages.unpack(system, tree, lambda name: _is_used(name, port))
            for debs in monitor:
                packages.unpack(debs, tree, lambda name: _is_of_monitor(name, port))
            _build(tree, work, port)
        name = key(kernel, port)
        for old in (*cache.root().glob(f"images/{name}-*"), *cache.root().glob(f"snapshots/{name}-*")):
            if old != directory:
                cache.remove(old)
    return directory


def _debs(kernel, port):
    """Directories of packages: the system's, and QEMU's where it is not this machine's own."""
    return [packages.directory(KERNELS[kernel], port)] + ([packages.monitor_directory(port)] if port is ARM64 else [])


def _digest(debs, port):
    ours = [name for name in packages.names(debs[0]) if name.startswith(("busybox", "linux-image"))]
    theirs = [HOST_C_LIBRARY, qemu_version(port)] if port is X86 else packages.names(debs[1])
    digest = hashlib.sha256("\n".join([*ours, *theirs]).encode())
    for source in (Path(__file__), INIT, AGENT):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _is_used(name, port):
    if "/modules/" in name:
        return any(f"/kernel/{module}.ko" in name for module in MODULES[port.name])
    return name.removeprefix("usr/").startswith(("boot/vmlinuz-", "bin/busybox"))


def _is_of_monitor(name, port):
    return name == f"usr/bin/{port.qemu}" or re.fullmatch(rf"(usr/)?lib/({port.triplet}/)?[^/]+[.]so[.0-9]*", name) is not None


def _build(tree, out, port):
    (out / "linux").write_bytes(_only(tree.glob("boot/vmlinuz-*")).read_bytes())
    archive = cpio.Archive()
    for name in ("dev", "proc", "sys", "run", "tmp", "mnt", "job/out", "root", "usr/bin", f"usr/lib/{port.triplet}"):
        archive.directory(name)
    archive.link("sbin", "bin")
    archive.file("etc/passwd", USERS.encode())
    archive.file("etc/group", GROUPS.encode())
    archive.file("init", INIT.read_bytes(), 0o755)
    archive.file("agent", AGENT.read_bytes(), 0o755)
    archive.file("bin/busybox", _only([*tree.glob("bin/busybox"), *tree.glob("usr/bin/busybox")]).read_bytes(), 0o755)
    _add_modules(archive, [*tree.glob("lib/modules/*/kernel"), *tree.glob("usr/lib/modules/*/kernel")], port)
    if port is X86:
        _add_firmware(archive)
    else:
        archive.file("bin/expire", expire_program(), 0o755)
    _add_monitor(archive, tree, port)
    with open(out / "host.cpio", "wb") as file:
        archive.write(file)


def _only(paths):
    found = list(paths)
    if len(found) != 1:
        raise RigError(f"the packages should hold one such file, but hold {found or 'none'}")
    return found[0]


def expire_program():
    """For arm64: sleeps until a moment that has passed, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL).

    So the kernel sets the timer of the CPU that it runs on (see kvm.py).
    """
    code = [0xd2800e68, 0xd2800020, 0xd2800021, 0x100000c2, 0xd2800003, 0xd4000001,  # x8 = 115, 1, 1, moment, 0; svc
            0xd2800ba8, 0xd2800000, 0xd4000001]  # exit(0)
    moment = struct.pack("<QQ", 0, 1)
    entry, size = 0x400000 + 64 + 56, 64 + 56 + 4 * len(code) + len(moment)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 183, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, size, size, 0x10000)
    return head + segment + struct.pack(f"<{len(code)}I", *code) + moment


def _add_modules(archive, kernels, port):
    order = []
    for module in MODULES[port.name]:
        name = module.split("/")[-1] + ".ko"
        plain, packed = ([path for kernel in kernels if (path := kernel / (module + end)).exists()] for end in (".ko", ".ko.xz"))
        if plain:
            archive.file(f"modules/{name}", plain[0].read_bytes())
        elif packed:
            archive.file(f"modules/{name}", lzma.decompress(packed[0].read_bytes()))
        else:
            continue
        order.append(name)
    archive.file("modules/order", "".join(f"{name}\n" for name in order).encode())


def _add_firmware(archive):
    for name in FIRMWARE:
        path = next((place / name for place in FIRMWARE_DIRECTORIES if (place / name).exists()), None)
        if path is None:
            raise RigError(f"this machine's QEMU has no {name}")
        archive.file(f"usr/share/qemu/{name}", path.read_bytes())


def _add_monitor(archive, tree, port):
    """QEMU, with the libraries that it needs."""
    qemu, root = (Path(shutil.which(port.qemu)), Path("/")) if port is X86 else (tree / "usr/bin" / port.qemu, tree)
    data = qemu.read_bytes()
    archive.file(f"usr/bin/{port.qemu}", data, 0o755)
    found = bundle.needed(qemu, port) if port is X86 else dict.fromkeys(elf.needed(data))
    _add_libraries(archive, found, [root / name for name in port.library_directories()], port)


def _add_libraries(archive, found, places, port):
    """Libraries, {name: path}, and the C library's parts, which every program may ask for, with what they need."""
    pending = [*found, *C_RUNTIME, *LOADED_LATE, Path(port.loader).name]
    added = set()
    while pending:
        name = pending.pop()
        if name in added:
            continue
        added.add(name)
        path = found.get(name) or next((place / name for place in places if (place / name).exists()), None)
        if path is None:
            raise RigError(f"{'this machine lacks' if port is X86 else 'no package has'} {name}")
        data = Path(path).read_bytes()
        archive.file(f"lib/{port.triplet}/{name}", data, 0o755)
        pending += elf.needed(data)
    archive.link(port.loader, f"/lib/{port.triplet}/{Path(port.loader).name}")

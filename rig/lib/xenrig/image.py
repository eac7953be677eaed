# SPDX-License-Identifier: BSD-3-Clause
"""What a boot starts from: Xen, dom0's kernel and dom0's root file system, built from packages."""

import gzip
import hashlib
import lzma
import os
from pathlib import Path

from . import built, cache, cpio, elf, packages
from .errors import RigError
from .port import BUILT, X86

DOM0 = Path(__file__).resolve().parents[2] / "dom0"
PORT_FILE = Path(__file__).with_name("port.py")

XEN_TOOLS = ["xl", "xenstored", "xenconsoled", "xenconsole", "xenctx", "xen-init-dom0", "libxl-save-helper",
             "xentop"]
OTHER_TOOLS = ["usr/bin/strace", "usr/bin/xenstore-ls", "usr/bin/xenstore-list", "usr/bin/xenstore-read",
               "usr/bin/xenstore-write", "usr/bin/xenstore-rm", "usr/bin/xenstore-watch", "usr/bin/xenstore-chmod"]

IN_LATER_KERNELS = ["virtio/virtio_pci_modern_dev", "virtio/virtio_pci_legacy_dev"]  # part of virtio_pci before

# Of a device model, for guests of type "hvm": QEMU, what it needs to begin and to boot a kernel (by DMA or not), and the guest's firmware.
DEVICE_MODEL = "usr/libexec/xen-qemu-system-i386"
FIRMWARE = [*(f"usr/share/qemu/{name}" for name in ("keymaps/en-us", "linuxboot.bin", "linuxboot_dma.bin", "multiboot.bin", "multiboot_dma.bin", "pvh.bin")),
            "usr/share/seabios/bios-256k.bin"]

# Loaded by name at run time, so nothing links to it: pthread_cancel, without which `xl create` aborts.
LOADED_LATE = ["libgcc_s.so.1"]

# The C library's parts, which every program may ask for.
C_RUNTIME = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
             "libutil.so.1", "libresolv.so.2", "libanl.so.1"]
HOST_C_LIBRARY = os.confstr("CS_GNU_LIBC_VERSION")
USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n"
GROUPS = "root:x:0:\nnogroup:x:65534:\n"


def locate(xen, port=X86, hvm=False):
    """Where the image of this release of Xen is or will be; None before its packages are there. `hvm`: with a device model."""
    debs = [packages.directory(xen, port)] + ([packages.device_model_directory(xen, port)] if hvm else [])
    if not all(path.is_dir() for path in debs) or (xen == BUILT and not built.locate()):
        return None
    return cache.root() / "images" / f"{port.key(xen, hvm)}-{_digest(port, debs, xen)}"


def ensure(xen, say, port=X86, hvm=False):
    """The directory with `xen`, `linux` and `dom0.cpio`, made when it is missing."""
    debs = [packages.ensure(xen, say, port)] + ([packages.ensure_device_model(xen, say, port)] if hvm else [])
    directory = locate(xen, port, hvm)
    if not directory.is_dir():
        say(f"building dom0 for Xen {xen} on {port.name}{', with a device model' if hvm else ''}")
        with cache.new_directory(directory) as work, cache.scratch_directory() as tree:
            for path in debs:
                packages.unpack(path, tree, lambda name: _is_used(port, name))
            _build(tree, port, xen, _host_is_newer(port, debs[0]), work)
        name = port.key(xen, hvm)
        for old in (*cache.root().glob(f"images/{name}-*"), *cache.root().glob(f"snapshots/{name}-*")):
            if old != directory:
                cache.remove(old)
    return directory


def _digest(port, debs, xen):
    digest = hashlib.sha256("\n".join(name for path in debs for name in packages.names(path)).encode())
    for source in (Path(__file__), PORT_FILE, DOM0 / "init", DOM0 / "agent"):
        digest.update(source.read_bytes())
    if xen == BUILT:
        digest.update(built.locate().name.encode())
    if _host_is_newer(port, debs[0]):
        digest.update(HOST_C_LIBRARY.encode())
    return digest.hexdigest()[:12]


def _host_is_newer(port, debs):
    """Whether programs of this machine need a later C library than this release of Debian has."""
    if port is not X86:
        return False
    package = next(path for path in debs.glob("libc6_*.deb"))
    theirs = package.name.split("_")[1].split("-")[0]
    ours = HOST_C_LIBRARY.split()[1]
    return tuple(map(int, ours.split("."))) > tuple(map(int, theirs.split(".")))


def _is_used(port, name):
    if name.startswith("usr/share/"):
        return name in FIRMWARE
    if "/modules/" in name:
        return name.endswith("modules.builtin") or any(f"/kernel/drivers/{module}.ko" in name for module in port.modules)
    return True


def _build(tree, port, xen, host_is_newer, out):
    hypervisor = built.locate() / "xen" if xen == BUILT else _only(_xens(tree, xen))
    (out / "xen").write_bytes(_unzipped(hypervisor.read_bytes()))
    (out / "linux").write_bytes(_only(tree.glob("boot/vmlinuz-*")).read_bytes())
    archive = cpio.Archive()
    _add_files_of_our_own(archive, port)
    _add_modules(archive, tree, port)
    archive.file("bin/busybox", _only([tree / "bin/busybox", tree / "usr/bin/busybox"]).read_bytes(), 0o755)
    xen_tools = _only(tree.glob("usr/lib/xen-4*/bin"))
    programs = [xen_tools / name for name in (*XEN_TOOLS, *port.tools)] + [tree / name for name in OTHER_TOOLS]
    if (tree / DEVICE_MODEL).exists():
        programs.append(tree / DEVICE_MODEL)
        _add_firmware(archive, tree, xen_tools)
    archive.link("usr/lib/xen", "/" + str(xen_tools.parent.relative_to(tree)))
    _add_programs(archive, tree, port, host_is_newer, programs)
    with open(out / "dom0.cpio", "wb") as file:
        archive.write(file)


def _only(paths):
    found = [path for path in paths if path.exists()]
    if len(found) != 1:
        raise RigError(f"the packages should hold one such file, but hold {found or 'none'}")
    return found[0]


def _xens(tree, xen):
    return [path for path in tree.glob(f"boot/xen-{xen}*") if path.suffix not in (".config", ".efi", ".map")]


def _unzipped(data):
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def _add_files_of_our_own(archive, port):
    for name in ("dev", "proc", "sys", "run", "tmp", "mnt", "job/out", "root", "usr/bin", f"usr/lib/{port.triplet}",
                 "var/lib/xen", "var/lib/xenstored", "var/log/xen/console"):
        archive.directory(name)
    archive.link("var/run", "/run")
    archive.link("var/lock", "/run/lock")
    archive.link("sbin", "bin")
    archive.file("etc/passwd", USERS.encode())
    archive.file("etc/group", GROUPS.encode())
    archive.file("etc/xen/xl.conf", b"")
    archive.file("init", (DOM0 / "init").read_bytes(), 0o755)
    archive.file("agent", (DOM0 / "agent").read_bytes(), 0o755)


def _add_modules(archive, tree, port):
    builtin = _only([*tree.glob("lib/modules/*/modules.builtin"), *tree.glob("usr/lib/modules/*/modules.builtin")])
    kernel, built_in = builtin.parent / "kernel", builtin.read_text(encoding="ascii")
    order = []
    for module in port.modules:
        name = module.split("/")[-1] + ".ko"
        plain, packed = (kernel / "drivers" / (module + end) for end in (".ko", ".ko.xz"))
        if plain.exists():
            archive.file(f"modules/{name}", plain.read_bytes())
        elif packed.exists():
            archive.file(f"modules/{name}", lzma.decompress(packed.read_bytes()))
        elif f"drivers/{module}.ko" in built_in or module in IN_LATER_KERNELS:
            continue
        else:
            raise RigError(f"dom0's kernel has no module {module}")
        order.append(name)
    archive.file("modules/order", ("\n".join(order) + "\n").encode())


def _add_firmware(archive, tree, xen_tools):
    for path in (xen_tools.parent / "boot/hvmloader", *(tree / name for name in FIRMWARE)):
        archive.file(str(path.relative_to(tree)), path.read_bytes())


def _add_programs(archive, tree, port, host_is_newer, programs):
    pending = list(LOADED_LATE)
    for path in programs:
        if not path.exists():
            raise RigError(f"the packages hold no {path.relative_to(tree)}")
        name, data = "/" + str(path.relative_to(tree)), path.read_bytes()
        archive.file(name, data, 0o755)
        archive.link(f"bin/{path.name}", name)
        pending += elf.needed(data)
    places = [tree / name for name in port.library_directories()]
    pending += [*C_RUNTIME, Path(port.loader).name]
    _add_libraries(archive, port, pending, places, [Path("/lib", port.triplet), *places] if host_is_newer else places)


def _add_libraries(archive, port, pending, release, others):
    """Adds libraries and what they need: Xen's from the places `release`, the rest from `others`.

    Where this machine is newer than dom0's release, all but Xen's own are this machine's: later
    libraries serve earlier programs, and so both dom0's tools and what is put into it run.
    """
    libraries = f"lib/{port.triplet}"  # where the loader looks first
    while pending:
        name = pending.pop()
        if f"{libraries}/{name}" in archive:
            continue
        places = release if name.startswith(("libxen", "libxl")) else others
        path = next((place / name for place in places if (place / name).exists()), None)
        if path is None:
            raise RigError(f"no package holds {name}, which dom0's programs need")
        data = path.read_bytes()
        archive.file(f"{libraries}/{name}", data, 0o755)
        pending += elf.needed(data)
    archive.link(port.loader, f"/{libraries}/{Path(port.loader).name}")

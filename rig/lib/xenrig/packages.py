# SPDX-License-Identifier: BSD-3-Clause
"""Debian's packages for one release of Xen: fetched once, kept in the cache, never installed.

The machine's own apt is asked only where its mirror is. Lists, cache and the (empty) package status
are private, so that the packages of another Debian release can be had without touching the machine.
"""

import hashlib
import platform
import re
import subprocess
import tarfile
import urllib.parse
from pathlib import Path

from . import cache
from .errors import NotOffered, RigError
from .port import BUILT, X86

# The Debian release that carries each release of Xen.
DEBIAN = {"4.14": "bullseye", "4.17": "bookworm", "4.20": "trixie"}

# The release whose tools dom0 has, and whose source is taken, where Xen itself is built here.
TOOLS = {BUILT: "4.17"}

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def _wanted(port, xen):
    return [f"xen-hypervisor-{xen}-{port.debian}", f"xen-utils-{xen}", "xen-utils-common", "xenstore-utils",
            "busybox-static", "strace", port.linux]


# The device model of HVM guests, its ROM images, their firmware, and a boot loader for those of tests.
DEVICE_MODEL = ["qemu-system-xen", "qemu-system-data", "seabios", "grub-pc-bin"]


def release(xen):
    """The release of Debian's packages for it."""
    return TOOLS.get(xen, xen)


def directory(xen, port=X86):
    """Directory of all .deb files for this release of Xen, once they have been downloaded."""
    return cache.root() / "packages" / port.key(release(xen))


def ensure(xen, say, port=X86):
    """directory(xen, port), filled when the cache has none."""
    target, xen = directory(xen, port), release(xen)
    if not target.is_dir():
        say(f"downloading Debian {DEBIAN[xen]}'s packages for Xen {xen} on {port.name}")
        with cache.new_directory(target) as work:
            download(port, DEBIAN[xen], _wanted(port, xen), lambda name: _is_used(name, port, xen), work)
    return target


def xen_symbols(xen, into, say):
    """Unpacks Debian's xen-syms of an x86 Xen of the rig: an ELF file with Xen's symbols; its path."""
    package, target = f"xen-hypervisor-{xen}-{X86.debian}-dbg", cache.root() / "packages" / f"symbols-{xen}"
    if not target.is_dir():
        with cache.lock(True, say), cache.new_directory(target) as work:
            download(X86, DEBIAN[xen], [package], lambda name: name == package, work)
    unpack(target, into, lambda name: "/xen-syms-" in name and not name.endswith(".map"))
    return next(Path(into).rglob("xen-syms-*"))


def kernel(suite, into, say):
    """Unpacks the kernel of a release of Debian that no Xen of the rig comes with; its path."""
    target = cache.root() / "packages" / f"linux-{suite}"
    if not target.is_dir():
        say(f"downloading the kernel of Debian {suite}")
        # From Debian 14 on, the kernel itself is in a package beside the one of its name.
        with cache.lock(True, say), cache.new_directory(target) as work:
            download(X86, suite, ["linux-image-cloud-amd64"], lambda name: name.startswith(("linux-image-", "linux-binary-")) and name != "linux-image-cloud-amd64", work)
    unpack(target, into, lambda name: "/vmlinuz" in name)
    return next(Path(into).rglob("vmlinuz*"))


def device_model_directory(xen, port=X86):
    """Directory of the .deb files that HVM guests need besides, once they have been downloaded."""
    return cache.root() / "packages" / port.key(release(xen), hvm=True)


def ensure_device_model(xen, say, port=X86):
    """device_model_directory(xen, port), filled when the cache has none: with what ensure(xen, say, port) lacks."""
    target, xen = device_model_directory(xen, port), release(xen)
    if not target.is_dir():
        say(f"downloading Debian {DEBIAN[xen]}'s device model for Xen {xen}")
        present = {name.split("_")[0] for name in names(directory(xen, port))}
        with cache.new_directory(target) as work:
            download(port, DEBIAN[xen], [*_wanted(port, xen), *DEVICE_MODEL],
                     lambda name: name not in present and (name in DEVICE_MODEL or _is_used(name, port, xen)), work)
    return target


def monitor_directory(port):
    """Directory of the .deb files of QEMU for machines of `port`, with its libraries, once they have been downloaded."""
    return cache.root() / "packages" / f"monitor-{port.name}-{own_release()}"


def ensure_monitor(say, port):
    """monitor_directory(port), filled when the cache has none: of this machine's release, as sysroot.py's libraries are."""
    target = monitor_directory(port)
    if not target.is_dir():
        say(f"downloading Debian {own_release()}'s QEMU for {port.name}")
        with cache.new_directory(target) as work:
            download(port, own_release(), [port.qemu_package],
                     lambda name: name == port.qemu_package or name.startswith(("lib", "zlib")), work)
    return target


def names(debs):
    """File names of the packages: they hold the versions, so they tell one set from another."""
    return sorted(path.name for path in debs.glob("*.deb"))


def unpack(debs, into, keep):
    """Unpacks those files of all packages for which keep(name) is true; names start without '/'."""
    for package in sorted(debs.glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as data:
            with tarfile.open(fileobj=data.stdout, mode="r|") as archive:
                for member in archive:
                    member.name = member.name.removeprefix("./")
                    if not member.isdir() and keep(member.name):
                        archive.extract(member, into, set_attrs=member.isfile())
            data.stdout.read()
        if data.returncode != 0:
            raise RigError(f"{package} cannot be unpacked; remove it with the rig's 'clean' and try again")


def download(port, suite, wanted, is_used, work):
    """Fetches packages of a Debian release, and of what they need those for which is_used(name) is true."""
    with cache.scratch_directory() as scratch:
        options = _private_apt(scratch, suite, port.debian)
        _apt(["apt-get", *options, "update", "-qq"])
        plan = _apt(["apt-get", *options, "install", "--simulate", "-qq", "--no-install-recommends", *wanted])
        chosen = [f"{name}={version}" for name, version in re.findall(r"^Inst (\S+) \((\S+)", plan, re.M)
                  if is_used(name)]
        _apt(["apt-get", *options, "download", "-qq", *chosen], cwd=work)


def download_source(suite, package, work):
    """Fetches the tarballs of a source package of a Debian release."""
    with cache.scratch_directory() as scratch:
        options = _private_apt(scratch, suite, own_architecture(), "deb-src")
        _apt(["apt-get", *options, "update", "-qq"])
        plan = _apt(["apt-get", *options, "source", "--print-uris", "-qq", package])
        # Mirrors may lack the description of the package, which is not needed here: so this may fail.
        said = subprocess.run(["apt-get", *options, "source", "--download-only", "-qq", package], cwd=work,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True).stderr
        missing = [line for line in urllib.parse.unquote(said).splitlines() if " 404 " in line]
        for name, digest in re.findall(r"^'\S+' (\S+[.]tar[.]\w+) \d+ SHA256:(\w+)", plan, re.M):
            if (work / name).exists() and hashlib.sha256((work / name).read_bytes()).hexdigest() == digest:
                continue
            if (work / name).exists() or not any(name in line for line in missing):
                raise RigError(f"{name} cannot be fetched")
            raise NotOffered(f"the mirror has no {name}, though its list has")


def own_architecture():
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()


def _is_used(name, port, xen):
    """dom0 takes the named packages, the real kernel behind its meta package, and any library."""
    if name.startswith(("lib", "zlib")):
        return not name.startswith(("libpython", "libpam", "libperl", "libsystemd-shared"))
    return (name in _wanted(port, xen) or name.startswith("linux-image-")) and name != port.linux


def _private_apt(scratch, suite, architecture, kind="deb"):
    """apt options that use the machine's mirror and nothing else of the machine's state."""
    (scratch / "lists" / "partial").mkdir(parents=True)
    (scratch / "cache" / "archives" / "partial").mkdir(parents=True)
    (scratch / "status").touch()
    source = [f"Types: {kind}", f"URIs: {mirror()}", f"Suites: {suite}", "Components: main"]
    if Path(KEYRING).exists():
        source.append(f"Signed-By: {KEYRING}")
    (scratch / "debian.sources").write_text("\n".join(source) + "\n", encoding="utf-8")
    settings = {
        "Dir::State::Lists": scratch / "lists",
        "Dir::State::status": scratch / "status",
        "Dir::Cache": scratch / "cache",
        "Dir::Etc::sourcelist": scratch / "debian.sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Sandbox::User": "root",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Acquire::Languages": "none",
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def own_release():
    """The Debian release of this machine: "bookworm"."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "")


def mirror():
    """The address from which this machine gets its own Debian release."""
    own = own_release()
    listing = _apt(["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)",
                    "Created-By: Packages"])
    for line in listing.splitlines():
        release, component, address = line.split(" ", 2)
        if release in (own, "stable") and component == "main":
            return address
    raise RigError(f"apt's sources name no mirror for Debian '{own}' main, so Xen's packages cannot be fetched")


def _apt(command, cwd=None):
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        verb = next(word for word in command if word in ("update", "install", "download", "source", "indextargets"))
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RigError(f"'apt-get {verb}' failed: {reason}")
    return done.stdout

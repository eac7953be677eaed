# SPDX-License-Identifier: BSD-3-Clause
"""Libraries to build programs for another architecture: Debian's packages, unpacked in the cache."""

import hashlib
import os
import re
import subprocess
from pathlib import Path

from . import cache, packages

# Libraries of uniprof; see the README's list of what it is built from.
WANTED = ["libc6-dev", "libelf-dev", "libdw-dev", "zlib1g-dev", "liblzma-dev", "libzstd-dev", "liblz4-dev", "libbz2-dev", "liblzo2-dev",
          "libjansson-dev", "libcmocka-dev", "libseccomp-dev", "libxen-dev", "libbpf-dev"]


def directory(port):
    """Another list of packages is another directory."""
    return cache.root() / "sysroots" / f"{port.name}-{hashlib.sha256(' '.join(WANTED).encode()).hexdigest()[:8]}"


def ensure(port, say):
    """directory(port), filled when the cache has none, with a file for `meson setup --cross-file` in it."""
    target = directory(port)
    if not target.is_dir():
        with cache.lock(True, say):
            if not target.is_dir():
                say(f"downloading Debian's development packages for {port.debian}")
                _fill(target, port)
    return target


def _fill(target, port):
    with cache.new_directory(target) as work, cache.scratch_directory() as debs:
        packages.download(port, packages.own_release(), WANTED, lambda name: True, debs)
        for package in sorted(debs.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, work], check=True)
        _repair_links(work)
        (work / "cross.ini").write_text(_cross_file(target, port), encoding="utf-8")


def _repair_links(work):
    """Links are absolute in Debian's packages; here they would lead to this machine's own files."""
    for path in work.rglob("*"):
        if path.is_symlink() and os.readlink(path).startswith("/"):
            inside = work / os.readlink(path).lstrip("/")
            path.unlink()
            path.symlink_to(os.path.relpath(inside, path.parent))


def _cross_file(target, port):
    prefix = port.triplet
    cpu = re.sub("-.*", "", prefix)
    paths = f"{target}/usr/lib/{prefix}/pkgconfig:{target}/usr/share/pkgconfig"
    return f"""\
[binaries]
c = ['{prefix}-gcc', '--sysroot={target}']
ar = '{prefix}-ar'
strip = '{prefix}-strip'
pkgconfig = 'pkg-config'

[properties]
sys_root = '{target}'
pkg_config_libdir = '{paths}'
needs_exe_wrapper = true

[host_machine]
system = 'linux'
cpu_family = '{cpu}'
cpu = '{cpu}'
endian = 'little'
"""

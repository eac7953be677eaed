# SPDX-License-Identifier: BSD-3-Clause
"""Bare Debian systems to install packages in: made by debootstrap once, and kept in the user's cache."""

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from release import ROOT, need, run

sys.path.insert(0, str(ROOT / "rig" / "lib"))

from xenrig import packages  # noqa: E402

# What a package manager keeps for itself.
OWN_FILES = ("dev", "proc", "root", "tmp", "var/cache", "var/log", "var/lib/apt", "var/lib/dpkg", "var/lib/systemd")

# What it leaves as copies of what was before, and what it makes again from what is there.
OWN_NAMES = {"etc/group-", "etc/gshadow-", "etc/passwd-", "etc/shadow-", "etc/subgid-", "etc/subuid-", "etc/ld.so.cache", "etc/.pwd.lock"}


def cache():
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uniprof" / "packages"
    place.mkdir(parents=True, exist_ok=True)
    return place


def base(suite):
    """An archive of a minimal system; skips the test where it is not to be had."""
    archive = cache() / f"{suite}.tar"
    if archive.exists():
        return archive
    work = cache() / f".new-{suite}-{os.getpid()}"
    try:
        done = subprocess.run(["debootstrap", "--variant=minbase", suite, work, packages.mirror()], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise unittest.SkipTest(f"debootstrap makes no {suite}: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
        run("tar", "cf", f"{archive}.new", "-C", work, ".")
        os.rename(f"{archive}.new", archive)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return archive


# Begins a system in namespaces of its own, as the only one of its processes that the machine starts. What is the machine's own,
# /sys and /proc/sys, it cannot write. $1 is its root, $2 the name of its control group, $3 how to mount those of this machine.
BOOT = """
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount $3 group mnt
mkdir mnt/"$2"
echo 0 >mnt/"$2"/cgroup.procs
umount mnt
exec unshare --cgroup bash -euc '
mkdir -p old
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
mount -t sysfs sysfs sys
mount -o remount,ro,bind sys
mount -t tmpfs tmpfs sys/fs/cgroup
case "$1" in
*cgroup2*) mount $1 group sys/fs/cgroup ;;
*) mkdir sys/fs/cgroup/systemd; mount $1 group sys/fs/cgroup/systemd ;;
esac
mount --bind dev dev
pivot_root . old
umount -l /old
exec chroot . env -i container=uniprof PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --unit=multi-user.target --show-status=0
' bash "$3"
"""

UNBOOT = """mount $2 group /mnt; find /mnt/"$1" -depth -type d -exec rmdir {} +"""

# The script of boot(), as a unit.
SCRIPT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash -u /root/script
ExecStopPost=/bin/systemctl exit 0
StandardOutput=file:/root/said
StandardError=inherit
"""


class Chroot:
    """A system of its own in a directory, that is thrown away."""

    def __init__(self, suite, place):
        need({"debootstrap": "debootstrap", "unshare": "util-linux"})
        if os.geteuid():
            raise unittest.SkipTest("only root may use chroot")
        self.suite, self.place = suite, place
        self.archives = cache() / f"archives-{suite}"
        place.mkdir()
        run("tar", "xf", base(suite), "-C", place)
        shutil.copy("/etc/resolv.conf", place / "etc/resolv.conf")
        (place / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
        (place / "usr/sbin/policy-rc.d").chmod(0o755)
        # It is thrown away: nothing need reach the disk.
        (place / "etc/dpkg/dpkg.cfg.d/unsafe").write_text("force-unsafe-io\n", encoding="ascii")
        for file in self.archives.glob("*.deb") if self.archives.exists() else ():
            shutil.copy(file, place / "var/cache/apt/archives")
        try:
            self("apt-get update -qq")
        except AssertionError as error:
            raise unittest.SkipTest(f"the mirror of {suite} cannot be read: {str(error).strip().splitlines()[-1]}") from None

    def __call__(self, command):
        """The output of a shell command, in namespaces that end with it."""
        return run("unshare", "--mount", "--pid", "--fork", f"--mount-proc={self.place}/proc", "chroot", self.place, "env", "-i",
                   "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
                   "bash", "-euc", command)

    def install(self, *words):
        """Installs, and keeps what was downloaded for other runs."""
        said = self(f"apt-get install -y {' '.join(words)}")
        self.archives.mkdir(exist_ok=True)
        for file in (self.place / "var/cache/apt/archives").glob("*.deb"):
            if not (self.archives / file.name).exists():
                shutil.copy(file, self.archives)
        return said

    def boot(self, script):
        """What a script prints that runs under the systemd that is installed here."""
        group = f"uniprof-packages-{os.getpid()}"
        kind = "-t cgroup2" if Path("/sys/fs/cgroup/cgroup.procs").exists() else "-t cgroup -o none,name=systemd"
        (self.place / "root/script").write_text(script, encoding="utf-8")
        (self.place / "etc/systemd/system/script.service").write_text(SCRIPT, encoding="utf-8")
        wants = self.place / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / "script.service").symlink_to("../script.service")
        try:
            done = subprocess.run(["timeout", "--signal=KILL", "90", "unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--kill-child",
                                   "bash", "-euc", BOOT, "bash", self.place, group, kind],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        finally:
            subprocess.run(["unshare", "--mount", "bash", "-c", UNBOOT, "bash", group, kind], check=False, capture_output=True)
        said = self.place / "root/said"
        if not said.exists():
            raise unittest.SkipTest(f"systemd does not run in namespaces here: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
        return said.read_text(encoding="utf-8")

    def files(self):
        """{path: content of those in /etc, else None} of all that no package manager keeps for itself."""
        found = {}
        for folder, folders, names in os.walk(self.place):
            inside = os.path.relpath(folder, self.place)
            folders[:] = [name for name in folders if os.path.normpath(f"{inside}/{name}") not in OWN_FILES]
            for name in names + folders:
                path = os.path.normpath(f"{inside}/{name}")
                file = self.place / path
                if path in OWN_NAMES:
                    continue
                found[path] = file.read_bytes() if path.startswith("etc/") and file.is_file() and not file.is_symlink() else None
        return found

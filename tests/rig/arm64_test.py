#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Xen on arm64, from beginning to end: uniprof is built for arm64 here and profiles guests there."""

import shutil
import subprocess
import unittest

from guestcase import ROOT, GuestCase
from shares_test import APP1, APP2, SharesCase
from xenrig import port, sysroot

BUILD = ROOT / "build-arm64"


def cross_build():
    """uniprof for arm64; SkipTest where this machine cannot make it."""
    if not shutil.which("aarch64-linux-gnu-gcc"):
        raise unittest.SkipTest("no aarch64-linux-gnu-gcc on this machine: uniprof cannot be built for arm64")
    cross = sysroot.ensure(port.ARM64, lambda sentence: None) / "cross.ini"
    if not (BUILD / "build.ninja").exists():
        run("meson", "setup", "--cross-file", cross, "-Dtests=false", BUILD, ROOT)
    run("ninja", "-C", BUILD, "uniprof", "symbolize")


def run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise RuntimeError(result.stdout)


class Arm64Case(GuestCase):
    rig_options = {"arch": "arm64", "icount": True}
    build = BUILD

    @classmethod
    def setUpClass(cls):
        if not shutil.which(port.ARM64.qemu):
            raise unittest.SkipTest(f"no {port.ARM64.qemu} on this machine: Xen for arm64 cannot be booted")
        cross_build()
        super().setUpClass()


class Shares(Arm64Case, SharesCase):
    def profile(self, guest, functions, scale):
        # What xl was given there is no ELF file.
        super().profile(guest, functions, scale, f"-s {guest}.elf")

    def test_app1(self):
        self.profile("app1-arm64-fp", APP1, 36)

    def test_app1_without_frame_pointers(self):
        self.profile("app1-arm64-nofp", APP1, 36)

    def test_app2(self):
        self.profile("app2-arm64-fp", APP2, 6)

    def test_app2_without_frame_pointers(self):
        self.profile("app2-arm64-nofp", APP2, 6)

    def test_app1_of_32_bits(self):
        self.profile("app1-arm32-fp", APP1, 36)

    def test_app2_of_32_bits_without_frame_pointers(self):
        self.profile("app2-arm32-nofp", APP2, 6)

    def test_app1_of_32_bits_in_thumb_without_frame_pointers(self):
        self.profile("app1-arm32t-nofp", APP1, 36)

    def test_app2_of_32_bits_in_thumb(self):
        self.profile("app2-arm32t-fp", APP2, 6)


if __name__ == "__main__":
    unittest.main()

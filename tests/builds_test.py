#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The ways to build and install uniprof that ./check does not use for its other tests."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "rig/lib"))

from xenrig import port, sysroot  # noqa: E402  (the path has to be known first)

# Optimized is what ./check build makes; for the others it is enough that everything compiles and links.
QUICK = ("-Doptimization=0", "-Ddebug=false", "-Dwhole=false")


def run(*command, **more):
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, **more)
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


class Builds(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = Path(directory.name)
        self.build = self.place / "build"

    def make(self, *options, how=QUICK, **more):
        run("meson", "setup", str(self.build), "--werror", "-Dguests=false", "-Dtests=false", *how, *options, **more)
        run("ninja", "-C", str(self.build))

    def version(self):
        return run(str(self.build / "uniprof"), "-V")

    def test_without_all_that_is_optional_the_rest_builds_and_says_so(self):
        self.make(*(f"-D{option}=disabled" for option in ("xen", "capstone", "iberty", "debuginfod", "bpf", "push", "screen")))
        for said in "without Xen", "without a disassembler", "demangles OCaml only", "without debuginfod", "without BPF", "without push", "without a live screen":
            self.assertIn(said, self.version())
        linked = run("ldd", str(self.build / "uniprof"))
        self.assertNotIn("libxen", linked)
        self.assertNotIn("libncurses", linked)
        self.refuses(4, "built without Xen", "record", "xen:1")
        self.refuses(2, "top -b", "top", "1")

    def refuses(self, status, sentence, *words):
        done = subprocess.run([self.build / "uniprof", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status)
        self.assertIn(sentence, done.stderr)

    def test_where_xens_libraries_are_missing_they_are_left_out(self):
        # A pkg-config that finds nothing of Xen: as on a machine without libxen-dev.
        wrapper = self.place / "pkg-config"
        wrapper.write_text('#!/bin/sh\ncase "$*" in *xen*) exit 1;; esac\nexec pkg-config "$@"\n')
        wrapper.chmod(0o755)
        self.make(env=dict(os.environ, PKG_CONFIG=str(wrapper)))
        self.assertIn("without Xen", self.version())

    def test_with_libxenctrl(self):
        self.build = ROOT / "build-xenctrl"
        self.assertIn("with Xen (libxenctrl)", self.version())
        self.assertIn("libxenctrl", run("ldd", str(self.build / "uniprof")))

    def test_with_a_xen_source_tree(self):
        # The layout of a built Xen tree, with the system's own libraries in it.
        tree = self.place / "xen"
        headers = Path("/usr/include")
        libraries = Path("/usr/lib/x86_64-linux-gnu")
        include = tree / "tools/include"
        include.mkdir(parents=True)
        (include / "xen").symlink_to(headers / "xen")
        for name in headers.glob("xen*.h"):
            (include / name.name).symlink_to(name)
        for directory, library in ("call", "xencall"), ("foreignmemory", "xenforeignmemory"), ("store", "xenstore"):
            place = tree / "tools/libs" / directory
            place.mkdir(parents=True)
            (place / f"lib{library}.so").symlink_to(libraries / f"lib{library}.so")
        self.make(f"-Dxen_tree={tree}")
        self.assertIn("with Xen (libxencall)", self.version())

    def test_with_clang_and_without_a_filter_on_system_calls(self):
        self.make("-Dseccomp=disabled", env=dict(os.environ, CC="clang"))
        self.assertIn("gives up root, without a filter on system calls", self.version())
        self.assertNotIn("libseccomp", run("ldd", str(self.build / "uniprof")))

    @unittest.skipUnless(shutil.which("arm-linux-gnueabihf-gcc"), "no compiler for 32-bit Arm (gcc-arm-linux-gnueabihf)")
    def test_for_32_bit_arm(self):
        root = sysroot.ensure(port.ARMHF, lambda sentence: None)
        self.make("--cross-file", str(root / "cross.ini"))
        if not shutil.which("qemu-arm"):
            self.skipTest("uniprof is built for 32-bit Arm; no qemu-arm to run it (qemu-user)")
        self.assertIn("with Xen", run("qemu-arm", "-L", str(root), str(self.build / "uniprof"), "-V"))

    def test_release_build_installs_what_users_expect(self):
        self.make("--prefix=/usr", how=["--buildtype=release"])
        run("meson", "install", "-C", str(self.build), "--no-rebuild", env=dict(os.environ, DESTDIR=str(self.place / "root")))
        installed = {str(path.relative_to(self.place / "root")) for path in (self.place / "root").rglob("*") if path.is_file()}
        for path in "usr/bin/uniprof", "usr/bin/symbolize", "usr/share/man/man1/uniprof.1", "usr/share/man/man1/uniprof-record.1", "usr/share/bash-completion/completions/uniprof", "usr/share/man/man1/symbolize.1":
            self.assertIn(path, installed)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The ways to build and install uniprof that ./check does not use for its other tests."""

import json
import os
import re
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

OPTIONAL = "capstone", "iberty", "debuginfod", "bpf", "push", "screen", "seccomp"


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

    def set_up(self, *options, **more):
        run("meson", "setup", str(self.build), "--werror", "--prefix=/usr", "-Dguests=false", "-Dtests=false", *QUICK, *options, **more)

    def make(self, *options, **more):
        self.set_up(*options, **more)
        run("ninja", "-C", str(self.build))

    def version(self):
        return run(str(self.build / "uniprof"), "-V")

    def test_without_all_that_is_optional_the_rest_builds_and_says_so(self):
        """By clang, which builds all of it with sanitizers in another step, but for the filter and what gives up root."""
        self.make(*(f"-D{option}=disabled" for option in ("xen", *OPTIONAL)), env=dict(os.environ, CC="clang"))
        for said in ("without Xen", "without a disassembler", "demangles OCaml only", "without debuginfod", "without BPF", "without push", "without a live screen",
                     "gives up root, without a filter on system calls"):
            self.assertIn(said, self.version())
        linked = run("ldd", str(self.build / "uniprof"))
        for library in "libxen", "libncurses", "libseccomp":
            self.assertNotIn(library, linked)
        self.refuses(4, "built without Xen", "record", "xen:1")
        self.refuses(2, "top -b", "top", "1")
        self.check_installed()
        self.check_where_xens_libraries_are_missing(self.rules())

    def check_installed(self):
        """Users find what they expect."""
        root = self.place / "root"
        run("meson", "install", "-C", str(self.build), "--no-rebuild", env=dict(os.environ, DESTDIR=str(root)))
        for path in ("bin/uniprof", "bin/symbolize", "share/man/man1/uniprof.1", "share/man/man1/uniprof-record.1", "share/man/man1/symbolize.1",
                     "share/bash-completion/completions/uniprof"):
            self.assertTrue((root / "usr" / path).is_file(), path)

    def check_where_xens_libraries_are_missing(self, without):
        """Nobody has to say so: what is to be built is the same as without Xen."""
        # A pkg-config that finds nothing of Xen: as on a machine without libxen-dev.
        wrapper = self.place / "pkg-config"
        wrapper.write_text('#!/bin/sh\ncase "$*" in *xen*) exit 1;; esac\nexec pkg-config "$@"\n')
        wrapper.chmod(0o755)
        shutil.rmtree(self.build)
        self.set_up(*(f"-D{option}=disabled" for option in OPTIONAL), env=dict(os.environ, CC="clang", PKG_CONFIG=str(wrapper)))
        self.assertEqual(self.rules(), without)

    def rules(self):
        """All that is done to build, but for the options as they are given to tools of meson's own."""
        return re.sub(r"-Dxen=\w+", "", (self.build / "build.ninja").read_text(encoding="utf-8"))

    def refuses(self, status, sentence, *words):
        done = subprocess.run([self.build / "uniprof", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status)
        self.assertIn(sentence, done.stderr)

    def test_with_libxenctrl(self):
        self.build = ROOT / "build-xenctrl"
        self.assertIn("with Xen (libxenctrl)", self.version())
        self.assertIn("libxenctrl", run("ldd", str(self.build / "uniprof")))

    def test_with_a_xen_source_tree(self):
        """Its headers and libraries are those that are taken; all else is built as ever."""
        # The layout of a built Xen tree, with the system's own libraries in it.
        tree = self.place / "xen"
        headers = Path("/usr/include")
        libraries = Path("/usr/lib/x86_64-linux-gnu")
        include = tree / "tools/include"
        include.mkdir(parents=True)
        (include / "xen").symlink_to(headers / "xen")
        for name in headers.glob("xen*.h"):
            (include / name.name).symlink_to(name)
        libraries_used = ("call", "xencall"), ("foreignmemory", "xenforeignmemory"), ("store", "xenstore")
        for directory, library in libraries_used:
            place = tree / "tools/libs" / directory
            place.mkdir(parents=True)
            (place / f"lib{library}.so").symlink_to(libraries / f"lib{library}.so")
        self.set_up(f"-Dxen_tree={tree}")
        commands = json.loads((self.build / "compile_commands.json").read_text(encoding="utf-8"))
        own = [command for command in commands if "target/xen/" in command["file"]]
        self.assertGreater(len(own), 5)
        for command in own:
            self.assertIn(f"-I{include}", command["command"])
        run("ninja", "-C", str(self.build), *(command["output"] for command in own))
        linked = run("ninja", "-C", str(self.build), "-t", "commands", "uniprof").splitlines()[-1]
        for directory, library in libraries_used:
            self.assertIn(f" {tree}/tools/libs/{directory}/lib{library}.so", linked)

    @unittest.skipUnless(shutil.which("arm-linux-gnueabihf-gcc"), "no compiler for 32-bit Arm (gcc-arm-linux-gnueabihf)")
    def test_for_32_bit_arm(self):
        root = sysroot.ensure(port.ARMHF, lambda sentence: None)
        self.make("--cross-file", str(root / "cross.ini"))
        if not shutil.which("qemu-arm"):
            self.skipTest("uniprof is built for 32-bit Arm; no qemu-arm to run it (qemu-user)")
        self.assertIn("with Xen", run("qemu-arm", "-L", str(root), str(self.build / "uniprof"), "-V"))


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: BSD-3-Clause
"""uniprof and programs of its tests, built here for the machines of another architecture that the rig emulates."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from . import sysroot
from .errors import RigError

ROOT = Path(__file__).resolve().parents[3]


def compiler(port):
    return f"{port.triplet}-gcc"


def can_build(port):
    return shutil.which(compiler(port)) is not None


def build(port, targets, say=lambda sentence: None):
    """The build directory for `port`, beside that of this machine, with its `targets` up to date."""
    if not can_build(port):
        raise RigError(f"no {compiler(port)} on this machine: uniprof cannot be built for {port.name}")
    directory = ROOT / f"build-{port.name}"
    cross = sysroot.ensure(port, say) / "cross.ini"
    directory.mkdir(exist_ok=True)
    with _locked(directory):
        if not (directory / "build.ninja").exists():
            _run("meson", "setup", "--cross-file", cross, directory, ROOT)
        if "sample_cost" not in (directory / "build.ninja").read_text(encoding="utf-8"):
            # It was set up without the tests' programs.
            _run("meson", "configure", "-Dtests=true", directory)
        _run("ninja", "-C", directory, *targets)
    return directory


@contextlib.contextmanager
def _locked(directory):
    """Meson and ninja do not wait for each other."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        raise RigError(result.stdout)

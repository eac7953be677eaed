# SPDX-License-Identifier: BSD-3-Clause
"""uniprof and programs of its tests, built here for the machines of another architecture that the rig emulates."""

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
    if not (directory / "build.ninja").exists():
        _run("meson", "setup", "--cross-file", cross, directory, ROOT)
    # One that was set up without has none of the tests' programs.
    _run("meson", "configure", "-Dtests=true", directory)
    _run("ninja", "-C", directory, *targets)
    return directory


def _run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        raise RigError(result.stdout)

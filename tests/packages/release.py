# SPDX-License-Identifier: BSD-3-Clause
"""A release made of this checkout as it is, changes that are not committed included, and Debian packages made of that."""

import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {"dpkg-buildpackage": "dpkg-dev", "dh": "debhelper", "meson": "meson", "git": "git"}

# A user of git that any machine has, and a moment that is the same in each run.
COMMIT = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
          for what, value in (("NAME", "Release test"), ("EMAIL", "release@uniprof.invalid"), ("DATE", "2026-11-25T12:00:00+0000"))}


def need(programs):
    """Skips where one of these programs (with its package) is missing."""
    missing = [package for program, package in programs.items() if not shutil.which(program)]
    if missing:
        raise unittest.SkipTest(f"without {', '.join(missing)}")


def run(*command, cwd=None, **environment):
    """The output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=dict(os.environ, **environment), check=False)
    text = done.stdout.decode("utf-8", "backslashreplace")
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: status {done.returncode}\n{text[-6000:]}")
    return text


def version():
    """The project's version, from the one place that has it."""
    return re.search(r"^ *version: '([^']+)'", (ROOT / "meson.build").read_text(encoding="utf-8"), re.MULTILINE)[1]


def tarball(work):
    """What `meson dist` makes of a clone with nothing but the files of this checkout."""
    clone = work / "clone"
    run("git", "clone", "-q", "--shared", "--no-checkout", ROOT, clone)
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, names):
        source, place = ROOT / name, clone / name
        if source.exists() or source.is_symlink():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place, follow_symlinks=False)
    run("git", "add", "--all", cwd=clone)
    run("git", "commit", "-q", "--allow-empty", "-m", "Release", cwd=clone, **COMMIT)
    run("meson", "setup", "build", "-Dtests=false", "-Dguests=false", cwd=clone)
    run("meson", "dist", "-C", "build", "--no-tests", "--formats", "xztar", cwd=clone)
    return clone / "build" / "meson-dist" / f"uniprof-{version()}.tar.xz"


def packages(archive, work, *before, parts="full", **environment):
    """Unpacks a release in this directory and builds its packages there; `before` stands before the command. (name: file)."""
    work.mkdir(parents=True)
    run("tar", "xf", archive, cwd=work)
    log = run(*before, "dpkg-buildpackage", f"--build={parts}", "-us", "-uc", f"-j{os.cpu_count() or 1}", cwd=work / f"uniprof-{version()}", **environment)
    (work / "log").write_text(log, encoding="utf-8")
    return {file.name.partition("_")[0]: file for file in work.glob("*.deb")}

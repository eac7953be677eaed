# SPDX-License-Identifier: BSD-3-Clause
"""The rig's cache directory: where it is, who may write, and how things appear in it at once.

Everything in the cache is a directory that was filled under a temporary name and renamed, so that
whatever is there is whole. Writers hold the lock exclusively; readers hold it shared only while
they open files, because an open or mapped file outlives its removal.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

TEMPORARY = ".new-"


def root():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = Path(base) / "uniprof" / "rig"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def lock(exclusive, say):
    """Serialises the rigs of one user; the kernel drops the lock when its holder dies."""
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    with open(root() / "lock", "a") as handle:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another rig that is at the cache")
            fcntl.flock(handle, kind)
        if exclusive:
            _sweep()
        yield


@contextlib.contextmanager
def scratch_directory():
    """A directory in the cache that is removed when the block ends. Needs the exclusive lock."""
    work = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=root()))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def new_directory(path):
    """Yields an empty directory that becomes `path` when the block ends well. Needs the exclusive lock."""
    with scratch_directory() as work:
        (work / "new").mkdir()
        yield work / "new"
        remove(path)
        path.parent.mkdir(exist_ok=True)
        (work / "new").rename(path)


def remove(path):
    """Removes a directory of the cache if it is there; it vanishes under its name before it is taken apart."""
    with scratch_directory() as work, contextlib.suppress(FileNotFoundError):
        path.rename(work / "old")


def _sweep():
    """Removes what killed writers left behind."""
    for left in root().glob(TEMPORARY + "*"):
        shutil.rmtree(left, ignore_errors=True)

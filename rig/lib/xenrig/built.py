# SPDX-License-Identifier: BSD-3-Clause
"""A Xen that is built here from Debian's source, with what Debian's own lacks: 32-bit PV guests and XSM/Flask.

dom0's tools are those of Debian's package of the same release. A build takes some 265 seconds of a
CPU, is kept in the cache under a hash of the source and what was configured, and is made outside of
the cache, so that other rigs go on meanwhile.
"""

import fcntl
import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from . import cache, packages
from .errors import RigError
from .port import BUILT

RELEASE = packages.TOOLS[BUILT]
CONFIGURED = ("EXPERT", "PV32", "XSM", "XSM_FLASK", "XSM_FLASK_POLICY")
NEEDED = {"gcc": "gcc", "ld": "binutils", "make": "make", "flex": "flex", "bison": "bison", "m4": "m4",
          "checkpolicy": "checkpolicy", "xz": "xz-utils"}

# Sources of policies in Xen's source.
POLICY_PARTS = ("tools/flask/policy", "xen/xsm/flask/policy")


def _sources():
    return cache.root() / "packages" / f"source-{RELEASE}"


def locate():
    """The directory with `xen` and `policy`; None while it is not in the cache."""
    tarball = next(_sources().glob("*.orig.tar.xz"), None)
    directory = tarball and cache.root() / "hypervisors" / f"{RELEASE}-{_digest(tarball)}"
    return directory if directory and directory.is_dir() else None


def ensure(say):
    """locate(), made if need be. Takes the cache's lock itself."""
    with open(cache.root() / "building", "a", encoding="ascii") as building:
        fcntl.flock(building, fcntl.LOCK_EX)
        if locate():
            return
        missing = [f"{tool} (package {package})" for tool, package in NEEDED.items() if not shutil.which(tool)]
        if missing:
            raise RigError(f"to build Xen, this machine lacks {', '.join(missing)}; install with 'apt-get install'")
        with cache.lock(True, say):
            _download(say)
        tarball = next(_sources().glob("*.orig.tar.xz"))
        say(f"building Xen {RELEASE} from Debian's source, which takes some minutes")
        with tempfile.TemporaryDirectory() as work:
            _make(tarball, Path(work))
            with cache.lock(True, say):
                _keep(Path(work), cache.root() / "hypervisors" / f"{RELEASE}-{_digest(tarball)}")


def policies(module, changes):
    """Policies for this Xen, {name: bytes}: its own and a module's text, with the rules changed by a function ({name: function})."""
    made = {}
    with tempfile.TemporaryDirectory() as work:
        rules, policy, tree = (Path(work) / name for name in ("policy.conf", "policy", "tree"))
        shutil.copytree(locate() / "policy", tree)
        modules = tree / "tools/flask/policy/modules"
        (modules / "more.te").write_text(module, encoding="ascii")
        with open(modules / "modules.conf", "a", encoding="ascii") as listed:
            listed.write("more = on\n")
        _run(_make_policy(tree, work, rules))
        whole = rules.read_text(encoding="ascii")
        for name, change in changes.items():
            rules.write_text(change(whole), encoding="ascii")
            _run(_make_policy(tree, work, policy))
            made[name] = policy.read_bytes()
            # Or make may take it for the next one, whose rules are as old by its clock.
            policy.unlink()
    return made


def _make_policy(tree, into, target):
    return ["make", "-s", "-f", "Makefile.common", "-C", str(tree / "tools/flask/policy"), f"FLASK_BUILD_DIR={into}",
            f"POLICY_FILENAME={into}/policy", str(target)]


def _digest(tarball):
    return hashlib.sha256(tarball.read_bytes() + " ".join(CONFIGURED).encode()).hexdigest()[:12]


def _download(say):
    if not _sources().is_dir():
        say(f"downloading Debian {packages.DEBIAN[RELEASE]}'s source of Xen {RELEASE}")
        with cache.new_directory(_sources()) as work:
            packages.download_source(packages.DEBIAN[RELEASE], "xen", work)


def _make(tarball, work):
    with tarfile.open(tarball) as archive:
        archive.extractall(work)
    tree = next(path for path in work.iterdir() if path.is_dir())
    tree.rename(work / "xen")
    xen = work / "xen" / "xen"
    _run(["make", "-s", "-C", str(xen), "defconfig"])
    with open(xen / ".config", "a", encoding="ascii") as config:
        config.writelines(f"CONFIG_{name}=y\n" for name in CONFIGURED)
    _run(["make", "-s", "-C", str(xen), "olddefconfig"])
    _run(["make", "-s", "-C", str(xen), f"-j{os.cpu_count()}"])


def _keep(work, directory):
    with cache.new_directory(directory) as kept:
        (kept / "xen").write_bytes(gzip.decompress((work / "xen" / "xen" / "xen.gz").read_bytes()))
        for part in POLICY_PARTS:
            shutil.copytree(work / "xen" / part, kept / "policy" / part)
    for old in directory.parent.iterdir():
        if old != directory:
            cache.remove(old)


def _run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        reason = [line for line in done.stderr.splitlines() if line.strip()][-3:] or ["no reason given"]
        raise RigError(f"'{' '.join(command[:6])}' failed: {' / '.join(reason)}")

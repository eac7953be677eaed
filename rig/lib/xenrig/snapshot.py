# SPDX-License-Identifier: BSD-3-Clause
"""A machine that is ready at once: booted one time, saved, and restored from then on.

A snapshot is two files. `ram` is the memory itself, a sparse file that the booting QEMU shares and
every restored one maps privately, so that restoring copies nothing and several may run. `state` is
the rest of the machine. The directory's name tells everything that went in.
"""

import hashlib
import time

from . import cache, image, machine
from .channel import Channel, Lost
from .errors import RigError, RigTimeout
from .qemu import Qemu

BOOT_SECONDS = 240
ANSWER_SECONDS = 8  # a restored machine answers within a second, unless it hangs
SETTLE_SECONDS = 1  # from dom0's first answer to its being idle
RESTORES = 3


def start(options, say, interactive=False):
    """(Qemu, Channel) of a machine whose dom0 answers; makes the snapshot when there is none."""
    machine.check_tools()
    for attempt in range(1, RESTORES + 1):
        directory = _ensure(options, say)
        with cache.lock(exclusive=False):
            if not directory.is_dir():
                continue
            qemu = _restore(options, directory, interactive)
            channel = _answering(qemu, ANSWER_SECONDS)
        if channel:
            return qemu, channel
        say(f"the restored machine does not answer (attempt {attempt} of {RESTORES})")
        if attempt == RESTORES - 1:
            say("booting it anew")
            create(options, say)
    raise RigError(f"no restored machine answers; its console ended with:\n{qemu.last_words()}")


def create(options, say):
    """Boots and saves a machine, in place of the one that may be there."""
    with cache.lock(exclusive=True):
        _create(options, _directory(options, image.ensure(options.xen, say)), say)


def _ensure(options, say):
    with cache.lock(exclusive=False):
        boot_from = image.locate(options.xen)
        if boot_from and (directory := _directory(options, boot_from)).is_dir():
            return directory
    with cache.lock(exclusive=True):
        directory = _directory(options, image.ensure(options.xen, say))
        if not directory.is_dir():
            _create(options, directory, say)
        return directory


def _directory(options, boot_from):
    ingredients = [machine.qemu_version(), boot_from.name, *machine.command(options, "ram", False, "agent", "console"),
                   *machine.boot_arguments(boot_from, options)]
    digest = hashlib.sha256("\0".join(ingredients).encode()).hexdigest()[:12]
    return cache.root() / "snapshots" / f"{options.name()}-{digest}"


def _create(options, directory, say):
    say(f"booting Xen {options.xen} with {options.cpus} CPU(s){', counting instructions' if options.icount else ''}")
    boot_from = image.locate(options.xen)
    with cache.new_directory(directory) as work:
        qemu = Qemu(lambda agent, console: machine.command(options, work / "ram", False, agent, console)
                    + machine.boot_arguments(boot_from, options))
        if not _answering(qemu, BOOT_SECONDS):
            raise RigError(f"Xen {options.xen} does not boot; its console ended with:\n{qemu.last_words()}")
        try:
            time.sleep(SETTLE_SECONDS)
            with open(work / "state", "wb") as state:
                qemu.save(state)
        finally:
            qemu.kill()
    for old in directory.parent.glob(f"{options.name()}-????????????"):
        if old != directory:
            cache.remove(old)


def _restore(options, directory, interactive):
    qemu = Qemu(lambda agent, console: machine.command(options, directory / "ram", True, agent, console)
                + ["-incoming", "defer"], interactive)
    with open(directory / "state", "rb") as state:
        qemu.load(state)
    return qemu


def _answering(qemu, seconds):
    """The channel to dom0, whose clock is set on the way; ends QEMU and is None if dom0 keeps silent."""
    channel = Channel(qemu.agent)
    try:
        channel.call(b"date -s @%d" % time.time(), timeout=seconds)
        return channel
    except (RigTimeout, Lost):
        qemu.kill()
        return None
    except BaseException:
        qemu.kill()
        raise

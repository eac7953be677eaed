# SPDX-License-Identifier: BSD-3-Clause
"""A machine that is ready at once: booted one time, saved, and restored from then on.

A snapshot is two files. `ram` is the memory itself, a sparse file that the booting QEMU shares and
every restored one maps privately, so that restoring copies nothing and several may run. `state` is
the rest of the machine. The directory's name tells everything that went in.
"""

import hashlib
import time
from pathlib import Path

from . import cache, machine
from .channel import Channel, Lost
from .errors import RigError, RigTimeout
from .qemu import Qemu

BOOT_SECONDS = 240
ANSWER_SECONDS = 4  # times the attempt; a restored machine answers within a second, unless it hangs
SETTLE_SECONDS = 1  # from the first answer to being idle
RESTORES = 3
BOOTS = 8
# While they boot, Xen and Linux measure by a timer how fast the processor's counter is. On a busy machine, QEMU may stand still
# in between: then the counter is taken to be faster than it is, and time goes by too slowly, by a factor of ten or
# twenty, in all machines that are restored from this one.
WATCH_SECONDS = 2
CLOCK_ERROR = 0.1


class WrongClock(Exception):
    """Time goes by at another speed (the argument) than here."""


def start(options, say, interactive=False, qmp=None):
    """(Qemu, Channel) of a machine (machine.Machine) that answers; makes the snapshot when there is none."""
    options.check_tools()
    options.build(say)
    for attempt in range(1, RESTORES):
        try:
            return _restored(options, say, interactive, qmp, ANSWER_SECONDS * attempt)
        except RigError as error:
            say(f"attempt {attempt} of {RESTORES} to restore a machine failed: {error}")
    create(options, say)
    return _restored(options, say, interactive, qmp, ANSWER_SECONDS * RESTORES)


def create(options, say):
    """Boots and saves a machine, in place of the one that may be there."""
    options.build(say)
    with cache.lock(True, say):
        _create(options, options.ensure(say), say)


def _ensure(options, say):
    with cache.lock(False, say):
        boot_from = options.locate()
        if boot_from and _directory(options, boot_from).is_dir():
            return _directory(options, boot_from)
    with cache.lock(True, say):
        boot_from = options.ensure(say)
        if not _directory(options, boot_from).is_dir():
            _create(options, boot_from, say)
        return _directory(options, boot_from)


def _directory(options, boot_from):
    ingredients = [machine.qemu_version(options.port), boot_from.name, *options.command("ram", False, "agent", "console"),
                   *options.boot_arguments(Path("image")), "clock checked", *_processor()]
    digest = hashlib.sha256("\0".join(ingredients).encode()).hexdigest()[:12]
    return cache.root() / "snapshots" / f"{options.name()}-{digest}"


def _processor():
    """Properties that decide the speed of the processor's counter."""
    found = [line for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
             if line.startswith("model name")]
    return found[:1]


def _uptime(channel):
    """The system's, in seconds, and when that was, here: (earliest, latest)."""
    before = time.monotonic()
    _, output = channel.call(b"cat /proc/uptime", timeout=BOOT_SECONDS)
    return float(output.split()[0]), before, time.monotonic()


def _speed(channel):
    """Speed of time there: 1, unless it is certain that it differs."""
    first, first_before, first_after = _uptime(channel)
    time.sleep(WATCH_SECONDS)
    last, last_before, last_after = _uptime(channel)
    passed, least, most = last - first, last_before - first_after, last_after - first_before
    return min(passed / least, 1) if passed < least else max(passed / most, 1)


def _create(options, boot_from, say):
    for _ in range(BOOTS):
        try:
            _boot_and_save(options, boot_from, say)
            return
        except WrongClock as wrong:
            say(f"time goes by {wrong.args[0]:.2f} times as fast there as here, because this machine was busy: once more")
    raise RigError(f"{options.system}'s clock is wrong after each of {BOOTS} boots: this machine is too busy")


def _boot_and_save(options, boot_from, say):
    directory = _directory(options, boot_from)
    say(f"booting {options.title()} with {options.cpus} CPU(s){', counting instructions' if options.icount else ''}")
    with cache.new_directory(directory) as work:
        qemu = Qemu(lambda agent, console: options.command(work / "ram", False, agent, console)
                    + options.boot_arguments(boot_from))
        try:
            channel = _greet(options, qemu, BOOT_SECONDS)
            time.sleep(SETTLE_SECONDS)
            # With counted instructions, time is theirs.
            speed = 1 if options.icount else _speed(channel)
            if abs(speed - 1) > CLOCK_ERROR:
                raise WrongClock(speed)
            options.prepare(channel)
            _do(channel, options.before_save)
            with open(work / "state", "wb") as state:
                qemu.save(state)
        finally:
            qemu.kill()
    for old in directory.parent.glob(f"{options.name()}-????????????"):
        if old != directory:
            cache.remove(old)


def _restored(options, say, interactive, qmp, seconds):
    directory = _ensure(options, say)
    with cache.lock(False, say):
        return _restore(options, directory, interactive, qmp, seconds)


def _restore(options, directory, interactive, qmp, seconds):
    qemu = Qemu(lambda agent, console: options.command(directory / "ram", True, agent, console)
                + ["-incoming", "defer"], interactive, qmp)
    try:
        with open(directory / "state", "rb") as state:
            qemu.load(state)
        channel = _greet(options, qemu, seconds)
        _do(channel, options.after_restore)
        return qemu, channel
    except BaseException:
        qemu.kill()
        raise


def _do(channel, commands):
    if commands:
        status, output = channel.call(commands, timeout=BOOT_SECONDS)
        if status:
            raise RigError(f"'{commands.decode()}' ended with status {status}:\n{output.decode('utf-8', 'backslashreplace')}")


def _greet(options, qemu, seconds):
    """The channel to the system that answers, whose clock is set on the way."""
    channel = Channel(qemu.agent)
    try:
        channel.call(b"date -s @%d" % time.time(), timeout=seconds)
    except (RigTimeout, Lost) as error:
        raise RigError(f"{options.system} does not answer ({error}); the console ended with:\n{qemu.last_words()}") from error
    return channel

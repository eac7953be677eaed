# SPDX-License-Identifier: BSD-3-Clause
"""The command line of rig/xen-x86, rig/xen-arm64, rig/kvm-x86 and rig/kvm-arm64."""

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from . import cache, kvm_image, shell, snapshot, xen
from .errors import NotOffered, RigError, RigTimeout
from .kvm import Kvm, Preparation
from .port import BUILT, PORTS, X86
from .rig import Rig

TIMEOUT_STATUS = 124
FAILURE_STATUS = 125
# As test runners have it for a test that cannot run.
SKIP_STATUS = 77

XEN_DESCRIPTION = """\
Boots a real Xen with a small dom0 under QEMU (no virtualization hardware needed) and runs things in it.
The first use of an option combination downloads Debian's packages, boots and keeps a snapshot; from
then on dom0 answers in a fraction of a second. Every run starts from the same fresh machine.
"""

KVM_DESCRIPTION = """\
Boots Debian's kernel with KVM under QEMU (no virtualization hardware needed) and runs things in it: guests,
too, by any monitor, QEMU among them. The first use of an option combination downloads Debian's packages,
boots and keeps a snapshot; from then on the host answers in a fraction of a second. Every run starts
from the same fresh machine.
"""

XEN_EXAMPLES = """\
examples:
  rig/xen-{arch} run -c 'xl list'
  rig/xen-{arch} run --out results test.sh build/uniprof app.elf guest.cfg=configs/pv.cfg
  rig/xen-{arch} run --xen 4.20 --cpus 2 -c 'xl info'
  rig/xen-{arch} shell build/uniprof
"""

KVM_EXAMPLES = """\
examples:
  rig/kvm-{arch} run -c 'dmesg | grep -i kvm'
  rig/kvm-{arch} run --kernel 6.12 --cpus 2 --out results test.sh build/uniprof app.elf
  rig/kvm-{arch} run --prepare './monitor guest 2 >log & sleep 1' -c 'uniprof list' build/uniprof monitor guest
  rig/kvm-{arch} shell build/uniprof
"""

USE = """\

FILES are host files or directories, NAME=FILE to call one differently in there. They are in the script's
working directory (/job), which is first on PATH; shared libraries of programs come along. What the script
writes to ./out (also $OUT) is brought to the directory given by --out.

exit status of 'run': the script's own; 124 when it took longer than --timeout; 125 when the rig failed
(a lost or hung QEMU, a boot that failed, a missing tool); 77 when a mirror lacks a file that it lists. Standard
error explains the last two.
"""


class _Xen:
    """The command line of rig/xen-ARCH."""

    machine = xen.Xen
    description, examples = XEN_DESCRIPTION, XEN_EXAMPLES
    cpus = "CPUs (1); with 2, dom0 stays on CPU 0 and guests can have CPU 1: cpus='1'"
    memory = f", of which dom0 has {xen.DOM0_MEGABYTES}"
    prepares = False

    @staticmethod
    def add_options(group, arch):
        group.add_argument("--xen", choices=PORTS[arch].releases, default="4.17", help="release of Xen (4.17)")
        if PORTS[arch] is X86:
            group.add_argument("--hvm", action="store_true",
                               help=f"dom0 ({xen.HVM_MEGABYTES} MiB) has a device model: guests of type 'hvm', too")
        if BUILT in PORTS[arch].releases:
            group.add_argument("--flask", choices=xen.FLASK, default="", help=f"with --xen {BUILT}: a policy decides who may do what")

    @staticmethod
    def chosen(options):
        return {name: getattr(options, name) for name in ("arch", "xen", "hvm", "flask") if name in options}


class _Kvm:
    """The command line of rig/kvm-ARCH."""

    machine = Kvm
    description, examples = KVM_DESCRIPTION, KVM_EXAMPLES
    cpus, memory = "CPUs (1)", ""
    prepares = True

    @staticmethod
    def add_options(group, arch):
        group.add_argument("--kernel", choices=kvm_image.kernels(PORTS[arch]), default=Kvm.kernel, help=f"the host's Linux ({Kvm.kernel})")
        if PORTS[arch] is X86:
            group.add_argument("--shadow", action="store_true", help="no nested paging: KVM keeps page tables for the guest")
        else:
            group.add_argument("--nvhe", action="store_true", help="the host's kernel runs at EL1, as on processors without VHE")
        group.add_argument("--prepare", metavar="COMMANDS",
                           help="run these with all files before the snapshot is made; guests that they leave running go on in each run")

    @staticmethod
    def chosen(options):
        prepared = Preparation("prepared", tuple(_named(options.files).items()), options.prepare) if options.prepare else None
        return {"arch": options.arch, "kernel": options.kernel, "npt": not getattr(options, "shadow", False),
                "vhe": not getattr(options, "nvhe", False), "prepared": prepared}


KINDS = {"xen": _Xen, "kvm": _Kvm}


def main(kind, arch, arguments=None):
    options = _parser(kind, arch).parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return options.verb(options)
    except RigTimeout as error:
        _say(f"the script was stopped: {error}")
        return TIMEOUT_STATUS
    except NotOffered as error:
        _say(error)
        return SKIP_STATUS
    except RigError as error:
        _say(error)
        return FAILURE_STATUS
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(options):
    """Runs a script in the machine."""
    files = list(options.files)
    if options.commands is not None:
        script = options.commands
    elif files:
        script = _read_script(files.pop(0))
    else:
        raise RigError("which script? Name one, or give commands with -c")
    named = _named(files)
    with Rig(_say, qmp=options.qmp, **_machine(options)) as rig:
        if named and not getattr(options, "prepare", None):
            rig.put_as(named)
        result = rig.run(script, options.timeout, sink=_stdout)
        if options.out is not None:
            Path(options.out).mkdir(parents=True, exist_ok=True)
            rig.get("out", options.out)
    return result.status


def _shell(options):
    """Connects the terminal with the machine's shell."""
    with Rig(_say, interactive=True, qmp=options.qmp, **_machine(options)) as rig:
        if options.files and not getattr(options, "prepare", None):
            rig.put_as(_named(options.files))
        shell.interact(rig.console_socket, KINDS[options.kind].machine.system, _say)
    return 0


def _boot(options):
    """Makes the snapshot anew."""
    words = _machine(options)
    chosen = words.pop("machine")(**words)
    chosen.check_tools()
    snapshot.create(chosen, _say)
    return 0


def _clean(_):
    """Removes packages, images and snapshots from the cache."""
    with cache.lock(True, _say):
        for kind in ("packages", "hypervisors", "images", "snapshots"):
            shutil.rmtree(cache.root() / kind, ignore_errors=True)
    return 0


class _Parser(argparse.ArgumentParser):
    """Exits with the rig's own failure status, since argparse's 2 could be the script's."""

    def error(self, message):
        self.print_usage(sys.stderr)
        _say(message)
        sys.exit(FAILURE_STATUS)


def _parser(name, arch):
    kind = KINDS[name]
    parser = _Parser(prog=f"rig/{name}-{arch}", description=kind.description, epilog=kind.examples.format(arch=arch) + USE,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    choices = argparse.ArgumentParser(add_help=False)
    choices.set_defaults(kind=name, arch=arch)
    group = choices.add_argument_group("the machine; each combination has a snapshot of its own")
    kind.add_options(group, arch)
    group.add_argument("--cpus", type=int, default=1, metavar="N", help=kind.cpus)
    group.add_argument("--parallel", action="store_true",
                       help="CPUs run beside each other, not in turn: faster, but QEMU before 8.1 can crash a Linux that patches its code")
    group.add_argument("--icount", action="store_true",
                       help="one instruction takes one nanosecond: times repeat exactly")
    group.add_argument("--mem", type=int, default=kind.machine.mem, metavar="MIB", help=f"memory ({kind.machine.mem}){kind.memory}")

    running = argparse.ArgumentParser(add_help=False)
    running.add_argument("--qmp", metavar="PATH", help="a socket of QEMU's machine protocol there: 'uniprof record qemu:PATH' profiles the emulated machine as a whole")
    verb = _verb(verbs, "run", _run, [choices, running])
    verb.add_argument("-c", dest="commands", metavar="COMMANDS", help="run these instead of a script's file")
    verb.add_argument("--out", metavar="DIR", help="bring what the script wrote to ./out here")
    verb.add_argument("--timeout", type=_seconds, default=300, metavar="SECS",
                      help="stop a longer script (300)")
    verb.add_argument("files", nargs="*", metavar="SCRIPT|FILE", help="script (unless -c), then files that go along")

    verb = _verb(verbs, "shell", _shell, [choices, running])
    verb.add_argument("files", nargs="*", metavar="FILE", help="files that go along")
    verb = _verb(verbs, "boot", _boot, [choices])
    if kind.prepares:
        verb.add_argument("files", nargs="*", metavar="FILE", help="files for --prepare")
    _verb(verbs, "clean", _clean, [])
    return parser


def _seconds(text):
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds above 0")
    return seconds


def _verb(verbs, name, function, parents):
    text = function.__doc__
    verb = verbs.add_parser(name, parents=parents, help=text[0].lower() + text[1:].rstrip("."), description=text)
    verb.set_defaults(verb=function)
    return verb


def _machine(options):
    kind = KINDS[options.kind]
    return {"machine": kind.machine, "cpus": options.cpus, "parallel": options.parallel, "icount": options.icount,
            "mem": options.mem, **kind.chosen(options)}


def _named(files):
    """{name in the machine: path here} from FILE and NAME=FILE."""
    named = {}
    for text in files:
        name, equals, path = text.partition("=")
        path = path if equals else text
        name = name if equals else Path(text).name
        if not Path(path).exists():
            raise RigError(f"there is no file {path}")
        named[name] = path
    return named


def _read_script(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise RigError(f"the script {path} cannot be read: {error.strerror}") from error


def _stdout(data):
    while data:
        data = data[os.write(sys.stdout.fileno(), data):]


def _say(sentence):
    print(f"rig: {sentence}", file=sys.stderr, flush=True)

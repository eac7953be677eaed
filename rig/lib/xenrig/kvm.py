# SPDX-License-Identifier: BSD-3-Clause
"""A machine with Linux that runs guests by KVM: kvm_amd, on an SVM that QEMU emulates, or Arm's, at the EL2 that it emulates."""

import dataclasses
import hashlib
from pathlib import Path

from . import bundle, kvm_image, sysroot
from .errors import RigError
from .machine import Machine, escaped
from .port import ARM64, PORTS, X86
from .xen import X86_CPU

SERIAL = "virtio-serial-pci,disable-legacy=on,max_ports=2"

# A machine that was saved while a processor is in a guest does not come back: so monitors are stopped first.
STOP = b"""
for process in /proc/[0-9]*; do
	ls -l $process/fd 2>/dev/null | grep -q 'anon_inode:kvm-vm' && echo ${process#/proc/}
done >/run/rig/monitors
while read -r monitor; do
	kill -STOP $monitor
	while grep -h '^State:' /proc/$monitor/task/*/status | grep -qv T; do
		sleep 0.1
	done
done </run/rig/monitors
"""
GO_ON = b"while read -r monitor; do kill -CONT $monitor; done </run/rig/monitors"

# QEMU 7.2 does not restore the timer of EL2, which Linux uses with VHE: its event never comes, and Linux sets none that is later.
SET_TIMERS = b"""
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
	taskset -c ${cpu##*/cpu} expire
done
"""

PREPARE_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Preparation of a machine before it is saved: files that are copied, and then commands. Guests that
    run at its end go on when the machine is restored."""

    name: str         # part of the snapshot's; another one of this name takes its place
    files: tuple      # (name in the job directory, path here)
    commands: str

    def digest(self):
        digest = hashlib.sha256(self.commands.encode())
        for name, path in self.files:
            for inner, file in bundle.walk(Path(path)):
                digest.update(f"\0{name}/{inner}\0".encode() + file.read_bytes())
        return digest.hexdigest()[:12]

    def do(self, channel, port):
        _, present = channel.call(bundle.list_libraries(port).encode(), timeout=PREPARE_SECONDS)
        packed = bundle.pack(dict(self.files), set(present.decode().split()), port)
        for commands, stdin in (bundle.UNPACK, packed), (self.commands, b""):
            status, output = channel.call(commands.encode(), stdin, PREPARE_SECONDS)
            if status:
                raise RigError(f"to prepare {self.name}, '{commands}' ended with status {status}:\n{output.decode('utf-8', 'backslashreplace')}")


@dataclasses.dataclass(frozen=True)
class Kvm(Machine):
    mem: int = 2048
    arch: str = "x86"    # one of PORTS
    kernel: str = "6.1"  # one of kvm_image.kernels()
    npt: bool = True     # x86: nested paging; without it, KVM keeps page tables of its own for the guest
    vhe: bool = True     # arm64: the host's kernel runs at EL2; without it, at EL1, and changes places with the guest
    prepared: Preparation | None = None

    system = "the host"
    before_save = STOP

    def __post_init__(self):
        if self.arch not in PORTS:
            raise RigError(f"no machine called {self.arch}; there are {', '.join(PORTS)}")
        if self.kernel not in kvm_image.kernels(self.port):
            raise RigError(f"no kernel {self.kernel}; there are {', '.join(kvm_image.kernels(self.port))}")
        if not (self.npt if self.port is ARM64 else self.vhe):
            raise RigError(f"{self.arch} has no such choice")
        super().__post_init__()

    @property
    def port(self):
        return PORTS[self.arch]

    @property
    def after_restore(self):
        return (SET_TIMERS if self.port is ARM64 else b"") + GO_ON

    def name(self):
        return kvm_image.key(self.kernel, self.port) + self.suffix() + ("" if self.npt else "-shadow") + \
            ("" if self.vhe else "-nvhe") + (f"-{self.prepared.name}" if self.prepared else "")

    def title(self):
        return f"Linux {self.kernel} with KVM{'' if self.npt else ' without nested paging'}{'' if self.vhe else ' without VHE'}"

    def board(self):
        if self.port is ARM64:
            return ["-machine", "virt,virtualization=on,gic-version=3,memory-backend=ram", "-cpu", "cortex-a76"]
        return ["-vga", "none", "-machine", "pc,memory-backend=ram", "-cpu", f"{X86_CPU},+svm,+npt"]

    def serial(self):
        return SERIAL

    def build(self, say):
        if self.port is ARM64:
            sysroot.ensure(ARM64, say)

    def locate(self):
        return kvm_image.locate(self.kernel, self.port)

    def ensure(self, say):
        return kvm_image.ensure(self.kernel, say, self.port)

    def boot_arguments(self, directory):
        # Linux gives init what it does not know itself as its environment.
        if self.port is X86:
            line = f"console=ttyS0 rdinit=/init quiet loglevel=4 mitigations=off npt={int(self.npt)}"
        else:
            line = f"console=ttyAMA0 rdinit=/init quiet loglevel=4 mitigations=off{'' if self.vhe else ' kvm-arm.mode=nvhe'}"
        prepared = f" prepared={self.prepared.digest()}" if self.prepared else ""
        return ["-kernel", str(directory / "linux"), "-initrd", escaped(directory / "host.cpio"), "-append", line + prepared]

    def prepare(self, channel):
        if self.prepared:
            self.prepared.do(channel, self.port)

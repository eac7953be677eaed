# SPDX-License-Identifier: BSD-3-Clause
"""The rig for programs: dom0 of a real Xen, or a host with KVM, that runs one command after the other.

    with Rig(xen="4.17", cpus=1) as rig:
        rig.put("build/uniprof", "build/guests/app.elf")
        rig.write("app.cfg", "kernel = 'app.elf'\\n ...")
        rig.run("xl create app.cfg", check=True)
        print(rig.run("uniprof list", timeout=20).text)
        rig.get("out", "results")

    with Rig(machine=Kvm, kernel="6.12", cpus=2) as rig:
        rig.put("build/uniprof", "build/tests/vmm/programs/monitor", ...)

Create it in the thread that lives longest: QEMU ends with the thread that started it.
"""

import dataclasses
import posixpath
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import bundle, snapshot
from .channel import Lost
from .errors import RigError, RigTimeout
from .xen import Xen


@dataclasses.dataclass
class Result:
    status: int    # exit status; 128 + number when a signal ended the command
    output: bytes  # standard output and standard error as they came

    @property
    def text(self):
        return self.output.decode("utf-8", "backslashreplace")


class Rig:
    """Options are those of `machine` (xen.Xen, kvm.Kvm); `say` gets a sentence about what takes long."""

    def __init__(self, say=lambda sentence: None, interactive=False, machine=Xen, qmp=None, **options):
        options = machine(**options)
        self._port, self._system = options.port, options.system
        self._qemu, self._channel = snapshot.start(options, say, interactive, qmp)
        self._libraries = None
        self._end = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._end = self._end or "this rig has been closed"
        self._qemu.kill()

    @property
    def console_socket(self):
        """The socket to the console, of an interactive rig."""
        return self._qemu.console

    def console(self):
        """The end of what Xen and the kernel printed."""
        return self._qemu.last_words()

    def pid(self):
        """QEMU's process id."""
        return self._qemu.pid

    def run(self, commands, timeout=60, stdin=b"", sink=None, check=False):
        """Runs shell commands in the job directory; returns a Result.

        sink   called with output as it comes, which is not collected then
        check  a status other than 0 raises RigError with the output

        Raises RigTimeout, or RigError when QEMU is lost; either way this rig has come to its end.
        """
        if self._end:
            raise RigError(self._end)
        try:
            status, output = self._channel.call(commands.encode(errors="surrogateescape"), stdin, timeout, sink)
        except Lost as error:
            self._end = f"QEMU ended while {self._system} ran a command; the console ended with:\n{self.console()}"
            self.close()
            raise RigError(self._end) from error
        except RigTimeout as error:
            self._end = f"{error}; the console ended with:\n{self.console()}"
            self.close()
            raise RigTimeout(self._end, error.output) from error
        if check and status != 0:
            raise RigError(f"'{commands}' ended with status {status}:\n{output.decode('utf-8', 'backslashreplace')}")
        return Result(status, output)

    def put(self, *paths, timeout=300, **named):
        """Copies files or directories, with the shared libraries they need, into the job directory."""
        self.put_as({Path(path).name: path for path in paths} | named, timeout)

    def put_stripped(self, *programs):
        """Like put(), for programs that nobody will debug there: without what debuggers know, they take a fraction of the time."""
        strip = shutil.which(f"{self._port.triplet}-strip")
        if not strip:
            self.put(*programs)
            return
        with tempfile.TemporaryDirectory() as directory:
            for program in programs:
                subprocess.run([strip, "-o", Path(directory, program.name), program], check=True)
            self.put(*Path(directory).iterdir())

    def put_as(self, files, timeout=300):
        """Like put(), for {name in the job directory: path here}."""
        if self._libraries is None:
            self._libraries = set(self.run(bundle.list_libraries(self._port), check=True).text.split())
        archive = bundle.pack(files, self._libraries, self._port)
        self.run(bundle.UNPACK, timeout, archive, check=True)

    def write(self, name, data):
        """Makes a file in the job directory from text or bytes."""
        data = data.encode() if isinstance(data, str) else data
        place = shlex.quote(posixpath.dirname(name) or ".")
        self.run(f"mkdir -p {place} && cat >{shlex.quote(name)}", stdin=data, check=True)

    def read(self, name):
        """The bytes of a file in the job directory."""
        return self.run(f"cat {shlex.quote(name)}", check=True).output

    def get(self, name, destination, timeout=300):
        """Copies a file, or all that is in a directory, from the job directory below `destination`."""
        quoted = shlex.quote(name)
        result = self.run(f"if [ -d {quoted} ]; then cd {quoted} && set -- .; else "
                          f"cd \"$(dirname {quoted})\" && set -- \"$(basename {quoted})\"; fi 2>/dev/null && "
                          "[ -e \"$1\" ] && tar -c -f - \"$1\" 2>/dev/null", timeout)
        if result.status != 0:
            raise RigError(f"{self._system} has no file {name} that can be brought out")
        bundle.unpack(result.output, destination)

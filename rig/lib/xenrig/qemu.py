# SPDX-License-Identifier: BSD-3-Clause
"""One QEMU process and the sockets into it. It never outlives the process that started it.

The sockets are pairs that QEMU inherits, so no path exists that could be left behind, and a QEMU
that dies is seen at once as the end of file.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import tempfile
import time

from .errors import RigError
from .machine import escaped

PR_SET_PDEATHSIG = 1
MONITOR_SECONDS = 10
MIGRATE_SECONDS = 20
NO_NEWS = "TCG doesn't support requested feature"
_LIBC = ctypes.CDLL(None)


class Qemu:
    """Started by build(agent, console), which returns the command line for these two chardevs.

    agent    socket to the agent's virtio-serial port
    console  socket to the serial port if `interactive`; else what is printed there is only kept
    `qmp`    path of a socket of QEMU's machine protocol for others, which is made; None: there is none
    """

    def __init__(self, build, interactive=False, qmp=None):
        self._last_words = self._replies = None
        self._log = os.memfd_create("console")
        theirs = []
        self.agent, self._monitor = _pair(theirs), _pair(theirs)
        self.console = _pair(theirs) if interactive else None
        fds = [sock.fileno() for sock in theirs]
        log = f"/dev/fd/{self._log}"
        command = build(
            f"socket,fd={fds[0]}",
            f"socket,fd={fds[2]},logfile={log}" if interactive else f"file,path={log},append=on")
        command += ["-chardev", f"socket,fd={fds[1]},id=monitor", "-mon", "chardev=monitor,mode=control"]
        if qmp:
            command += ["-qmp", f"unix:{escaped(qmp)},server=on,wait=off"]
        self._errors = tempfile.TemporaryFile()
        parent = os.getpid()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors,
            pass_fds=[*fds, self._log], preexec_fn=lambda: _die_with(parent),
            start_new_session=True)  # Ctrl-C at the terminal is for us alone
        for sock in theirs:
            sock.close()
        try:
            self._greet()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self):
        return self._process.pid

    def kill(self):
        """Ends QEMU for certain. May be called again."""
        self._process.kill()
        self._process.wait()
        if self._last_words is None:
            self._last_words = self.last_words()
            os.close(self._log)
            for file in (self._errors, self.agent, self.console, self._monitor, self._replies):
                if file:
                    file.close()

    def last_words(self, lines=70):
        """QEMU's messages, and the end of what Xen and the kernel printed since it was started."""
        if self._last_words is not None:
            return self._last_words
        self._errors.seek(0)
        console = os.pread(self._log, 16384, max(0, os.fstat(self._log).st_size - 16384))
        text = (self._errors.read()[-16384:] + console).decode("utf-8", "replace").replace("\r", "")
        told = [line for line in text.split("\n") if line.strip() and NO_NEWS not in line]
        return "\n".join(told[-lines:]) or "(nothing was printed)"

    def save(self, state):
        """Writes the machine's state but for its memory into the open file `state`; QEMU ends."""
        self._execute("stop")
        self._execute("getfd", fd=state.fileno(), fdname="state")
        self._migrate("migrate", "fd:state")
        self._execute("quit")
        self._process.wait(30)

    def load(self, state):
        """Resumes what save() wrote, in a QEMU that was started with "-incoming defer"."""
        self._execute("getfd", fd=state.fileno(), fdname="state")
        self._migrate("migrate-incoming", "fd:state")
        self._execute("cont")

    def _migrate(self, command, uri):
        self._execute(command, uri=uri)
        end = time.monotonic() + MIGRATE_SECONDS
        while (status := self._execute("query-migrate").get("status")) != "completed":
            if status == "failed" or time.monotonic() > end:
                raise RigError("QEMU cannot save or restore the machine's state")
            time.sleep(0.02)

    def _greet(self):
        self._monitor.settimeout(MONITOR_SECONDS)
        self._replies = self._monitor.makefile("rb")
        self._replies.readline()
        self._execute("qmp_capabilities")
        # The memory is in a file of its own already; the state need not hold it once more.
        self._execute("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])

    def _execute(self, command, fd=None, **arguments):
        """One command of QEMU's machine protocol; an open file may go along with it."""
        request = json.dumps({"execute": command, "arguments": arguments}).encode()
        try:
            socket.send_fds(self._monitor, [request], [] if fd is None else [fd])
            for line in self._replies:
                reply = json.loads(line)
                if "error" in reply:
                    raise RigError(f"QEMU refuses {command}: {reply['error']['desc']}")
                if "return" in reply:
                    return reply["return"]
        except OSError as error:
            raise RigError(f"QEMU does not answer to {command}: {error}") from error
        raise RigError(f"QEMU ended before {command}")


def _pair(theirs):
    ours, other = socket.socketpair()
    theirs.append(other)
    return ours


def _die_with(parent):
    """In the child: die when the parent's starting thread does, even if it was killed before this."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)

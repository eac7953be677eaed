# SPDX-License-Identifier: BSD-3-Clause
"""This end of the agent in the machine (rig/dom0/agent): sends a script, gets its output and status."""

import secrets
import select
import time

from .errors import RigError, RigTimeout

CHUNK = 1 << 16


class Lost(RigError):
    """QEMU ended."""


class Channel:
    def __init__(self, sock):
        self._sock = sock
        self._sock.setblocking(False)
        self._pending = b""

    def call(self, script, stdin=b"", timeout=None, sink=None):
        """Runs `script` (bytes) in a shell there; returns (exit status, output).

        With `sink`, output goes to sink(bytes) as it comes and is not returned. It ends with a random
        token that nobody there can know before, so nothing a script prints is taken for the end. What
        background processes of earlier scripts print stands in the output, too.
        """
        token = secrets.token_hex(16).encode()
        outgoing = memoryview(b"%s %d %d\n" % (token, len(script), len(stdin)) + script + stdin)
        deadline = None if timeout is None else time.monotonic() + timeout
        collected = []
        deliver = sink or collected.append
        while True:
            status = self._scan(token, deliver)
            if status is not None:
                return status, b"".join(collected)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise RigTimeout(f"no end after {timeout:g} s", b"".join(collected) + self._pending)
            readable, writable, _ = select.select([self._sock], [self._sock] if outgoing else [], [], left)
            try:
                if writable:
                    outgoing = outgoing[self._sock.send(outgoing[:CHUNK]):]
                data = self._sock.recv(CHUNK) if readable else None
            except (BrokenPipeError, ConnectionResetError):
                data = b""
            if data == b"":
                raise Lost("QEMU is gone")
            self._pending += data or b""

    def _scan(self, token, deliver):
        """Delivers what is output for certain; returns the exit status once it is there."""
        at = self._pending.find(token)
        if at < 0:
            at = len(self._pending) - _overlap(self._pending, token)
        if at:
            deliver(self._pending[:at])
            self._pending = self._pending[at:]
        line, newline, rest = self._pending.partition(b"\n")
        if not newline or not line.startswith(token):
            return None
        self._pending = rest
        return int(line[len(token):])


def _overlap(data, token):
    """Number of bytes at the end of `data` that may be the beginning of `token`."""
    for length in range(min(len(data), len(token) - 1), 0, -1):
        if data.endswith(token[:length]):
            return length
    return 0

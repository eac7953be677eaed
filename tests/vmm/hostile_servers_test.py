#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Servers that take the place of QEMU's, as a QEMU does that its guest has taken over: uniprof ends soon, in a sentence, and the guest runs.

Each server stands before those of a real QEMU. uniprof promises an end within three seconds of conversation; how long it took is printed,
and asserted is no more than that it does not go on for ever, as this host may be loaded."""

import itertools
import socket
import threading
import time
import unittest

from hostcase import UNIPROF
from qemucase import Monitor, QemuCase

# Besides the time for which is recorded.
PROMISED_S = 3
BOUND_S = 40
RECORDED_S = 1

GREETING = b'{"QMP": {"version": {}, "capabilities": []}}\n'
EVENT = b'{"event": "RTC_CHANGE", "data": {}}\n'


def packet(text):
    return b"$%s#%02x" % (text, sum(text) % 256)


def pieces(connection):
    """Received bytes, until the other end hangs up."""
    while True:
        piece = connection.recv(65536)
        if not piece:
            return
        yield piece


def silent(client, real):
    for _ in pieces(client):
        pass


def closing(client, real):
    client.close()


def flood(bytes_, before=b""):
    def serve(client, real):
        client.sendall(before)
        while True:
            client.sendall(bytes_)
    return serve


def drip(byte, before=b""):
    def serve(client, real):
        client.sendall(before)
        while True:
            client.sendall(byte)
            time.sleep(0.05)
    return serve


def answering(answer, greeting=b""):
    """Says the same to whatever comes; no more is read than what is answered."""
    def serve(client, real):
        client.sendall(greeting)
        for _ in pieces(client):
            client.sendall(answer)
    return serve


def between(requests=lambda piece: [piece], answers=lambda piece: [piece]):
    """Hands requests and answers on, changed; a float is a time to wait. Requests are handed on as long as anybody has the connection."""
    def hand_on(source, change, sink):
        for piece in pieces(source):
            for part in change(piece):
                if isinstance(part, float):
                    time.sleep(part)
                else:
                    sink.sendall(part)

    def serve(client, real):
        threading.Thread(target=quietly, args=(hand_on, real, answers, client), daemon=True).start()
        hand_on(client, requests, real)
    return serve


def once_seen(word, then):
    """Changes nothing until a word has come."""
    seen = []

    def change(piece):
        seen.extend([word] if word in piece else [])
        return then(piece) if seen else [piece]
    return change


def slowly(piece):
    for byte in piece:
        yield bytes([byte])
        yield 0.05


def quietly(work, *arguments):
    try:
        work(*arguments)
    except OSError:
        pass  # the other end has hung up


class Front:
    """A socket before one of QEMU's; each connection is served in a thread of its own, with one to QEMU."""

    def __init__(self, path, real, serve, connects, backlog=16):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.path, self.real, self.serve, self.connects, self.backlog = path, real, serve, connects, backlog
        self.waiting = []

    def listen(self):
        """For the process that others shall see at the other end: the one that calls this."""
        self.socket.listen(self.backlog)

    def fill(self):
        """Connections that nobody accepts, until there is no room for one more."""
        while True:
            waiting = socket.socket(socket.AF_UNIX)
            waiting.setblocking(False)
            self.waiting.append(waiting)
            try:
                waiting.connect(str(self.path))
            except BlockingIOError:
                return

    def run(self):
        def accept():
            while True:
                client, _ = self.socket.accept()
                real = None
                if self.connects:
                    real = socket.socket(socket.AF_UNIX)
                    real.connect(str(self.real))
                threading.Thread(target=self.attend, args=(client, real), daemon=True).start()

        threading.Thread(target=quietly, args=(accept,), daemon=True).start()

    def attend(self, client, real):
        quietly(self.serve, client, real)
        for connection in client, real:
            if connection:
                # Close alone does not wake a thread that reads from it, and so would not hang up.
                quietly(connection.shutdown, socket.SHUT_RDWR)
                connection.close()

    def close(self):
        for connection in (self.socket, *self.waiting):
            connection.close()


class ServerCase(QemuCase):
    made_up = True

    def boot_behind(self, front, *options):
        """A QEMU with a monitor of the test's own. Its guest leaves the CPU to others while uniprof waits."""
        self.process = self.start(*self.command("idle-pvh-fp", *options, "-qmp", f"unix:{self.scratch}/own.sock,server=on,wait=off"), preexec_fn=front.listen)
        self.addCleanup(front.close)
        self.begins("idle")
        self.monitor = Monitor(self.own)
        self.addCleanup(self.monitor.close)

    def check(self, guest, *options, sentence):
        began = time.monotonic()
        profiler = self.start(UNIPROF, "record", "-F", "50", "-T", str(RECORDED_S), "-o", self.scratch / "out.uniprof", *options, guest,
                              cwd=self.scratch)
        profiler.wait(BOUND_S)
        took, said = time.monotonic() - began, profiler.log.read_text(errors="replace")
        print(f"{took:.1f} s of {RECORDED_S} + {PROMISED_S} ", end=".", flush=True)
        self.assertRegex(said, sentence)
        self.assertIn(profiler.returncode, (0, 1, 3, 4), said)
        self.wait_for(self.monitor.runs, "the guest was left stopped")
        self.prints()


class Qmp(ServerCase):
    """In place of QEMU's QMP socket: the process at the other end is QEMU's."""

    def behind(self, serve, connects=False, backlog=16):
        front = Front(self.scratch / "qmp.sock", self.scratch / "real.sock", serve, connects, backlog)
        self.boot_behind(front, "-qmp", f"unix:{front.real},server=on,wait=off")
        return front

    def ends(self, serve, sentence, *options, connects=False):
        self.behind(serve, connects).run()
        self.check(f"qemu:{self.scratch}/qmp.sock", *options, sentence=sentence)

    def test_a_full_backlog(self):
        self.behind(silent, backlog=0).fill()
        self.check(f"qemu:{self.scratch}/qmp.sock", sentence="takes no connections at .*: it hangs, or too many others wait")

    def test_silence(self):
        self.ends(silent, "does not answer as QMP does")

    def test_a_connection_that_is_closed(self):
        self.ends(closing, "does not answer as QMP does")

    def test_a_byte_now_and_then(self):
        self.ends(drip(b" "), "does not answer as QMP does")

    def test_a_flood_without_lines(self):
        self.ends(flood(b" " * 65536), "does not answer as QMP does")

    def test_a_flood_of_events(self):
        self.ends(flood(EVENT * 1000), "does not answer as QMP does")

    def test_a_flood_of_events_after_the_greeting(self):
        self.ends(flood(EVENT * 1000, before=GREETING), "QEMU does not answer to qmp_capabilities")

    def test_half_an_answer(self):
        self.ends(drip(b"{", before=GREETING + b'{"return": '), "QEMU does not answer to qmp_capabilities")

    def test_answers_of_the_wrong_type(self):
        self.ends(answering(b'{"return": 7}\n', GREETING), "QEMU has no vCPUs")

    def test_answers_to_what_was_not_asked(self):
        self.ends(answering(b'{"return": {}}\n' * 3, GREETING), "QEMU has no vCPUs")

    def test_deep_answers(self):
        self.ends(answering(b'{"return":' + b"[" * 1000000 + b"\n", GREETING), "QEMU does not answer to qmp_capabilities")

    def test_huge_numbers(self):
        vcpu = b'{"cpu-index": 9223372036854775807, "thread-id": 9223372036854775807, "target": "x86_64"}'
        self.ends(answering(b'{"return": [' + b",".join([vcpu] * 1000) + b"]}\n", GREETING), "QEMU has no vCPUs")

    def test_every_answer_by_the_byte(self):
        self.ends(between(answers=slowly), "does not answer as QMP does", connects=True)

    def test_silence_from_the_first_question_on(self):
        self.ends(between(answers=once_seen(b"return", lambda piece: [])), "QEMU does not answer to", connects=True)

    def test_silence_once_memory_is_asked_for(self):
        self.ends(between(answers=once_seen(b"FlatView", lambda piece: [])), "QEMU does not answer to", connects=True)

    def test_silence_once_the_stub_is_started(self):
        self.ends(between(answers=once_seen(b"Waiting for gdb", lambda piece: [])), "does not answer|samples in", connects=True)

    def test_silence_once_the_guest_is_stopped(self):
        self.ends(between(answers=once_seen(b'"STOP"', lambda piece: [])), "did not stop the guest in time", "--via", "qmp", connects=True)

    def test_events_without_end_once_the_guest_is_stopped(self):
        self.ends(between(answers=once_seen(b'"STOP"', lambda piece: itertools.repeat(EVENT * 1000))), "did not stop the guest in time", "--via", "qmp", connects=True)

    def test_a_QEMU_that_hangs_and_comes_to_itself(self):
        self.ends(between(requests=once_seen(b'"stop"', lambda piece: [6.0, piece])), "did not stop the guest in time", "--via", "qmp", connects=True)



class Stub(ServerCase):
    """In place of the gdb stub that QEMU was started with."""

    def behind(self, serve, connects=False, backlog=16):
        front = Front(self.scratch / "front.sock", self.scratch / "real.sock", serve, connects, backlog)
        self.boot_behind(front, "-gdb", f"unix:{self.scratch}/gdb.sock,server=on,wait=off")
        (self.scratch / "gdb.sock").rename(front.real)
        front.path.rename(self.scratch / "gdb.sock")
        front.path = self.scratch / "gdb.sock"
        return front

    def ends(self, serve, sentence, connects=False):
        self.behind(serve, connects).run()
        self.check(f"qemu:{self.process.pid}", "--via", "own-stub", sentence=sentence)

    def test_a_full_backlog(self):
        self.behind(silent, backlog=0).fill()
        self.check(f"qemu:{self.process.pid}", "--via", "own-stub", sentence="stub takes no connections: it hangs, or too many others wait")

    def test_silence(self):
        self.ends(silent, "stub does not answer")

    def test_a_connection_that_is_closed(self):
        self.ends(closing, "stub does not answer")

    def test_a_flood_of_what_is_no_packet(self):
        self.ends(flood(b"x" * 65536), "stub does not answer")

    def test_a_flood_of_acknowledgements(self):
        self.ends(flood(b"+" * 65536), "stub does not answer")

    def test_a_packet_without_end(self):
        self.ends(flood(b"a" * 65536, before=b"$"), "stub does not answer")

    def test_a_packet_that_repeats_itself(self):
        self.ends(flood(b"a*~" * 20000, before=b"$"), "stub does not answer")

    def test_a_byte_now_and_then(self):
        self.ends(drip(b"a", before=b"$"), "stub does not answer")

    def test_half_an_answer(self):
        self.ends(answering(b"+$OK"), "stub does not answer")

    def test_empty_answers(self):
        self.ends(answering(b"+" + packet(b"")), "stub does not|QEMU does not")

    def test_stops_that_nobody_asked_for(self):
        self.ends(flood(packet(b"T05thread:p01.01;") * 1000), "stub does not|QEMU does not")

    def test_output_of_the_monitor_without_end(self):
        self.ends(between(answers=once_seen(b"$O", lambda piece: itertools.repeat(packet(b"O" + b"20" * 1000) * 30))), "stub does not answer", connects=True)

    def test_a_description_by_the_byte(self):
        """Each piece is what was asked for, and another one follows."""
        self.ends(between(answers=once_seen(b"<?xml", lambda piece: [b"+", packet(b"m ")])), "stub tells no registers", connects=True)

    def test_threads_without_end(self):
        self.ends(between(answers=once_seen(b"$mp01.01#", lambda piece: [b"+", packet(b"mp01.01")])), "vCPUs|did not stop the guest", connects=True)

    def test_silence_once_it_is_sampled(self):
        self.ends(between(answers=self.once_sampled(lambda: [])), "samples in", connects=True)

    def test_a_flood_once_it_is_sampled(self):
        self.ends(between(answers=self.once_sampled(lambda: itertools.repeat(b"x" * 65536))), "samples in", connects=True)

    def test_stops_without_end_once_it_is_sampled(self):
        self.ends(between(answers=self.once_sampled(lambda: itertools.repeat(packet(b"T05thread:p01.01;") * 1000))), "samples in", connects=True)

    def test_a_stub_that_hangs_and_comes_to_itself(self):
        self.ends(between(requests=once_seen(b"vCont;c", lambda piece: [6.0, piece])), "samples in", connects=True)

    @staticmethod
    def once_sampled(then):
        """The first stop is the one by connecting."""
        stops = []

        def change(piece):
            stops.extend([b"$T0"] * piece.count(b"$T0"))
            return then() if len(stops) > 1 else [piece]
        return change



if __name__ == "__main__":
    unittest.main()

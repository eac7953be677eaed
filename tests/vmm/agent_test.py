#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The resident profiler: guests come and go, it is killed, and what was sampled can be read by time."""

import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "exports"))

from hostcase import RUN_S, SERVICE_USER, UNIPROF, service_rights  # noqa: E402
from receiver import Receiver, stall  # noqa: E402
from qemucase import QemuCase  # noqa: E402

KILLS = int(os.environ.get("UNIPROF_KILLS", "6"))

# Seconds before a kill of which samples may be lost: one that is not yet written, and a pause of the sampler on a busy machine.
LOST_S = 5

# The guest, and the function in which it spends most of its time.
WEB, SPIN = "app1-pvh-fp", "bare_drain"

# Another one, for tests that only count samples: it leaves the CPU to others.
IDLE = "idle-pvh-fp"


def status_of(pid):
    """As proc(5) has it; nothing of a process that has ended."""
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class AgentCase(QemuCase):
    def setUp(self):
        super().setUp()
        self.store = self.scratch / "store"

    def agent(self, *options, include="subject", **more):
        """Only the test's own guests: other programs of this machine are not its affair."""
        return self.start(UNIPROF, "agent", "--store", self.store, "--include", include, "-v", *options, **more)

    def segments(self, guest):
        return sorted((self.store / guest).glob("*.uniprof"))

    def ticks(self, guest, *window):
        """What the report tells of ticks; with their last moment, on the wall clock."""
        done = subprocess.run([UNIPROF, "report", "--json", "--state", "all", "--store", self.store, *window, guest],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        if done.returncode:
            return {"count": 0, "last": 0, "elapsed_ns": 0}
        report = json.loads(done.stdout)
        return report["ticks"] | {"last": (report["guest"]["start_unix_ns"] + report["ticks"]["elapsed_ns"]) / 1e9}

    def samples(self, guest, *window):
        return self.ticks(guest, *window)["count"]

    def wait_samples(self, guest, n, *window):
        self.wait_for(lambda: self.samples(guest, *(window or ("--last", "1h"))) >= n, f"no {n} samples of {guest}", every_s=RUN_S)

    def quit(self, agent):
        agent.send_signal(signal.SIGTERM)
        self.assertEqual(agent.wait(20), 0, agent.log.read_text())


@unittest.skipIf(os.geteuid(), "only root may sample other users' processes")
class Guests(AgentCase):
    def test_a_guest_is_sampled_from_when_it_comes_to_when_it_goes(self):
        agent = self.agent("-F", "50", include="app1-*")
        web = self.qemu("app1-pvh-fp")
        self.wait_samples(WEB, 20)
        report = self.uniprof("report", "--store", self.store, "--last", "10m", WEB)
        self.assertRegex(report, SPIN)
        self.assertGreater(float(re.search(r"([\d.]+) % +[\d.-]+ +\d+  main\b", report)[1]), 50)
        self.assertIsNone(agent.poll())
        self.end(web)
        self.wait_for(lambda: not self.samplers(agent), "its sampler stays though the guest is gone")
        self.monitor.close()
        for path in (self.qmp, self.own, self.console):
            path.unlink(missing_ok=True)
        before = len(self.segments(WEB))
        self.qemu("app1-pvh-fp")
        self.wait_for(lambda: len(self.segments(WEB)) > before, "it is not sampled when it comes again")
        self.wait_samples(WEB, 20, "--last", "20s")
        self.quit(agent)
        self.runs_and_prints()

    @staticmethod
    def samplers(agent):
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        # A discoverer lives for a moment, and still is root.
        return [pid for pid in children if "Uid:\t65534" in status_of(pid)]

    def test_what_was_sampled_is_written_though_the_guest_stands_still(self):
        agent = self.agent("-F", "50", include=f"qemu:{IDLE}")
        self.qemu(IDLE)
        self.wait_samples(IDLE, 20)
        self.stop()

        def all_written():
            sampled = [guest["ticks"] for guest in self.status()["guests"]]
            return sampled == [self.samples(IDLE, "--last", "1h")]

        self.wait_for(all_written, "the last samples are not written until the guest runs again", every_s=RUN_S)
        agent.kill()
        self.wait_for(lambda: not self.monitor.stubs(), "its sampler has outlived it")

    def test_metrics_count_what_the_recordings_tell(self):
        metrics = self.scratch / "uniprof.prom"
        agent = self.agent("-F", "50", "--metrics", metrics, include=f"qemu:{IDLE}")
        self.qemu(IDLE)
        self.wait_samples(IDLE, 20)
        (guest,) = json.loads(self.uniprof("agent", "--status", "--json", "--store", self.store))["guests"]
        self.assertEqual((guest["name"], guest["kind"], guest["state"], guest["rate_hz"]), (IDLE, "qemu", "sampled", 50))
        self.assertGreaterEqual(guest["ticks"], 20)
        self.assertGreater(guest["recorded_bytes"], 0)
        self.assertRegex(self.uniprof("agent", "--status", "--store", self.store), r"(?m)^qemu +sampled +50 .* idle-pvh-fp")
        self.quit(agent)
        values = {name: float(value) for name, value in re.findall(r'(?m)^uniprof_(\w+)\{guest="idle-pvh-fp",kind="qemu"\} (\S+)$', metrics.read_text())}
        self.assertEqual(values["ticks_total"], self.samples(IDLE, "--last", "1h"))
        self.assertGreater(values["paused_seconds_total"], 0)
        self.assertEqual(values["recorded_bytes_total"], sum(path.stat().st_size for path in self.segments(IDLE)))
        self.assertGreaterEqual(values["sampler_starts_total"], 1)

    def infos(self, guest):
        return [json.loads(subprocess.run([UNIPROF, "report", "--json", path], check=True, capture_output=True, text=True).stdout) for path in self.segments(guest)]

    def test_settings_are_taken_anew_while_the_sampler_goes_on(self):
        config = self.scratch / "agent.conf"
        config.write_text("frequency = 50\n")
        agent = self.agent("--config", config, include=f"qemu:{IDLE}")

        def reload(text, answer):
            config.write_text(text)
            agent.send_signal(signal.SIGHUP)
            self.wait_for(lambda: answer in agent.log.read_text(), f"no word of {answer}")

        self.qemu(IDLE)
        self.wait_samples(IDLE, 20)
        sampler = self.samplers(agent)
        segments = len(self.segments(IDLE))
        reload("frequency = 100\nmax-age = never\n", "stay as they were")
        self.assertIn("agent.conf:2: max-age never: ", agent.log.read_text())
        reload("frequency = 100\n", "taken anew")
        self.wait_for(lambda: len(self.segments(IDLE)) > segments, "the new rate begins no segment")
        self.wait_samples(IDLE, self.samples(IDLE, "--last", "1h") + 20)
        self.assertEqual(self.samplers(agent), sampler)
        reload("exclude = *\n", "taken anew")
        self.wait_for(lambda: not self.samplers(agent), "a guest that is excluded is sampled on")
        rates = [info["ticks"]["rate_hz"] for info in self.infos(IDLE)]
        self.assertEqual({rates[0], rates[-1]}, {50, 100})
        config.write_text("")
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.samplers(agent), "a guest is not sampled again once nothing excludes it")
        self.quit(agent)
        self.runs_and_prints()

    def status(self):
        return json.loads(self.uniprof("agent", "--status", "--json", "--store", self.store))

    def test_a_bound_on_cpu_time_lowers_the_rate_which_is_told(self):
        config = self.scratch / "agent.conf"
        config.write_text("frequency = 50\nmax-cpu = 0.1%\n")
        agent = self.agent("--config", config, include=f"qemu:{IDLE}")
        self.qemu(IDLE)
        self.wait_for(lambda: any(0.1 <= guest["rate_hz"] < 50 for guest in self.status()["guests"]), "the rate is not lowered", every_s=RUN_S)
        status = self.status()
        self.assertEqual((status["wanted_rate_hz"], status["max_cpu"]), (50, 0.001))
        self.assertLess(status["rate_hz"], 50)
        self.assertRegex(self.uniprof("agent", "--status", "--store", self.store), "1 guests at 50 samples/s each or less, as --max-cpu is 0.1 %, ")
        self.assertIn("--max-cpu 0.1: guests are sampled less often than 50 times a second", agent.log.read_text())
        self.wait_for(lambda: any("lowered" in info["ticks"] for info in self.infos(IDLE)), "no recording has the lower rate", every_s=RUN_S)
        before = len(self.segments(IDLE))
        config.write_text("frequency = 50\n")
        agent.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.status()["rate_hz"] == 50, "the rate stays low without a bound", every_s=RUN_S)
        self.wait_for(lambda: len(self.segments(IDLE)) > before, "no recording has the rate that is wanted again")
        self.quit(agent)
        for info in self.infos(IDLE):
            lowered = info["ticks"].get("lowered")
            self.assertEqual(info["ticks"]["rate_hz"] < 50, lowered is not None)
            self.assertIn(lowered, (None, {"wanted_rate_hz": 50, "max_cpu": 0.001}))
        self.assertRegex(self.uniprof("report", "--store", self.store, "--last", "1h", IDLE), r"ticks at [\d.]+/s in .*, lowered from 50/s by the agent's --max-cpu of 0.1 %")

    def test_stretches_of_time_add_up_and_every_verb_shows_them(self):
        agent = self.agent("-F", "50", include="qemu:app1-pvh-fp")
        self.qemu("app1-pvh-fp")
        # There are samples in the stretch below, and in that two seconds before; a busy machine takes few.
        self.wait_samples(WEB, 50)
        self.wait_for(lambda: self.ticks(WEB, "--last", "1h")["elapsed_ns"] > 6e9, "no six seconds are recorded", every_s=RUN_S)
        self.quit(agent)
        last = self.ticks(WEB, "--last", "1h")["last"]
        stamp, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last - ago)) for ago in (3, -1))
        parts = self.samples(WEB, "--from", "yesterday", "--to", stamp) + self.samples(WEB, "--from", stamp)
        self.assertEqual(parts, self.samples(WEB, "--last", "2h"))
        window = ("--store", self.store, "--last", "1h")
        self.uniprof("flamegraph", *window, "-o", "web.svg", WEB)
        self.assertIn(SPIN, (self.scratch / "web.svg").read_text())
        self.assertIn(SPIN, self.uniprof("export", *window, "--format=folded", WEB))
        self.assertIn(SPIN, self.uniprof("report", *window, self.segments(WEB)[0]))
        self.assertIn(SPIN, self.uniprof("diff", "--store", self.store, "--from", stamp, "--to", end, "--against", "2s", WEB))
        self.assertIn("there is no file app1-pvh-fp", self.uniprof("report", "--store", self.store, WEB, expect=6))
        self.assertIn("no guest of that name", self.uniprof("report", *window, "other", expect=6))
        self.assertIn("nothing was recorded", self.uniprof("report", "--store", self.store, "--from", "2001-01-01", "--to", "2001-01-02", WEB, expect=6))


@unittest.skipIf(os.geteuid(), "only root may sample other users' processes")
class Pushed(AgentCase):
    def test_a_recording_is_sent_when_it_ends_and_a_receiver_that_stalls_holds_up_no_sampling(self):
        receiver = Receiver(self, stall)
        options = ("-F", "50", "--push", f"{receiver.root}/ingest", "--push-within", "1ms", "--host", "h1")
        agent = self.agent(*options, include="qemu:app1-pvh-fp")
        web = self.qemu("app1-pvh-fp")
        self.wait_samples(WEB, 5)
        self.quit(agent)
        agent = self.agent(*options, include="qemu:app1-pvh-fp")
        self.wait_for(lambda: receiver.requests, "the recording of the first agent is not sent")
        before = self.samples(WEB, "--last", "1h")
        self.wait_samples(WEB, before + 20)
        self.assertEqual(len(receiver.requests), 1)
        receiver.ended.set()
        self.end(web)
        # The first once more, as it was not answered, and what was sampled since.
        self.wait_for(lambda: len(receiver.requests) >= 3, "the second recording is not sent")
        self.wait_for(lambda: not list((self.store / "%queue").iterdir()), "something is left in the queue")
        self.quit(agent)
        self.assertIn("may be there twice", agent.log.read_text())
        for request in receiver.requests:
            self.assertIn("name=app1-pvh-fp%7Bguest%3Dapp1-pvh-fp%2Chost%3Dh1%2Ckind%3Dqemu%7D", request.path)
            self.assertIn(SPIN.encode(), gzip.decompress(request.body))


@unittest.skipIf(os.geteuid(), "only root may sample other users' processes")
class Killed(AgentCase):
    def test_nothing_but_a_second_is_lost_and_no_guest_left_paused(self):
        self.qemu("app1-pvh-fp")
        for i in range(KILLS):
            before, segments = self.samples(WEB, "--last", "1h"), len(self.segments(WEB))
            agent = self.agent("-F", "50", include="qemu:app1-pvh-fp")
            self.wait_for(lambda: len(self.segments(WEB)) > segments and self.samples(WEB, "--last", "1h") > before, f"nothing is sampled after {i} kills", every_s=RUN_S)
            time.sleep(0.1 * i)
            before = self.samples(WEB, "--last", "1h")
            agent.kill()
            killed = time.time()
            agent.wait()
            after = self.ticks(WEB, "--last", "2h")
            self.assertGreaterEqual(after["count"], before)
            self.assertGreater(after["last"], killed - LOST_S)
            self.wait_for(lambda: not self.monitor.stubs(), "its sampler has outlived it")
        self.runs_and_prints()
        # Names come from a segment that was ended well to those whose writer was killed, but for addresses that only these have.
        agent = self.agent("-F", "50", include="qemu:app1-pvh-fp")
        self.wait_samples(WEB, self.samples(WEB, "--last", "1h") + 20)
        self.quit(agent)
        report = self.uniprof("report", "--store", self.store, "--last", "1h", WEB)
        self.assertLess(float(re.search(r"([\d.]+) % in code without a name", report)[1]), 30)


@unittest.skipIf(os.geteuid(), "only root can start the service as systemd does")
class Service(AgentCase):
    """With the rights of its unit for systemd, and no others."""

    def service(self, *options):
        self.store.mkdir()
        os.chown(self.store, SERVICE_USER, SERVICE_USER)
        return self.start("setpriv", *service_rights(), UNIPROF, "agent", "--store", self.store, "-v", "-F", "50", *options)

    def test_its_capabilities_suffice_and_samplers_have_none(self):
        before = set(Path("/tmp").glob("uniprof-stub-*"))
        self.qemu("app1-pvh-fp")
        agent = self.service("--include", "qemu:app1-pvh-fp")
        self.wait_samples(WEB, 20)
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        found = [Path(f"/proc/{pid}/status").read_text() for pid in children if os.path.exists(f"/proc/{pid}")]
        self.assertTrue(any(re.search("^CapEff:\\s+0{16}$", status, re.MULTILINE) for status in found), found)
        self.assertTrue(all(f"Uid:\t{SERVICE_USER}" in status for status in found), found)
        self.assertRegex(self.uniprof("report", "--store", self.store, "--last", "10m", WEB), SPIN)
        self.quit(agent)
        self.runs_and_prints()
        self.assertEqual(set(Path("/tmp").glob("uniprof-stub-*")) - before, set())


class Settings(AgentCase):
    """Files for --config."""

    def check(self, text, *options, expect=0):
        path = self.scratch / "agent.conf"
        path.write_text(text)
        return self.uniprof("agent", "--check", "--config", path, *options, expect=expect)

    def test_every_line_that_is_wrong_is_told(self):
        said = self.check("# our own\nfrequency = 0\nmax-disk = 1G\n\ncolour = red\nmax-disk = 2G\nverbose = maybe\nmax-age\n", expect=2)
        told = re.findall(r"agent\.conf:(\d+): (.*)", said)
        self.assertEqual([int(line) for line, _ in told], [2, 5, 6, 7, 8])
        for (_, text), words in zip(told, ("frequency 0: the rate must be", 'no setting "colour"', "set in line 3", "yes or no", "NAME = VALUE")):
            self.assertIn(words, text)
        self.assertIn("has 5 errors", said)

    def test_a_receiver_that_cannot_be_meant_is_told_with_its_line(self):
        self.assertIn("agent.conf:2: ", self.check("verbose = yes\npush = ftp://x/ingest\n", expect=2))
        self.check("push = ftp://x/ingest\n", "--push", "http://localhost/ingest")

    def test_the_file_of_the_package_is_good_with_all_its_settings(self):
        text = subprocess.run([UNIPROF, "--settings", "agent"], check=True, capture_output=True, text=True).stdout
        self.check(text)
        values = {"DIR": "/tmp", "N": "5", "SIZE": "2M", "T": "1h", "PATTERN": "x", "PERCENT": "1", "yes": "yes", "FILE": "/dev/null", "NAME": "otlp", "URL": "http://localhost"}
        with_values = re.sub(r"(?m)^#([\w-]+ = )(\w+)$", lambda match: match[1] + values[match[2]], text)
        self.assertGreater(len(re.findall(r"(?m)^[\w-]+ = ", with_values)), 20)
        # An empty file is no token.
        self.check(re.sub("(?m)^token-file.*$", "", with_values))

    def test_the_command_line_wins(self):
        (self.scratch / "agent.conf").write_text(f"store = {self.scratch}/of-the-file\nverbose = yes\ninclude = *\n")
        agent = self.agent("--config", self.scratch / "agent.conf", include="none")
        self.wait_for(self.store.exists, "the command line's store is not made")
        self.quit(agent)
        self.assertFalse((self.scratch / "of-the-file").exists())
        self.assertFalse(list(self.store.iterdir()))

    def test_what_is_no_file_of_settings_is_refused(self):
        self.assertIn("cannot read", self.uniprof("agent", "--check", "--config", self.scratch / "nothing", expect=6))
        self.assertIn("is no text", self.check("verbose = yes\0\nfrequency = 0\n", expect=6))


class Store(AgentCase):
    def test_a_second_agent_is_refused(self):
        self.agent(include="none")
        self.wait_for(self.store.exists, "there is no store")
        self.assertIn("another uniprof agent", self.uniprof("agent", "--store", self.store, expect=7))

    def test_an_agent_is_asked_how_it_does(self):
        agent = self.agent(include="none")
        self.wait_for(lambda: (self.store / "%status").exists(), "it cannot be asked")
        said = json.loads(self.uniprof("agent", "--status", "--json", "--store", self.store))
        self.assertEqual((said["pid"], said["guests"], said["rate_hz"]), (agent.pid, [], 19))
        self.assertIn(f"agent {agent.pid}: 0 guests", self.uniprof("agent", "--status", "--store", self.store))
        self.quit(agent)
        self.assertIn("no agent runs there", self.uniprof("agent", "--status", "--store", self.store, expect=6))

    def test_systemd_is_told(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(self.scratch / "notify"))
            listener.settimeout(20)
            agent = self.agent(include="none", env=dict(os.environ, NOTIFY_SOCKET=str(self.scratch / "notify"), WATCHDOG_USEC="1000000"))
            self.assertEqual(listener.recv(100), b"READY=1")
            self.assertEqual(listener.recv(100), b"WATCHDOG=1")
            self.assertEqual(listener.recv(100), b"WATCHDOG=1")
            self.quit(agent)

    def test_systemd_is_told_of_a_reload(self):
        (self.scratch / "agent.conf").touch()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(self.scratch / "notify"))
            listener.settimeout(20)
            agent = self.agent("--config", self.scratch / "agent.conf", include="none", env=dict(os.environ, NOTIFY_SOCKET=str(self.scratch / "notify")))
            self.assertEqual(listener.recv(100), b"READY=1")
            agent.send_signal(signal.SIGHUP)
            self.assertRegex(listener.recv(100), rb"^RELOADING=1\nMONOTONIC_USEC=\d+$")
            self.assertEqual(listener.recv(100), b"READY=1")
            self.quit(agent)

    def test_minutes_of_an_hour_are_joined_and_told_as_before(self):
        """An hour of three hours ago, of two runs: the same minute again and again, and one of another guest in between."""
        hour = (int(time.time()) // 3600 - 3) * 3600
        directory = self.store / "web"
        directory.mkdir(parents=True)
        paths = [self.scratch / "a.uniprof", self.scratch / "b.uniprof"]
        for path in paths:
            spinner = self.start("sh", "-c", "while :; do :; done")
            self.uniprof("record", "-q", "-F", 100, "-T", 0.5, "-o", path, f"process:{spinner.pid}")
        for minute in range(12):
            shutil.copy(paths[minute == 5], directory / time.strftime("%Y%m%dT%H%M00Z.uniprof", time.gmtime(hour + 60 * minute)))
        (directory / time.strftime("%Y%m%dT%H%M00Z.uniprof", time.gmtime(hour + 600))).write_bytes(b"no recording")
        window = ("--from", time.strftime("%Y-%m-%dT%H:00Z", time.gmtime(hour)))
        before = self.samples("web", *window)
        self.assertGreater(before, 100)
        agent = self.agent(include="none")
        self.wait_for(lambda: len(self.segments("web")) == 3, "they are not joined")
        self.quit(agent)
        self.assertTrue(all("-" in path.name for path in self.segments("web")), self.segments("web"))
        self.assertEqual(self.samples("web", *window), before)

    def test_a_week_of_ten_guests_is_read_within_a_second(self):
        """Hours of a week, made of one recording; only those of the time may be opened."""
        one = self.scratch / "one.uniprof"
        spinner = self.start("sh", "-c", "while :; do :; done")
        self.uniprof("record", "-q", "-F", 100, "-T", 1, "-o", one, f"process:{spinner.pid}")
        now = int(time.time())
        for guest in range(10):
            directory = self.store / f"guest{guest}"
            directory.mkdir(parents=True)
            for hours in range(2, 168):
                begin, last = (time.strftime("%Y%m%dT%H%M%SZ", time.gmtime((now // 3600 - hours) * 3600 + at)) for at in (0, 3540))
                os.link(one, directory / f"{begin}-{last}.uniprof")
            for minutes in range(120):
                os.link(one, directory / f"{time.strftime('%Y%m%dT%H%M00Z', time.gmtime(now - 60 * minutes))}.uniprof")
        # Of a CPU, which other work on this machine does not lengthen.
        before = os.times()
        self.assertGreater(self.samples("guest3", "--last", "10m"), 0)
        after = os.times()
        self.assertLess(after.children_user + after.children_system - before.children_user - before.children_system, 1)


if __name__ == "__main__":
    unittest.main()

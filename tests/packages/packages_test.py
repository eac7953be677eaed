#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Packages of a release: built, the same twice, and installed, used, upgraded and purged on bare systems.

UNIPROF_DEBS names a directory with packages that were built before, so that one can work on a single test.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from chroot import Chroot
from release import NEEDED, ROOT, need, packages, run, tarball, version

UNIT = "lib/systemd/system/uniprof-agent.service"

# systemd's measure of how much of the host a service can reach, in tenths: what it leaves is the right to read guests.
EXPOSURE = 35


class Release:
    """The release and its packages, built when they are first asked for; goes with the process."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="uniprof-packages-")
        self.work = Path(self.directory.name)
        self.archive = self.debs = None

    def tarball(self):
        need(NEEDED)
        self.archive = self.archive or tarball(self.work)
        return self.archive

    def unpacked(self):
        place = self.work / "sources"
        if not place.exists():
            place.mkdir()
            run("tar", "xf", self.tarball(), "-C", place, "--strip-components=1")
        return place

    def packages(self):
        if not self.debs:
            built = os.environ.get("UNIPROF_DEBS")
            self.debs = ({file.name.partition("_")[0]: file for file in Path(built).glob("*.deb")} if built
                         else packages(self.tarball(), self.work / "first"))
        return self.debs


release = Release()


def tearDownModule():
    release.directory.cleanup()


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


class Built(unittest.TestCase):
    def test_there_are_three_packages(self):
        self.assertEqual(set(release.packages()), {"uniprof", "uniprof-agent", "uniprof-dbgsym"})

    def test_lintian_has_nothing_to_say(self):
        need({"lintian": "lintian"})
        changes = list(release.packages()["uniprof"].parent.glob("*.changes"))
        said = run("lintian", "--allow-root", "--fail-on", "none", "--tag-display-limit", "0", *changes)
        self.assertFalse([line for line in said.splitlines() if re.match(r"[EW]: ", line)], said)
        self.assertFalse(list(ROOT.glob("debian/*lintian-overrides")))

    def test_one_version_everywhere(self):
        for name, file in release.packages().items():
            self.assertEqual(run("dpkg-deb", "--field", file, "Version").strip(), version(), name)
        place = release.work / "unpacked"
        run("dpkg-deb", "--extract", release.packages()["uniprof"], place)
        self.assertEqual(run(place / "usr/bin/uniprof", "--version").partition(",")[0], f"uniprof {version()}")

    def test_nothing_of_the_building_machine_is_in_it(self):
        place = release.work / "unpacked-too"
        for file in release.packages().values():
            run("dpkg-deb", "--extract", file, place)
        # Where a release is unpacked, its directory has this name.
        named = re.compile(rb"/uniprof-" + re.escape(version()).encode() + b"/")
        for file in place.rglob("*"):
            if file.is_file() and not file.is_symlink():
                if file.read_bytes()[:4] == b"\x7fELF":
                    run("objcopy", "--decompress-debug-sections", file)
                self.assertFalse(named.search(file.read_bytes()), file)


class Twice(unittest.TestCase):
    def test_a_second_build_elsewhere_without_network_is_the_same(self):
        alone = ("unshare", "--net") if os.geteuid() == 0 else ()
        second = packages(release.tarball(), release.work / "another-place", *alone, parts="binary", TZ="Pacific/Apia", LC_ALL="C", HOME="/nonexistent")
        for name, file in release.packages().items():
            self.assertEqual(sha256(second[name]), sha256(file), f"{name}: compare with diffoscope {file} {second[name]}")


@unittest.skipUnless((ROOT / "build/build.ninja").exists(), "the demo's guest is built in build/")
class Demo(unittest.TestCase):
    def test_the_demo_works_with_the_packages_program(self):
        place = release.work / "demo"
        run("dpkg-deb", "--extract", release.packages()["uniprof"], place)
        said = run(ROOT / "demo", UNIPROF=str(place / "usr/bin/uniprof"), SCALE="10")
        self.assertRegex(said, r"(?m)^function_1 +[\d.]+ %")
        self.assertIn("<svg", (ROOT / "out/demo/flamegraph.svg").read_text(encoding="utf-8"))


class Described(unittest.TestCase):
    """What needs no build."""

    def test_the_changelog_begins_with_this_version_or_is_on_the_way_to_it(self):
        headings = re.findall(r"^## ([^\s,]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertIn(headings[0], ("Unreleased", version()))
        self.assertNotIn(version(), headings[1:])

    def test_no_other_file_has_a_version(self):
        for name in ("debian/changelog", "packaging/uniprof.spec", "packaging/APKBUILD"):
            text = (ROOT / name).read_text(encoding="utf-8")
            self.assertIn("@VERSION@", text)
            self.assertNotIn(version(), text, name)

    def test_a_release_has_all_stamps(self):
        for name in ("debian/control", "debian/changelog", "packaging/uniprof.spec", "packaging/APKBUILD"):
            self.assertNotRegex((release.unpacked() / name).read_text(encoding="utf-8"), r"@[A-Z]+@", name)
        said = run("dpkg-parsechangelog", "--show-field", "Version", cwd=release.unpacked())
        self.assertEqual(said.strip(), version())

    def installed_elsewhere(self):
        """A directory with what the build installs, at the places of `meson install`: Debian has others for some."""
        place = release.work / "installed"
        for name in ("uniprof", "uniprof-agent"):
            run("dpkg-deb", "--extract", release.packages()[name], place)
        shutil.rmtree(place / "usr/share/doc")
        (place / "usr/share/zsh/vendor-completions").rename(place / "usr/share/zsh/site-functions")
        if (place / "lib").exists():
            (place / "lib/systemd").rename(place / "usr/lib/systemd")
            (place / "lib").rmdir()
        return place

    def test_rpm_makes_packages_of_what_is_installed(self):
        """By the spec, but for building, for which Debian has not the macros; each file must be in one of its lists."""
        need({"rpmbuild": "rpm"})
        top = release.work / "rpm"
        (top / "SOURCES").mkdir(parents=True)
        shutil.copy(release.tarball(), top / "SOURCES")
        macros = {"_topdir": top, "debug_package": "%{nil}", "meson": "echo", "meson_build": "echo", "_unitdir": "/usr/lib/systemd/system",
                  "_sysusersdir": "/usr/lib/sysusers.d", "meson_install": f"mkdir -p %{{buildroot}}; cp -a {self.installed_elsewhere()}/. %{{buildroot}}"}
        run("rpmbuild", "-bb", "--nodeps", *(word for name, value in macros.items() for word in ("--define", f"{name} {value}")),
            release.unpacked() / "packaging/uniprof.spec")
        made = {file.name for file in top.glob("RPMS/*/*.rpm")}
        self.assertEqual({re.match(rf"(.*)-{re.escape(version())}-1", name)[1] for name in made}, {"uniprof", "uniprof-agent"})

    def test_a_shell_takes_the_apkbuild(self):
        file = release.unpacked() / "packaging/APKBUILD"
        run("sh", "-n", file)
        said = run("sh", "-euc", '. "$1"; echo "$pkgver"; type build package', "sh", file)
        self.assertEqual(said.splitlines()[0], version())
        for word in re.findall(r"-D([\w]+)=", file.read_text(encoding="utf-8")):
            self.assertIn(f"option('{word}'", (ROOT / "meson_options.txt").read_text(encoding="utf-8"))


def calls_of(name):
    """The system calls of a name in a unit: its own, or those of a set of systemd's."""
    if not name.startswith("@"):
        return {name}
    lines = [line.strip() for line in run("systemd-analyze", "syscall-filter", name).splitlines()[1:]]
    return {call for line in lines if line and not line.startswith("#") for call in calls_of(line)}


class Filter(unittest.TestCase):
    # What reading guests takes before a sampler filters its own calls.
    OPENING = {"bpf", "capset", "chown", "connect", "mlockall", "perf_event_open", "process_vm_readv", "ptrace", "rmdir", "sched_setscheduler",
               "setsockopt", "socketpair"}

    def test_the_unit_allows_what_uniprof_allows_itself(self):
        need({"systemd-analyze": "systemd"})
        unit = (ROOT / "packaging/uniprof-agent.service.in").read_text(encoding="utf-8")
        allowed = set().union(*(calls_of(name) for name in re.search("^SystemCallFilter=(.*)$", unit, re.MULTILINE)[1].split()))
        own = set(re.findall(r"\bALLOW(?:_IF)?\(\w+, (\w+)", (ROOT / "src/base/seccomp.c").read_text(encoding="utf-8")))
        self.assertIn("seccomp", own)
        self.assertEqual((own - {"call", "name"} | self.OPENING) - allowed, set())


class Service(unittest.TestCase):
    def setUp(self):
        need({"systemd-analyze": "systemd"})
        self.place = release.work / self.id()
        run("dpkg-deb", "--extract", release.packages()["uniprof-agent"], self.place)
        run("dpkg-deb", "--extract", release.packages()["uniprof"], self.place)
        self.unit = self.place / "usr" / UNIT
        if not self.unit.exists():
            self.unit = self.place / UNIT

    def test_systemd_takes_the_unit(self):
        text = self.unit.read_text(encoding="utf-8").replace("=/usr/bin/", f"={self.place}/usr/bin/")
        own = self.place / "uniprof-agent.service"
        own.write_text(text, encoding="utf-8")
        self.assertEqual(run("systemd-analyze", "verify", "--man=no", own), "")

    def test_the_unit_is_hardened(self):
        run("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE}", self.unit)


class Installed(unittest.TestCase):
    # Systems on which all is as it was at first, by suite.
    bare = {}

    def setUp(self):
        if os.geteuid():
            self.skipTest("only root may use chroot")

    def system(self, suite):
        return self.bare.pop(suite, None) or Chroot(suite, release.work / self.id())

    def copy(self, root, names, files):
        for name in names:
            shutil.copy(files[name], root.place / "root" / f"{name}.deb")

    def newer(self, name):
        """The same package as the release after this one has it."""
        place, out = release.work / f"newer-{name}", release.work / f"newer-{name}.deb"
        if not out.exists():
            run("dpkg-deb", "--raw-extract", release.packages()[name], place)
            control = place / "DEBIAN/control"
            control.write_text(control.read_text(encoding="utf-8").replace(version(), f"{version()}.9"), encoding="utf-8")
            run("dpkg-deb", "--build", "--root-owner-group", place, out)
        return out

    def used(self, root):
        """A process is profiled and shown, as in the demo a guest is."""
        self.assertIn(version(), root("uniprof --version"))
        self.assertIn("libxencall", root("uniprof -V"))
        # A process that becomes another program while it is recorded would end the recording.
        said = root("perl -e 'for (;;) {}' & until grep -qx perl /proc/$!/comm; do sleep 0.1; done; uniprof record -F 97 -T 2 -o /tmp/perl.uniprof process:$! && "
                    "uniprof stack --json process:$! | grep -A 50 '\"code\"' | head -50")
        self.assertRegex(said, r'"text": ?"\w+', "no instructions: libcapstone is recommended, but not found")
        self.assertRegex(root("uniprof report /tmp/perl.uniprof"), r"(?m)^ *[\d.]+ %.*perl")
        self.assertIn("<svg", root("uniprof flamegraph /tmp/perl.uniprof -o - && rm /tmp/perl.uniprof"))

    def complete(self, root):
        """Manual pages and completions are where their readers look."""
        for page in ("uniprof", "uniprof-record", "uniprof-agent", "symbolize"):
            self.assertIn(f".Nm {page.split('-')[0]}", root(f"zcat /usr/share/man/man1/{page}.1.gz"))
        self.assertIn("uniprof", root(". /usr/share/bash-completion/completions/uniprof; complete -p uniprof"))
        root("test -s /usr/share/zsh/vendor-completions/_uniprof && test -s /usr/share/fish/vendor_completions.d/uniprof.fish")

    def off(self, root):
        """The service's user is there, and nothing starts the service."""
        self.assertRegex(root("getent passwd uniprof"), "/nologin$")
        self.assertEqual(root("find /etc/systemd -name '*uniprof*'"), "")

    def lives(self, suite):
        root = self.system(suite)
        # Another package makes the service's user; that one is no part of what is to be gone.
        root.install("systemd-standalone-sysusers")
        before = root.files()
        self.copy(root, ("uniprof", "uniprof-agent"), release.packages())
        root.install("/root/uniprof.deb")
        self.used(root)
        self.complete(root)
        root.install("/root/uniprof-agent.deb")
        self.off(root)
        root("uniprof agent --check --config /etc/uniprof/agent.conf && echo 'verbose = yes' >/etc/uniprof/agent.conf; install -d -o uniprof /var/lib/uniprof/web; echo >/var/lib/uniprof/web/kept")
        self.copy(root, ("uniprof", "uniprof-agent"), {name: self.newer(name) for name in ("uniprof", "uniprof-agent")})
        root.install("/root/uniprof.deb", "/root/uniprof-agent.deb")
        self.used(root)
        self.off(root)
        self.assertEqual(root("cat /etc/uniprof/agent.conf; ls /var/lib/uniprof/web"), "verbose = yes\nkept\n")
        root("apt-get remove -y uniprof-agent && test -e /var/lib/uniprof/web/kept")
        root("apt-get purge -y --autoremove uniprof uniprof-agent")
        after = root.files()
        self.assertEqual(sorted(set(after) ^ set(before)), [])
        self.assertEqual([path for path, content in after.items() if content != before[path]], [])
        self.bare[suite] = root

    def test_systemd_starts_the_service_with_its_rights_and_stops_it(self):
        root = self.system("bookworm")
        self.copy(root, ("uniprof", "uniprof-agent"), release.packages())
        root.install("--no-install-recommends", "systemd", "/root/uniprof.deb", "/root/uniprof-agent.deb")
        said = root.boot("""
            service() { systemctl "$@" uniprof-agent; }
            show() { service show -P "$1"; }
            echo "at first: $(service is-enabled) $(service is-active)"
            service start
            echo "started: $(service is-active) $(show NotifyAccess) $(stat -c '%U %a' /var/lib/uniprof)"
            grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/$(show MainPID)/status
            id -u uniprof
            service stop
            echo "stopped: $(service is-active) $(show Result) $(show ExecMainStatus)"
        """)
        self.assertIn("at first: disabled inactive\n", said)
        self.assertIn("started: active main uniprof 700\n", said)
        user = re.search(r"(?m)^(\d+)$", said)[1]
        self.assertRegex(said, rf"Uid:(\t{user}){{4}}\n")
        # CAP_CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, SYS_PTRACE 19, PERFMON 38, BPF 39.
        for kind in ("CapEff", "CapBnd"):
            self.assertIn(f"{kind}:\t000000c00008000b\n", said)
        self.assertIn("NoNewPrivs:\t1\n", said)
        self.assertIn("Seccomp:\t2\n", said)
        self.assertIn("stopped: inactive success 0\n", said)

    def test_debian_12(self):
        self.lives("bookworm")

    def test_debian_13(self):
        self.lives("trixie")


if __name__ == "__main__":
    unittest.main()

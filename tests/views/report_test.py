#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`uniprof report` as people and programs meet it: in a pipe, on a terminal, through a pager, as JSON."""

import fcntl
import html
import json
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build"))

# 1,000 samples of 1 ms: 900 running on vCPU 0, then 100 on vCPU 1, of which 60 idle.
STACKS = """\
main;work;crunch 400
main;work;print;console_write 200
main;print;console_write 250
main;0xdeadbeef 50
@1 0
main;work;crunch 40
@1 2
main;idle 60
"""
EVIL = "evil\x1b[31m\u202e<script>\udcff"


def record(path, text=STACKS, vcpus=2):
    subprocess.run([BUILD / "tests/browser/folded_to_recording", path, str(vcpus)], check=True,
                   input=text.encode("utf-8", "surrogateescape"))


def is_read(pipe, seconds=60):
    """Waits until nothing of what was written is left in a pipe."""
    end = time.monotonic() + seconds
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def rows(text):
    """{last column: (self, total)} of a flat report."""
    found = re.findall(r"^ *([\d.]+) % [\d.]+-[\d.]+ +([\d.]+) % [\d.]+-[\d.]+ +\d+  (.*)$", text, re.M)
    return {name: (float(own), float(total)) for own, total, name in found}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="uniprof-views-")))
        cls.recording = cls.place / "web.uniprof"
        record(cls.recording)

    def report(self, *options, expect=0, **env):
        done = subprocess.run([BUILD / "uniprof", "report", *options, self.recording], capture_output=True, check=False,
                              env={**os.environ, **env}, stdin=subprocess.DEVNULL)
        text = done.stdout.decode("utf-8")
        self.assertEqual(done.returncode, expect, text + done.stderr.decode())
        return text if not expect else done.stderr.decode()


class DebugFiles(Case):
    def test_symbols_that_were_taken_out_are_found_in_a_directory_of_ones_own(self):
        program = BUILD / "src/unwind/stepped/stepped-64-O2-fp"
        if not program.exists():
            self.skipTest("no program for it")
        # If we are root, the processes that read files have none of root's rights.
        self.place.chmod(0o755)
        stripped, debug = self.place / "stripped", self.place / "debug"
        (debug / ".build-id").mkdir(parents=True)
        build_id = re.search(r"Build ID: (\w\w)(\w+)", subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout)
        apart = debug / ".build-id" / build_id[1] / f"{build_id[2]}.debug"
        apart.parent.mkdir()
        subprocess.run(["objcopy", "--only-keep-debug", program, apart], check=True)
        subprocess.run(["objcopy", "--strip-all", program, stripped], check=True)
        nm = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
        start = next(line.split()[0] for line in nm.splitlines() if line.endswith(" T _start"))
        record(self.recording, f"{int(start, 16):#x} 100\n")
        self.assertIn("no function symbols", self.report("-s", stripped, expect=6))
        self.assertEqual(rows(self.report("--debug-dir", debug, "-s", stripped)), {"_start": (100, 100)})
        self.assertIn("/nowhere", self.report("--debug-dir", "/nowhere", expect=6))


class Pipe(Case):
    def test_functions_are_shown_with_self_and_total(self):
        self.assertEqual(rows(self.report()), {
            "crunch": (46.81, 46.81), "console_write": (47.87, 47.87), "0xdeadbeef": (5.32, 5.32), "main": (0, 100),
            "work": (0, 68.09), "print": (0, 47.87)})

    def test_nothing_in_a_pipe_is_for_terminals(self):
        self.assertNotIn("\x1b", self.report("--tree"))
        self.assertIn("\x1b[", self.report("--color=always"))

    def test_no_column_is_cut_in_a_pipe(self):
        name = "a_function_whose_name_is_longer_than_most_columns_are_wide"
        long = self.place / "long-names.folded"
        long.write_text(f"main;{name} 10\n", encoding="utf-8")
        done = subprocess.run([BUILD / "uniprof", "report", "--by", "function,vcpu", long], capture_output=True, check=True, text=True)
        self.assertIn(name, done.stdout)

    def test_the_head_tells_how_long_each_vcpu_waited_for_a_cpu(self):
        text = self.report("-n1")
        self.assertIn("vCPU 0: running 100.0 %, runnable 0.0 %, blocked 0.0 %\n", text)
        self.assertIn("vCPU 1: running 40.0 %, runnable 0.0 %, blocked 60.0 %\n", text)

    def test_by_vcpu_and_state(self):
        self.assertEqual(rows(self.report("--by=vcpu")), {"0": (95.74, 95.74), "1": (4.26, 4.26)})
        text = self.report("--by=vcpu,state")
        self.assertEqual({tuple(name.split()): own for name, (own, _) in rows(text).items()},
                         {("0", "running"): 90, ("1", "running"): 4, ("1", "blocked"): 6})

    def test_filters(self):
        self.assertEqual(rows(self.report("--vcpu=1", "--state=all"))["idle"], (60, 60))
        stretch = self.report("--from=0.4005", "--to=600ms")
        self.assertEqual(rows(stretch)["console_write"], (100, 100))
        self.assertNotIn("crunch", stretch)
        self.assertIn(" s to 0.600 s", stretch)
        self.assertEqual(set(rows(self.report("--only", "^pri"))), {"main", "work", "print", "console_write"})
        self.assertEqual(set(rows(self.report("--min=40"))), {"main", "work", "print", "console_write", "crunch"})
        self.assertEqual(len(rows(self.report("-n", "2"))), 2)

    def test_a_vcpu_of_which_nothing_was_recorded_is_refused(self):
        for option in "--vcpu=7", "--vcpu=0-2":
            text = self.report(option, expect=2)
            self.assertRegex(text, r"nothing was recorded of vCPU [27] \(the guest has 2, numbered from 0\)")

    def test_trees_go_down_and_up(self):
        down, up = self.report("--tree"), self.report("--tree=up")
        self.assertRegex(down, r"(?s)100.00 %.*main\n.*68.09 %.*work\n.*46.81 %.* crunch\n")
        self.assertRegex(up, r"(?s) 47.87 %.*console_write\n.* 47.87 %.*print\n.* 26.60 %.*main\n.* 21.28 %.*work\n")
        self.assertNotIn("crunch", self.report("--tree", "--depth=2"))
        self.assertIn("there is more", self.report("--tree", "--depth=2"))

    def test_a_tree_of_bounded_depth_has_all_branches_down_to_it(self):
        # Below main, and below work.
        self.assertEqual(self.report("--tree", "--depth=3", "-n", "20").count("print"), 2)

    def test_callers_and_callees_of_one_function(self):
        text = self.report("--function=print")
        callers, callees = text.split("its callers")[1].split("what it calls")
        self.assertRegex(callers, r"26.60 %.*main\n.*21.28 %.*work\n.*21.28 %.*main\n")
        self.assertRegex(callees, r"47.87 %.*47.87 %.*console_write\n")
        self.assertIn("no function in the samples", self.report("-f", "nowhere", expect=2))

    def test_perfs_options_are_understood(self):
        self.assertEqual(rows(self.report("--sort=cpu,sym")), rows(self.report("--by=vcpu,function")))
        self.assertEqual(self.report("-g", "--percent-limit=5"), self.report("--tree", "--min=5"))

    def test_what_cannot_be_meant_is_refused(self):
        for option in "--by=nothing", "--by=vcpu,vcpu", "--only=(", "--color=red", "--tree=left", "--vcpu=4096", "--vcpu=2-1", \
                      "--from=x", "--min=101":
            self.assertIn("uniprof:", self.report(option, expect=2))

    def test_hostile_names_are_harmless(self):
        path = self.place / "evil.uniprof"
        record(path, f"main;{EVIL} 10\n")
        for options in [], ["--tree"], ["--tree=up"], ["--function=evil"], ["--json"], ["--by=vcpu,function"]:
            done = subprocess.run([BUILD / "uniprof", "report", *options, path], capture_output=True, check=True)
            text = done.stdout.decode("utf-8")
            self.assertIn("evil", text)
            self.assertNotRegex(text, "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


class Heat(Case):
    def heat(self, *options):
        return json.loads(self.report("--heat", "--json", *options))["heat"]

    def test_no_sample_is_lost_and_filters_count(self):
        for options, samples in [((), 940), (("--state", "all"), 1000), (("-S", "console_write"), 450), (("--from", "0.1", "--to", "0.2"), 100)]:
            self.assertEqual(sum(cell["samples"] for cell in self.heat(*options)["cells"]), samples, options)

    def test_options_that_choose_nothing_here_are_refused(self):
        for option in "--by=vcpu", "-n5", "--min=1", "--depth=3", "--sort=total", "--function=main":
            self.assertRegex(self.report(option, "--heat", expect=2), "--heat draws a map of time: .* does not go with it", option)
        for option in "--by=vcpu", "-n5", "--depth=3", "--sort=total", "-Smain":
            self.assertIn("does not go with it", self.report(option, "--annotate=main", expect=2), option)
        self.heat("--by=function", "--sort=self")

    def test_a_recording_from_a_pipe_is_read_once(self):
        for options in (), ("-S", "console_write"):
            with open(self.recording, "rb") as recording:
                done = subprocess.run([BUILD / "uniprof", "report", "--heat", "--json", *options, "-"], stdin=recording, capture_output=True, check=True)
            self.assertEqual(json.loads(done.stdout)["heat"], self.heat(*options))

    def test_a_sample_is_in_the_row_of_its_moment(self):
        rows_of = {cell["row"] for cell in self.heat("--from", "0.1", "--to", "0.2")["cells"]}
        self.assertEqual(rows_of, {2, 3})

    def test_a_map_in_a_pipe_is_plain_and_tells_its_scale(self):
        text = self.report("--heat")
        lines = [line for line in text.splitlines() if " ms |" in line]
        self.assertEqual(len(lines), 20)
        self.assertTrue(text.isascii())
        self.assertIn("A cell is 50 ms of 1 second", text)
        self.assertIn("--from 0 --to 1", text)

    def test_nothing_selected_is_an_empty_map(self):
        text = self.report("--heat", "--from", "100")
        self.assertIn("no sample was selected", text)


class Page(Case):
    def test_a_recording_from_a_pipe_is_read_once(self):
        from_file, from_pipe = (subprocess.run([BUILD / "uniprof", "flamegraph", "--html", path], input=self.recording.read_bytes(), capture_output=True, check=True).stdout
                                for path in (self.recording, "-"))
        self.assertEqual(from_pipe, from_file)


class Json(Case):
    def json(self, *options):
        return json.loads(self.report("--json", *options))

    def test_head_and_rows(self):
        data = self.json()
        self.assertEqual((data["format"], data["version"], data["view"], data["keys"]), ("uniprof-report", 1, "flat", ["function"]))
        self.assertEqual(data["guest"]["name"], "web")
        self.assertEqual(data["ticks"]["count"], 1000)
        self.assertEqual(data["states"]["blocked"]["samples"], 60)
        self.assertEqual([(vcpu["vcpu"], vcpu["blocked_ns"], vcpu["running_ns"]) for vcpu in data["vcpus"]], [(0, 0, 900e6), (1, 60e6, 40e6)])
        self.assertEqual(data["stacks"]["selected"], 940)
        rows_by_name = {row["function"]: row for row in data["rows"]}
        crunch = rows_by_name["crunch"]
        self.assertEqual(crunch["self"]["samples"], 440)
        self.assertAlmostEqual(crunch["self"]["share"], 440 / 940)
        self.assertLess(crunch["self"]["low"], crunch["self"]["share"])
        self.assertGreater(crunch["self"]["high"], crunch["self"]["share"])
        self.assertFalse(rows_by_name["0xdeadbeef"]["named"])

    def test_trees_and_callers(self):
        tree = self.json("--tree")["tree"]
        self.assertEqual([child["function"] for child in tree["children"]], ["main"])
        self.assertEqual([child["function"] for child in tree["children"][0]["children"]], ["work", "print", "0xdeadbeef"])
        around = self.json("--function=print")["around"]
        self.assertEqual([(child["function"], child["total"]["samples"]) for child in around["callers"]], [("main", 250), ("work", 200)])
        self.assertEqual([child["function"] for child in around["callees"]], ["console_write"])

    def test_several_keys_are_several_fields(self):
        row = self.json("--by=vcpu,state,function")["rows"][0]
        self.assertEqual((row["vcpu"], row["state"], row["function"]), (0, "running", "console_write"))

    def test_all_rows_come_unless_fewer_are_asked_for(self):
        path = self.place / "many.uniprof"
        record(path, "".join(f"main;f{i} 1\n" for i in range(100)))
        done = subprocess.run([BUILD / "uniprof", "report", "--json", path], capture_output=True, check=True)
        self.assertEqual(len(json.loads(done.stdout)["rows"]), 101)


def all_of(ours):
    """The text of a pseudoterminal whose other side is closed: single reads can end anywhere."""
    text = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        text += piece
    os.close(ours)
    return text.decode("utf-8")


def shown_on_terminal(*arguments, width, **env):
    """What uniprof writes to a pseudoterminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, width, 0, 0))
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "PAGER", "LESS", "COLUMNS")}
    process = subprocess.Popen([BUILD / "uniprof", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                               env={**clean, "TERM": "xterm", **env})
    os.close(theirs)
    text = all_of(ours)
    if process.wait() != 0:
        raise AssertionError(text)
    return text.replace("\r\n", "\n")


class Terminal(Case):
    """On a pseudoterminal of a known width."""

    def on_terminal(self, *options, width=100, **env):
        return shown_on_terminal("report", *options, self.recording, width=width, **env)

    def test_it_has_colours_unless_they_are_unwanted(self):
        self.assertIn("\x1b[31m", self.on_terminal("--no-pager"))
        self.assertNotIn("\x1b", self.on_terminal("--no-pager", NO_COLOR="1"))
        self.assertNotIn("\x1b", self.on_terminal("--no-pager", TERM="dumb"))
        self.assertNotIn("\x1b", self.on_terminal("--no-pager", "--color=never"))

    def test_rows_keep_to_its_width(self):
        for width in 40, 60, 80, 100:
            for view in [], ["--tree"], ["--by=vcpu,function"]:
                text = self.on_terminal("--no-pager", "--color=never", *view, width=width)
                for line in text.split("\n\n")[1].splitlines()[1:]:
                    self.assertLessEqual(len(line), width, f"{width}: {line}")

    def test_a_heat_map_keeps_to_its_width_and_says_that_columns_are_merged(self):
        long = self.place / "long.uniprof"
        record(long, "main 120000\n")
        for width in 40, 60, 100:
            text = shown_on_terminal("report", "--heat", "--no-pager", "--color=never", long, width=width)
            drawn = [line for line in text.splitlines() if " ms |" in line or line.endswith(" s") and line.strip()[0] == "0"]
            self.assertEqual(len(drawn), 21)
            self.assertLessEqual(max(map(len, drawn)), width)
            self.assertRegex(text, r"of \d+ seconds \(merged")

    def test_names_that_are_cut_end_with_dots_unless_wide(self):
        name = "a_function_with_a_name_" + "x" * 200
        path = self.place / "long.uniprof"
        record(path, f"main;{name} 10\n")
        original, self.recording = self.recording, path
        try:
            self.assertIn("…", self.on_terminal("--no-pager"))
            self.assertNotIn(name, self.on_terminal("--no-pager"))
            self.assertIn(name, self.on_terminal("--no-pager", "--wide"))
            self.assertIn(name, self.report())
        finally:
            self.recording = original

    def test_the_users_pager_gets_it_all(self):
        text = self.on_terminal(PAGER="sed s/^/paged:/")
        self.assertTrue(all(line.startswith("paged:") for line in text.splitlines()), text)
        self.assertIn("crunch", text)
        self.assertNotIn("paged:", self.on_terminal("--no-pager", PAGER="sed s/^/paged:/"))
        self.assertNotIn("paged:", self.on_terminal(PAGER=""))

    def test_a_pager_that_is_left_early_is_no_error(self):
        self.assertIn("guest", self.on_terminal(PAGER="head -n 1"))

    def test_an_error_is_told_without_a_pager(self):
        ours, theirs = pty.openpty()
        done = subprocess.run([BUILD / "uniprof", "report", self.place / "missing"], stdin=theirs, stdout=theirs,
                              stderr=subprocess.PIPE, env={**os.environ, "PAGER": "sed s/^/paged:/"}, check=False)
        os.close(theirs)
        os.close(ours)
        self.assertEqual(done.returncode, 6)
        self.assertIn(b"missing", done.stderr)

    def test_an_unknown_option_is_named(self):
        for verb in "report", "diff", "flamegraph", "export":
            done = subprocess.run([BUILD / "uniprof", verb, "--bogus", self.recording], capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, f"uniprof: there is no option --bogus; see uniprof {verb} --help\n")

    def reading_slowly(self, stderr, data=None):
        """Output while the recording, or `data`, arrives in pieces over more than a second."""
        data = data or self.recording.read_bytes()
        process = subprocess.Popen([BUILD / "uniprof", "report", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                                   bufsize=0)
        for i in range(4):
            process.stdin.write(data[i * len(data) // 4:(i + 1) * len(data) // 4])
            self.assertTrue(is_read(process.stdin))
            time.sleep(0.7)
        text, said = process.communicate()
        self.assertIn(b"crunch", text)
        return said

    def test_long_work_shows_progress_on_a_terminal_and_takes_it_away(self):
        ours, theirs = pty.openpty()
        self.reading_slowly(theirs)
        os.close(theirs)
        said = all_of(ours)
        self.assertIn("uniprof: reading, ", said)
        self.assertTrue(said.endswith("\r\x1b[K"), repr(said))

    def test_text_of_others_shows_progress_too(self):
        ours, theirs = pty.openpty()
        self.reading_slowly(theirs, b"main;work;crunch 400\nmain;print 20\n" * 100)
        os.close(theirs)
        said = all_of(ours)
        self.assertIn("uniprof: reading, ", said)
        self.assertTrue(said.endswith("\r\x1b[K"), repr(said))

    def test_progress_is_not_for_pipes(self):
        self.assertEqual(self.reading_slowly(subprocess.PIPE), b"")

    def test_long_exports_tell_how_long_they_take(self):
        # A million samples, of which each becomes a dozen lines that are compressed.
        subprocess.run([BUILD / "tests/exports/export_example_guest", "long", self.place / "long.uniprof"], check=True)
        ours, theirs = pty.openpty()
        subprocess.run([BUILD / "uniprof", "export", "--format=perf-script", "-o", self.place / "long.gz", self.place / "long.uniprof"],
                       stdin=subprocess.DEVNULL, stderr=theirs, check=True)
        os.close(theirs)
        said = all_of(ours)
        self.assertRegex(said, r"uniprof: exporting, \d+ %, \d+ s left")
        self.assertTrue(said.endswith("\r\x1b[K"), repr(said))


class Names(Case):
    """Short names in what people see, full ones for programs and where they are asked for."""

    FULL = "int* std::find<int*, int>(int*, int*, int const&)"
    SHORT = "std::find<int*, int>"

    def show(self, *arguments):
        (self.place / "names.folded").write_text(f"main;{self.FULL} 10\nmain;f(int) 5\nmain;f(char) 5\n")
        return subprocess.run([BUILD / "uniprof", *arguments, self.place / "names.folded"], check=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE).stdout.decode()

    def test_names_are_short_unless_they_would_look_alike(self):
        self.assertEqual(set(rows(self.show("report"))), {"main", self.SHORT, "f(int)", "f(char)"})
        self.assertIn(self.FULL, rows(self.show("report", "--full-names")))

    def test_a_function_is_found_by_its_short_name(self):
        self.assertIn(self.SHORT, self.show("report", "-f", self.SHORT))

    def test_programs_get_full_names(self):
        self.assertIn(self.FULL, [row["function"] for row in json.loads(self.show("report", "--json"))["rows"]])

    def test_a_picture_has_both(self):
        text = html.unescape(self.show("flamegraph", "-o", "-"))
        self.assertIn(f'data-name="{self.FULL}" data-short="{self.SHORT}"', text)
        self.assertIn(f"<title>{self.FULL} (10 samples", text)
        self.assertNotIn(' data-short="', self.show("flamegraph", "--full-names", "-o", "-"))


class Diff(Case):
    def on_terminal(self, *options, width=80):
        long = "a_function_with_a_name_" + "x" * 200
        for name, counts in ("before", (500, 495, 5)), ("after", (300, 690, 10)):
            (self.place / f"{name}.folded").write_text("".join(f"main;{of} {n}\n" for of, n in zip(("less", long, "rare"), counts)))
        return shown_on_terminal("diff", *options, self.place / "before.folded", self.place / "after.folded", width=width)

    def test_rows_keep_to_the_terminals_width(self):
        for width in 60, 80, 100, 140:
            text = self.on_terminal("--color=never", width=width)
            for line in text.split("\n\n")[1].splitlines():
                self.assertLessEqual(len(line), width, f"{width}: {line}")
            self.assertIn("…", text)
            self.assertEqual("95 %" in text, width >= 120)
        self.assertNotIn("…", self.on_terminal("--wide"))

    def test_growth_is_red_and_what_shrinks_green(self):
        text = self.on_terminal(width=140)
        self.assertRegex(text, "\x1b\\[31m[^\n]*a_function_with")
        self.assertRegex(text, "\x1b\\[32m[^\n]*less")

    def test_functions_below_a_share_can_be_left_out(self):
        self.assertIn("  rare", self.on_terminal("--wide"))
        self.assertNotIn("  rare", self.on_terminal("--wide", "--min=2%"))

    def test_growth_beyond_noise_and_above_a_threshold_has_an_exit_status(self):
        for name, count in ("before", 500), ("after", 600), ("chance", 505):
            (self.place / f"{name}.folded").write_text(f"main;grows {count}\nmain;rest {1000 - count}\n")
        for before, after, percent, status in ("before", "after", "5%", 8), ("before", "after", "15", 0), ("before", "chance", "0.1", 0):
            with self.subTest(after, percent=percent):
                done = subprocess.run([BUILD / "uniprof", "diff", "--fail-above", percent, f"{before}.folded", f"{after}.folded"],
                                      cwd=self.place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
                self.assertEqual(done.returncode, status)
                self.assertIn(b"grows", done.stdout)


if __name__ == "__main__":
    unittest.main()

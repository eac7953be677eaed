#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Help, man pages and completions: made of one table of options, whole, and understood by what reads them."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "rig"))

from terminal import Terminal  # noqa: E402

BUILD = Path(os.environ.get("UNIPROF_BUILD", ROOT / "build")).resolve()
UNIPROF = BUILD / "uniprof"
PAGES = BUILD / "docs" / "man"
VERBS = ("record", "run", "top", "report", "flamegraph", "history", "diff", "export", "push", "merge", "list", "stack", "ps", "agent")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def options(verb):
    """The long options that the verb's help tells of."""
    return set(re.findall(r"^  (?:-\w,|   ) (--[\w-]+)", output(UNIPROF, verb, "--help"), re.M))


class Manual(unittest.TestCase):
    def test_each_verb_has_a_page_with_all_of_its_options(self):
        for verb in VERBS:
            page = (PAGES / f"uniprof-{verb}.1").read_text()
            self.assertNotIn("@OPTIONS@", page)
            listed = set(re.findall(r"^\.It (?:Fl \w , )?Fl -([\w-]+)", page, re.M))
            self.assertEqual({"--" + name for name in listed}, options(verb), verb)
            self.assertTrue(listed)

    @unittest.skipUnless(shutil.which("mandoc"), "no mandoc on this machine")
    def test_pages_are_without_warnings(self):
        for page in [*PAGES.glob("*.1"), *(ROOT / "docs" / "man").glob("*.1")]:
            done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True, text=True, check=False)
            self.assertEqual(done.stdout + done.stderr, "")

    def test_help_keeps_to_the_width_of_a_terminal(self):
        for verb in VERBS:
            for line in output(UNIPROF, verb, "--help").splitlines():
                self.assertLessEqual(len(line), 96, line)


class Completions(unittest.TestCase):
    """Completions that a terminal shows when the user presses Tab."""

    def terminal(self, shell, start, starts_with):
        if not shutil.which(shell) or not shutil.which("tmux"):
            self.skipTest(f"no {shell} or no tmux on this machine")
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        directory = Path(place.name)
        (directory / "_uniprof").write_text(output(UNIPROF, "--completions", shell))
        (directory / "web.uniprof").touch()
        (directory / ".zshrc").write_text(starts_with)
        environment = dict(os.environ, TMUX_TMPDIR=place.name, ZDOTDIR=place.name, PATH=f"{BUILD}:{os.environ['PATH']}")

        def run(line):
            done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, cwd=place.name, env=environment)
            return done.returncode, done.stdout + done.stderr

        terminal = Terminal(run)
        self.addCleanup(terminal.close)
        terminal.type(start)
        terminal.see(r"(?m)^READY *$")
        return terminal

    def complete(self, terminal, typed, *patterns):
        terminal.keys("C-u")
        terminal.tmux(f"send-keys -l '{typed}'")
        terminal.keys("Tab", "Tab")
        terminal.see(*patterns, seconds=120)

    def completes(self, terminal):
        self.complete(terminal, "uniprof flam", r"(?m)uniprof flamegraph *$")
        self.complete(terminal, "uniprof record --max-ov", r"uniprof record --max-overhead")
        self.complete(terminal, "uniprof record --unwind sc", r"uniprof record --unwind scan")
        self.complete(terminal, "uniprof report we", r"uniprof report web\.uniprof")

    def test_bash(self):
        self.completes(self.terminal("bash", "exec bash --rcfile .zshrc -i", "PS1='> '; . ./_uniprof; echo READY"))

    def test_zsh(self):
        self.completes(self.terminal("zsh", "exec zsh -i", "PS1='> '; fpath=($PWD $fpath); autoload -U compinit; compinit -u; echo READY"))

    @unittest.skipUnless(shutil.which("fish"), "no fish on this machine")
    def test_fish_takes_the_file(self):
        text = output(UNIPROF, "--completions", "fish")
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "uniprof.fish"
            path.write_text(text)
            found = subprocess.run(["fish", "--no-config", "-c", f"source {path}; complete -C 'uniprof report --tr'"], check=True,
                                   capture_output=True, text=True, env=dict(os.environ, HOME=place, PATH=f"{BUILD}:{os.environ['PATH']}"))
        self.assertIn("--tree", found.stdout)
        self.assertEqual(found.stderr, "")


if __name__ == "__main__":
    unittest.main()

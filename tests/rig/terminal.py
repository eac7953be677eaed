# SPDX-License-Identifier: BSD-3-Clause
"""A real terminal, tmux, in which a program runs: it takes keys, and its screen can be read.

Where it runs is a matter of `run`, which takes a shell command and returns (status, output).
"""

import re
import shlex
import time

LOCALE = "LC_ALL=C.UTF-8"


class Terminal:
    def __init__(self, run, width=100, height=30, environment=""):
        self.run_command = run
        self.environment = environment
        self.tmux(f"-f /dev/null new-session -d -x {width} -y {height} sh")
        self.tmux("set -g remain-on-exit on")
        self.keys("PS1='$ '", "Enter")
        # The keys may have come before the shell had drawn its own prompt.
        self.see(r"(?m)^(# )?\$ *$")

    def tmux(self, arguments):
        status, text = self.run_command(f"{LOCALE} {self.environment} tmux -u -L uniprof {arguments}")
        assert status == 0, f"tmux {arguments}: {text}"
        return text

    def close(self):
        self.run_command("tmux -L uniprof kill-server")

    def keys(self, *keys):
        """Names of keys as tmux has them, or text."""
        self.tmux("send-keys " + " ".join(shlex.quote(key) for key in keys))

    def type(self, line):
        self.tmux(f"send-keys -l {shlex.quote(line)} \\; send-keys Enter")

    def screen(self, colours=False):
        return self.tmux("capture-pane -p" + (" -e" if colours else ""))

    def see(self, *patterns, without=None, seconds=600):
        """Waits until the screen shows all of them at once, and not the other; returns the screen. A screen that
        is being drawn may still show, or not yet, what belongs to another one."""
        end = time.monotonic() + seconds
        while True:
            text = self.screen()
            if all(re.search(pattern, text) for pattern in patterns) and not (without and re.search(without, text)):
                return text
            assert time.monotonic() < end, f"no {patterns} without {without!r} on the screen after {seconds} s:\n{text}"
            time.sleep(0.2)

    def resize(self, width, height):
        self.tmux(f"resize-window -x {width} -y {height}")

    def state(self):
        """Terminal state that a full-screen program has to restore."""
        self.keys("C-u")
        self.type("clear; stty -g | tee modes; echo do''ne")
        text = self.see(r"(?m)^done")
        return (re.search(r"^[0-9a-f:]{20,}$", text, re.M)[0],
                self.tmux("display -p '#{alternate_on} #{cursor_flag} #{keypad_flag}'").strip())

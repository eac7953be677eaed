#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes docs/images/{top,report,report-tree}.svg: what a real terminal in dom0 of a real Xen shows of a unikernel."""

import time

import terminal_picture
from guestcase import ROOT
from terminal import Terminal
from top_test import ENVIRONMENT, Top

GUEST, WIDTH, HEIGHT = "app1-pv-fp", 110, 42
IMAGES = ROOT / "docs" / "images"


class Pictures(Top):
    def save(self, terminal, name):
        (IMAGES / f"{name}.svg").write_text(terminal_picture.draw(terminal.screen(colours=True), WIDTH), encoding="utf-8")
        print(f"docs/images/{name}.svg")

    def setUp(self):
        self.terminal = Terminal(self.dom0, WIDTH, HEIGHT, ENVIRONMENT)
        self.addCleanup(self.terminal.close)
        self.create(GUEST, cmdline="scale=100000")

    def runTest(self):
        self.terminal.type(f"clear; uniprof top -F 200 {GUEST}")
        self.terminal.see(r"ticks \d{3,}(.|\n)*\d  function_3", seconds=120)
        time.sleep(10)
        self.save(self.terminal, "top")
        self.terminal.keys("q")
        self.record(GUEST, "-q -F 500 -T 10")
        for name, options in ("report", "-n 12"), ("report-tree", "--tree --min 3"):
            self.terminal.type(f"clear; uniprof report --no-pager {options} {GUEST}.uniprof; echo")
            self.terminal.see(r"\n\n\$ *\n", seconds=60)
            self.save(self.terminal, name)


def main():
    Pictures.setUpClass()
    try:
        pictures = Pictures()
        pictures.setUp()
        pictures.runTest()
        pictures.doCleanups()
    finally:
        Pictures.doClassCleanups()


if __name__ == "__main__":
    main()

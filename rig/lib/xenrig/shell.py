# SPDX-License-Identifier: BSD-3-Clause
"""Connects a terminal with the machine's console until the user leaves."""

import os
import select
import shutil
import sys
import termios
import tty

LEAVE = b"\x1d"  # Ctrl-]


def interact(console, system, say):
    say(f"this is {system}'s shell; Ctrl-] leaves it and ends the machine")
    terminal = sys.stdin.fileno()
    saved = termios.tcgetattr(terminal) if os.isatty(terminal) else None
    columns, rows = shutil.get_terminal_size()
    console.sendall(b"stty rows %d cols %d; clear\n" % (rows, columns))
    try:
        if saved:
            tty.setraw(terminal, termios.TCSADRAIN)  # keeps what was typed before
        _copy(console, terminal)
    finally:
        if saved:
            termios.tcsetattr(terminal, termios.TCSADRAIN, saved)


def _copy(console, terminal):
    while True:
        for source in select.select([console, terminal], [], [])[0]:
            data = os.read(source if source is terminal else source.fileno(), 4096)
            if not data:
                return
            if source is console:
                os.write(sys.stdout.fileno(), data)
            elif LEAVE in data:
                return
            else:
                console.sendall(data)

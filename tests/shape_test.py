#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""That the house keeps its shape: the limits of CONTRIBUTING.md, and who may include whom."""

import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FUNCTION_LINES = 60
PARAMETERS = 6
FILE_LINES = 600
FILES = 360

# Code beside the code: tests, what only they include, and what is built for them.
BESIDE = re.compile(r"_(test|fuzz|testing|bench|fixture|example)\.[ch]$|/testing\.h$")

# As clang-format leaves it: a definition begins in the first column, its braces stand there, too.
FUNCTION = re.compile(r"^(?P<head>[a-z][\w \t*]*[ *](?P<name>\w+)\((?P<parameters>[^;{}]*?)\)[\w \t(),]*)\n\{\n(?P<body>.*?)^\}", re.MULTILINE | re.DOTALL)


def sources(*patterns):
    """(path, text) of all files in src/, of tests and others."""
    names = subprocess.run(["git", "ls-files", *(f"src/{pattern}" for pattern in patterns)], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    for name in names.stdout.decode().split():
        if (ROOT / name).exists():
            yield name, (ROOT / name).read_text(encoding="utf-8")


def functions():
    """(place, lines, parameters) of each function."""
    for name, text in sources("*.c", "*.h"):
        for match in FUNCTION.finditer(text):
            place = f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match['name']}"
            yield place, match[0].count("\n") + 1, parameters(match["parameters"])


def parameters(text):
    """Counts them; commas in a parameter's own parentheses end none."""
    while re.search(r"\([^()]*\)", text):
        text = re.sub(r"\([^()]*\)", "", text)
    return 0 if text.strip() in ("", "void") else text.count(",") + 1


def rooms():
    """The rooms of docs/architecture.md, from the ground up."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("\n## Rooms\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)


class Shape(unittest.TestCase):
    def none(self, found):
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_functions_are_found(self):
        self.assertGreater(sum(1 for _ in functions()), 3000)
        self.assertEqual(parameters("int (*f)(int, int), struct a *b"), 2)

    def test_no_function_is_too_long(self):
        self.none([f"{place}: {lines} lines" for place, lines, _ in functions() if lines > FUNCTION_LINES])

    def test_no_function_has_too_many_parameters(self):
        self.none([f"{place}: {n} parameters" for place, _, n in functions() if n > PARAMETERS and not BESIDE.search(place.partition(":")[0])])

    def test_no_file_is_too_long(self):
        self.none([f"{name}: {text.count(chr(10))} lines" for name, text in sources("*.c", "*.h", "*.js", "*.css") if text.count("\n") > FILE_LINES])

    def test_there_are_not_too_many_files(self):
        names = [name for name, _ in sources("*.c", "*.h", "*.js", "*.css", "*.inc") if not BESIDE.search(name)]
        self.assertLessEqual(len(names), FILES)

    def test_no_room_includes_one_above_it(self):
        order = rooms()
        self.assertIn("base", order)
        wrong = []
        for name, text in sources("*.c", "*.h"):
            room = name.split("/")[1]
            if "." in room or BESIDE.search(name):
                continue
            self.assertIn(room, order, f"{name}: docs/architecture.md does not have its room")
            for path in re.findall(r'^#include "(\w+/[^"]*)"', text, re.MULTILINE):
                if order.index(path.split("/")[0]) > order.index(room):
                    wrong.append(f"{name} includes {path}")
        self.none(wrong)

    def test_files_that_are_named_are_there(self):
        texts = [*sources("*.c", "*.h"), *((name, (ROOT / name).read_text(encoding="utf-8")) for name in ("SECURITY.md", "CONTRIBUTING.md", "docs/architecture.md"))]
        named = re.compile(rf"(?<![\w/.<-])(?:src/)?((?:{'|'.join(rooms())})/[\w/]+\.[ch])\b")
        # Linux and QEMU have rooms of these names, too, with other folders in them.
        self.none([f"{name}: {path}" for name, text in texts for path in named.findall(text)
                   if not (ROOT / "src" / path).exists() and (ROOT / "src" / path).parent.exists()])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""That no retired word stands as a name in src/: the field's terms are in docs/architecture.md, "Words"."""

import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Words of names, as in settle_begin or keyed_tree.c, and the terms that took their place.
WORDS = {
    "glance": "vcpu_dump",
    "images_lift": "images_unmap",
    "keeper": "tty_supervisor",
    "keyed": "grouped_tree, group_by",
    "memo": "stack_cache, step_cache",
    "meter": "progress",
    "namer": "symbolizer",
    "newcomer": "guest_launch",
    "paper": "tty_writer",
    "peek": "read_nostop",
    "seat": "bpf_shared",
    "settle": "image_locator",
    "sheet": "text_buffer",
    "standing": "frame_state",
    "unpaused": "bpf_reader, read_nostop",
}

# Words that are good English, too: no file, struct or function begins with them.
NAMES = {
    "ahead": "preopen",
    "apart": "sandbox",
    "around": "callers_callees",
    "clean": "sanitize",
    "look": "sample, capture",
    "parts": "breakdown",
    "place": "location, cursor",
    "places": "location_table",
    "rest": "throttle",
    "several": "parallel",
    "shown": "display_name",
    "site": "pc_info",
    "slices": "time_buckets",
}

# Strings and comments are matched first: they hold no names.
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*|\b([A-Za-z_]\w*)\b', re.DOTALL)

# Definitions of structs and functions, as clang-format leaves them.
DEFINITION = re.compile(r"^(?:struct|enum|union) (\w+) \{|^[a-z][\w \t*]*[ *](\w+)\(", re.MULTILINE)

BESIDE = re.compile(r"_(test|testing)\.[ch]$")


def sources():
    """(path, text) of the C files in src/."""
    names = subprocess.run(["git", "ls-files", "src/*.c", "src/*.h"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode().split()
    for name in names:
        if (ROOT / name).exists():
            yield name, (ROOT / name).read_text(encoding="utf-8")


def has(name, word):
    return f"_{word}_" in f"_{name.lower()}_"


def begins(name, word):
    return f"{name.lower()}_".startswith(f"{word}_")


class Words(unittest.TestCase):
    def none(self, found):
        self.assertFalse(found, "\n" + "\n".join(sorted(found)))

    def test_no_name_has_a_retired_word(self):
        self.none({f"{path}: {match[1]}: say {term}" for path, text in sources() for match in TOKEN.finditer(text) if match[1]
                   for word, term in WORDS.items() if has(match[1], word)})

    def test_no_struct_and_no_function_is_called_by_one(self):
        self.none({f"{path}: {name}: say {term}" for path, text in sources() if not BESIDE.search(path)
                   for match in DEFINITION.finditer(text) for name in [match[1] or match[2]]
                   for word, term in NAMES.items() if begins(name, word)})

    def test_no_file_is_called_by_one(self):
        self.none({f"{path}: say {term}" for path, _ in sources() for part in path.split("/")[1:]
                   for word, term in (WORDS | NAMES).items() if begins(part.partition(".")[0], word)})

    def test_the_words_that_took_their_place_are_explained(self):
        text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("\n## Words\n")[2]
        self.assertGreater(len(re.findall(r"^\| [a-z]", text, re.MULTILINE)), 20)


if __name__ == "__main__":
    unittest.main()

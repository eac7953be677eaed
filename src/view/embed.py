#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Turns text files into C string constants: embed.py OUTPUT.c FILE...

The file flamegraph.js becomes `const char flamegraph_js[]`.
"""

import pathlib
import sys


def quoted(line: str) -> str:
    for special in '\\"?':  # a question mark may begin a trigraph
        line = line.replace(special, '\\' + special)
    return f'"{line}\\n"'


def constant(path: pathlib.Path) -> str:
    text = path.read_text(encoding='utf-8')
    if ']]>' in text:
        sys.exit(f'{path}: "]]>" would end the CDATA section that this goes into')
    lines = '\n'.join('\t' + quoted(line) for line in text.splitlines())
    return f'const char {path.name.replace(".", "_")}[] =\n{lines};\n'


def main() -> None:
    output, *inputs = map(pathlib.Path, sys.argv[1:])
    parts = ['#include "view/svg/flamegraph.h"\n', *map(constant, inputs)]
    output.write_text('\n'.join(parts), encoding='utf-8')


if __name__ == '__main__':
    main()

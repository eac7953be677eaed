#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Turns the parts of the page into C string constants: page_embed.py OUTPUT.c PAGE.html STYLE.css SCRIPT.js...

The scripts become one. The page allows itself nothing but this very style and
script: whatever a recording holds, it cannot bring code along.
"""

import base64
import hashlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from embed import quoted  # noqa: E402

LICENSE = 'SPDX-License-Identifier: BSD-3-Clause'


def source_hash(text: str) -> str:
    """Name of an inline script or style in a content security policy."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def read(path: str) -> str:
    text = pathlib.Path(path).read_text(encoding='utf-8')
    for end in ('</script', '</style', '<!--'):
        if end in text and not path.endswith('.html'):
            sys.exit(f'{path}: "{end}" would end what this goes into')
    return text


def constant(name: str, text: str) -> str:
    lines = '\n'.join('\t' + quoted(line) for line in text.splitlines())
    return f'const char {name}[] =\n{lines};\n'


def main() -> None:
    output, page, style, *scripts = sys.argv[1:]
    name = pathlib.Path(page).stem
    css = '\n' + read(style)
    js = "\n'use strict';\n" + ''.join(map(read, scripts))
    html = read(page).replace('@STYLE@', css).replace('@SCRIPT@', js)
    html = html.replace('@STYLE-HASH@', source_hash(css)).replace('@SCRIPT-HASH@', source_hash(js))
    before_title, rest = html.split('@TITLE@')
    before_data, behind_data = rest.split('@DATA@')
    parts = ['#include "view/page/page.h"\n', constant(f'{name}_before_title', before_title),
             constant(f'{name}_before_data', before_data), constant(f'{name}_behind_data', behind_data)]
    pathlib.Path(output).write_text('\n'.join(parts), encoding='utf-8')


if __name__ == '__main__':
    main()

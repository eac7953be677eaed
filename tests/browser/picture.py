# SPDX-License-Identifier: BSD-3-Clause
"""Flame graphs for the browser tests: how they are made, and what a browser shows of them."""

import os
import pathlib
import subprocess

import webdriver

BUILD = pathlib.Path(os.environ.get('UNIPROF_BUILD', pathlib.Path(__file__).resolve().parents[2] / 'build'))
HELPERS = BUILD / 'tests' / 'browser'


def run(program: pathlib.Path, *arguments: object, stdin: str = '') -> bytes:
    """Output of a program of the build. Lone surrogates in `stdin` stand for bytes that are no UTF-8."""
    done = subprocess.run([program, *map(str, arguments)], input=stdin.encode(errors='surrogateescape'),
                          stdout=subprocess.PIPE, timeout=300, check=True)
    return done.stdout


def draw(stacks: str, *options: str) -> bytes:
    """The picture of folded stacks, by the writer alone; see folded_to_svg.c for the options."""
    return run(HELPERS / 'folded_to_svg', *options, stdin=stacks)


def record(stacks: str, path: pathlib.Path, vcpus: int = 1) -> None:
    """Makes a recording of folded stacks, a millisecond for each sample."""
    run(HELPERS / 'folded_to_recording', path, vcpus, stdin=stacks)


# Of each kind of code, in three images: what perf script prints.
KERNEL = 0xffffffff81000000
KINDS = {
    (('work', 0x401100, '/usr/bin/web'), ('main', 0x401000, '/usr/bin/web')): 40,
    (('memcpy', 0x7f0000001000, '/usr/lib/libc.so.6'), ('work', 0x401100, '/usr/bin/web'), ('main', 0x401000, '/usr/bin/web')): 20,
    (('tcp_sendmsg', KERNEL + 0x100, '[kernel.kallsyms]'), ('main', 0x401000, '/usr/bin/web')): 20,
    (('xen_hypercall_sched_op', KERNEL + 0x300, '[kernel.kallsyms]'), ('main', 0x401000, '/usr/bin/web')): 10,
    (('default_idle', KERNEL + 0x400, '[kernel.kallsyms]'), ('do_idle', KERNEL + 0x500, '[kernel.kallsyms]')): 10,
}


def perf_script(path: pathlib.Path) -> pathlib.Path:
    """Writes the samples of KINDS, a millisecond each."""
    lines, moment = [], 1000
    for stack, times in KINDS.items():
        for moment in range(moment + 1, moment + times + 1):
            lines += [f'web 10 [000] {moment / 1000:.6f}: 1000000 cpu-clock:',
                      *(f'\t{address:16x} {name}+0x0 ({image})' for name, address, image in stack), '']
    path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return path


def uniprof(*arguments: object) -> bytes:
    return run(BUILD / 'uniprof', *arguments)


class Picture:
    """A picture that is open in the browser, seen through what the browser lays out."""

    def __init__(self, browser: webdriver.Browser, path: pathlib.Path, fragment: str = '') -> None:
        self.browser = browser
        browser.requests()
        browser.open(path.as_uri() + fragment)

    def frames(self) -> list[dict]:
        """The frames that can be seen, in the order of the file."""
        return self.browser.run('''
            return Array.from(document.querySelectorAll('.frames > g')).map((g, index) => {
                const rect = g.querySelector('rect');
                const box = rect.getBoundingClientRect();
                return {index, name: g.dataset.name, samples: Number(g.dataset.samples),
                    title: g.querySelector('title').textContent, text: g.querySelector('text')?.textContent ?? '',
                    x: box.x, y: box.y, width: box.width, height: box.height,
                    textWidth: g.querySelector('text')?.getComputedTextLength() ?? 0,
                    fill: getComputedStyle(rect).fill, hit: g.classList.contains('hit'),
                    focused: document.activeElement === g, seen: box.width > 0};
            }).filter((frame) => frame.seen)''')

    def frame(self, name: str, nth: int = 0) -> dict:
        return [frame for frame in self.frames() if frame['name'] == name][nth]

    def names(self) -> list[str]:
        return [frame['name'] for frame in self.frames()]

    def hits(self) -> list[str]:
        return [frame['name'] for frame in self.frames() if frame['hit']]

    def focused(self) -> str | None:
        return next((frame['name'] for frame in self.frames() if frame['focused']), None)

    def click(self, name: str, nth: int = 0) -> None:
        self.browser.click(*middle(self.frame(name, nth)))

    def click_on(self, selector: str, nth: int = 0) -> None:
        box = self.browser.run('''const b = document.querySelectorAll(arguments[0])[arguments[1]].getBoundingClientRect();
            return {x: b.x, y: b.y, width: b.width, height: b.height}''', selector, nth)
        self.browser.click(*middle(box))

    def search(self, pattern: str) -> None:
        self.browser.press('/')
        self.browser.type(pattern)

    def text(self, selector: str) -> str:
        return self.browser.run('return document.querySelector(arguments[0]).textContent', selector)

    def fragment(self) -> str:
        return self.browser.run('return location.hash')


def middle(box: dict) -> tuple[float, float]:
    return box['x'] + box['width'] / 2, box['y'] + box['height'] / 2

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Profiles come back: our own exports, and what perf, Go, Valgrind and others wrote."""

import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import unittest
from collections import Counter
from pathlib import Path

from exported import BUILD, INLINED_TOTAL, PLAIN, PLAIN_SELF, PLAIN_TOTAL, Exported, folded, run, totals

SPEEDSCOPE_EVENTS = {
    'profiles': [{'type': 'evented', 'name': 'main', 'unit': 'milliseconds', 'startValue': 5, 'endValue': 12,
                  'events': [{'type': 'O', 'frame': 0, 'at': 5}, {'type': 'O', 'frame': 1, 'at': 6}, {'type': 'C', 'frame': 1, 'at': 9},
                             {'type': 'C', 'frame': 0, 'at': 10}, {'type': 'O', 'frame': 1, 'at': 11}, {'type': 'C', 'frame': 1, 'at': 12}]}],
    'shared': {'frames': [{'name': 'outer', 'file': 'a.py', 'line': 3}, {'name': 'inner'}]},
    '$schema': 'https://www.speedscope.app/file-format-schema.json'}

# As of version 48, when each thread had tables of its own, with the function that Firefox calls it by.
FIREFOX_THREAD = {
    'name': 'GeckoMain', 'processName': 'web', 'pid': '12', 'tid': 13,
    'stringArray': ['outer', 'inner', 'a.js'],
    'resourceTable': {'lib': [0], 'name': [0], 'length': 1},
    'funcTable': {'name': [0, 1], 'resource': [-1, 0], 'fileName': [2, None], 'length': 2},
    'frameTable': {'func': [0, 1], 'line': [7, None], 'length': 2},
    'stackTable': {'frame': [0, 1], 'prefix': [None, 0], 'length': 2},
    'samples': {'stack': [0, 1, 1, None], 'timeDeltas': [100, 1.5, 1.5, 2], 'weight': None, 'weightType': 'samples', 'length': 4}}

PROGRAM = '''
static volatile int sink;
__attribute__((noinline)) void leaf(void) { for (int i = 0; i < 30000; i++) sink += i; }
__attribute__((noinline)) void heavy(void) { leaf(); leaf(); leaf(); sink++; }
__attribute__((noinline)) void light(void) { leaf(); sink++; }
int main(void) { for (int i = 0; i < 2000; i++) { heavy(); light(); } return 0; }
'''

GO_PROGRAM = '''
package main

import (
	"os"
	"runtime/pprof"
	"time"
)

var sink int

//go:noinline
func leaf() { for i := 0; i < 30000; i++ { sink += i } }

//go:noinline
func heavy() { leaf(); leaf(); leaf() }

func main() {
	pprof.StartCPUProfile(os.Stdout)
	for start := time.Now(); time.Since(start) < time.Second; { heavy() }
	pprof.StopCPUProfile()
}
'''


class Imported(Exported):
    def back(self, path, *options):
        """Stacks of a file, as they are read again."""
        return folded(run(BUILD / 'uniprof', 'export', '--format=folded', *options, '-o', '-', path).decode())

    def report(self, path, *options):
        return json.loads(run(BUILD / 'uniprof', 'report', '--json', *options, path))

    def rows(self, path, key='function', which='self', value='weight_ns', *options):
        rows = self.report(path, f'--by={key}', *options)['rows']
        return {row[key]: row[which][value] for row in rows if row[which][value]}

    def write(self, name, content):
        path = self.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def refused(self, path, *options):
        """The sentence that says why."""
        done = subprocess.run([BUILD / 'uniprof', 'report', *options, path], capture_output=True, text=True, check=False, timeout=60)
        self.assertIn(done.returncode, (2, 6), done.stderr)
        return done.stderr


class Again(Imported):
    """Our own exports."""

    # With stacks of their own; callgrind's are an estimate, which is right where each caller has one kind of callers.
    ENDINGS = 'folded', 'raw', 'pb.gz', 'speedscope.json', 'firefox.json', 'perf', 'data', 'callgrind'
    COUNTED = tuple(ending for ending in ENDINGS if ending != 'speedscope.json')  # it has runs of samples

    def test_stacks_are_the_same(self):
        for ending in self.COUNTED:
            with self.subTest(ending):
                self.assertEqual(self.back(self.export('threads', f'stacks.{ending}')), PLAIN)

    def test_weights_are_the_same(self):
        for ending in self.ENDINGS:
            unit = 1 if ending in ('folded', 'raw') else 1000000
            with self.subTest(ending):
                path = self.export('threads', f'weights.{ending}')
                self.assertEqual(self.rows(path), {name: n * unit for name, n in PLAIN_SELF.items()})
                self.assertEqual(self.rows(path, which='total'), {name: n * unit for name, n in PLAIN_TOTAL.items()})

    def times(self, path):
        """Microseconds of all samples since the first one, with their leaves."""
        text = run(BUILD / 'uniprof', 'export', '--format=perf-script', '-o', '-', path).decode()
        found = [(int(s) * 1000000 + int(us), name) for s, us, name in re.findall(r' (\d+)\.(\d{6}): .*\n\t\s*\w+ (\w+)', text)]
        return [(time - found[0][0], name) for time, name in found]

    def test_times_are_the_same(self):
        times = self.times(self.directory / 'threads.uniprof')
        self.assertEqual(len(times), 100)
        for ending in 'firefox.json', 'perf', 'data':
            with self.subTest(ending):
                self.assertEqual(self.times(self.export('threads', f'times.{ending}')), times)
        for ending in self.ENDINGS:
            timeless = ending in ('folded', 'raw', 'pb.gz', 'callgrind')
            with self.subTest(ending):
                path = self.export('threads', f'stretch.{ending}')
                if timeless:
                    self.assertIn('have no times', self.refused(path, '--from=1ms'))
                else:
                    self.assertLess(self.report(path, '--from=10ms')['stacks']['weight_ns'], 100000000)

    def test_vcpus_are_the_same(self):
        for ending in 'pb.gz', 'speedscope.json', 'firefox.json', 'perf', 'data':
            with self.subTest(ending):
                path = self.export('threads', f'vcpus.{ending}')
                self.assertEqual(self.report(path, '--vcpu=1')['stacks']['weight_ns'], 30000000)
                # Threads that went from vCPU to vCPU.
                path = self.export('many', f'many.{ending}')
                self.assertEqual(self.rows(path, 'vcpu'), self.rows(self.directory / 'many.uniprof', 'vcpu'))

    def test_an_import_is_exported_with_its_threads_and_vcpus(self):
        for ending in 'pb.gz', 'speedscope.json', 'firefox.json', 'perf', 'data':
            for behind in 'speedscope.json', 'firefox.json':
                with self.subTest(ending, behind=behind):
                    first, second = self.export('threads', f'first.{ending}'), self.directory / f'second.{behind}'
                    run(BUILD / 'uniprof', 'export', '-o', second, first)
                    for key in 'thread', 'vcpu':
                        self.assertEqual(self.rows(second, key), self.rows(first, key))

    def test_threads_are_the_same(self):
        by_thread = {'nginx (12)': 60, 'nginx/pool (1)\ufffd[2J (13)': 30}
        for ending, rest in (('pb.gz', '[unknown]'), ('speedscope.json', '[unknown]'), ('firefox.json', '[unknown]'),
                             ('perf', 'web_server__1_ (7)'), ('data', 'web server (1) (7)')):
            with self.subTest(ending):
                rows = {name: n // 1000000 for name, n in self.rows(self.export('threads', f'threads.{ending}'), 'thread').items()}
                self.assertEqual(rows.pop(rest), 10)
                if ending == 'perf':  # which has no blanks and no parentheses in names
                    rows = {name.replace('pool__1_\ufffd_2J', 'pool (1)\ufffd[2J'): n for name, n in rows.items()}
                self.assertEqual(rows, by_thread)
                # Of this process the main thread has no samples.
                self.assertIn('db/pool (21)' if ending != 'perf' else 'pool (21)', self.rows(self.export('many', f'many.{ending}'), 'thread'))

    def test_containers_are_the_same(self):
        own = self.rows(self.directory / 'threads.uniprof', 'container')
        self.assertEqual({name: n // 1000000 for name, n in own.items()}, {'docker:0123456789ab': 60, 'web \ufffd[2J.service': 30, '[unknown]': 10})
        for ending in 'pb.gz', 'speedscope.json':
            with self.subTest(ending):
                path = self.export('threads', f'containers.{ending}')
                self.assertEqual(self.rows(path, 'container'), own)
                # Also from an export of what came back.
                run(BUILD / 'uniprof', 'export', '-o', self.directory / f'again.{ending}', path)
                self.assertEqual(self.rows(self.directory / f'again.{ending}', 'container'), own)
        # A recording has so many bytes of a path at most.
        text = self.export('threads', 'long.speedscope.json').read_text().replace('/system.slice/web ', 600 * 'x')
        self.assertIn(511 * 'x', self.rows(self.write('long.json', text), 'container'))

    def test_states_are_the_same(self):
        path = self.export('plain', 'states.pb.gz', '--state=all')
        self.assertEqual(self.rows(path, 'function', 'self', 'samples', '--state=blocked'), {'example_middle': 50})

    def test_inlined_functions_and_lines_are_the_same(self):
        lines = self.rows(self.directory / 'inlined.uniprof', 'line')
        self.assertEqual(len(lines), 2)
        for ending in 'pb.gz', 'firefox.json', 'callgrind':
            with self.subTest(ending):
                path = self.export('inlined', f'lines.{ending}')
                self.assertEqual(totals(self.back(path)), INLINED_TOTAL)
                self.assertEqual(self.rows(path, 'line'), lines)

    def test_images_are_the_same(self):
        images = self.rows(self.directory / 'plain.uniprof', 'image')
        self.assertEqual(len(images), 1)
        for ending in 'pb.gz', 'firefox.json', 'perf', 'data':
            with self.subTest(ending):
                self.assertEqual(self.rows(self.export('plain', f'images.{ending}'), 'image'), images)

    def test_any_name_is_the_same(self):
        names = self.names()
        for ending in 'folded', 'pb.gz', 'firefox.json', 'perf':
            with self.subTest(ending):
                leaves = Counter()
                for stack, count in self.back(self.export('hostile', f'hostile.{ending}')).items():
                    leaves[stack[-1]] += count
                self.assertEqual(leaves, names)

    def test_all_views_take_them(self):
        for ending in self.ENDINGS:
            path = self.export('threads', f'views.{ending}')
            for view in ('flamegraph', '-o', self.directory / 'a.svg'), ('flamegraph', '-o', self.directory / 'a.html'):
                with self.subTest(ending, view=str(view[-1])):
                    run(BUILD / 'uniprof', *view, path)
                    self.assertIn('example_leaf' if view[-1].suffix == '.svg' else '<html', view[-1].read_text())
            self.assertIn('example_leaf', run(BUILD / 'uniprof', 'diff', '--wide', path, path).decode())

    def test_what_gzip_has_compressed_is_read_too(self):
        for ending in 'folded', 'perf', 'firefox.json', 'data':
            path = self.export('threads', f'packed.{ending}')
            with self.subTest(ending):
                packed = gzip.compress(path.read_bytes())
                self.assertEqual(self.back(self.write(f'{ending}.gz', packed)), PLAIN)
                self.assertIn('its end is missing', self.refused(self.write(f'{ending}.cut.gz', packed[:-20])))
        plain = gzip.decompress(self.export('threads', 'unpacked.pb.gz').read_bytes())
        self.assertEqual(self.back(self.write('unpacked.pb', plain)), PLAIN)

    def test_a_file_that_is_cut_is_refused_or_says_so(self):
        for ending in self.ENDINGS:
            content = self.export('threads', f'whole.{ending}').read_bytes()
            if ending == 'pb.gz':
                content = gzip.decompress(content)
            for part in 3, 2:
                with self.subTest(ending, part=part):
                    path = self.write(f'cut.{ending}', content[:len(content) * (part - 1) // part - 1])
                    done = subprocess.run([BUILD / 'uniprof', 'report', '--json', path], capture_output=True, text=True, check=False, timeout=60)
                    self.assertIn(done.returncode, (0, 6), done.stderr)


class Others(Imported):
    """Files that real tools wrote on this machine."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory.chmod(0o755)  # files of symbols are read without root's rights
        (cls.directory / 'program.c').write_text(PROGRAM)
        cls.program = cls.directory / 'program'
        run('cc', '-g', '-O0', '-o', cls.program, cls.directory / 'program.c')

    def lacks(self, name, package):
        if not shutil.which(name):
            self.skipTest(f'{name} is not installed (package {package})')

    def perf(self, *options):
        """A perf.data of the program; skips where perf cannot record."""
        self.lacks('perf', 'linux-perf')
        path = self.directory / f'perf{len(list(self.directory.glob("perf*.data")))}.data'
        done = subprocess.run(['perf', 'record', '-q', '-e', 'cpu-clock', '-F', '999', '-g', *options, '-o', path, self.program],
                              stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)
        if done.returncode or not path.stat().st_size:
            self.skipTest(f'perf cannot record here: {done.stderr.decode(errors="replace").strip()[-200:]}')
        return path

    def script(self, path):
        """What perf itself says: its text, and the head of each sample with the names of its functions, leaf first."""
        text = run('perf', 'script', '--no-inline', '-i', path).decode(errors='replace')
        return text, [(header, re.findall(r'^\s+\w+ (.+?)(?:\+0x\w+)? \(', body, re.M))
                      for header, body in re.findall(r'^(\S.*)\n((?:[ \t]+\S.*\n)*)', text, re.M)]

    def is_what_perf_says(self, path, file=None):
        text, samples = self.script(path)
        self.assertGreater(len(samples), 20)
        leaves = Counter(names[0] for _, names in samples if names)
        within = Counter(name for _, names in samples for name in set(names))
        for each in (file or path), self.write('perf.script', text):
            with self.subTest(each.name):
                report = self.report(each)
                self.assertEqual(report['stacks']['selected'], len(samples))
                total = {row['function']: row['total']['samples'] for row in report['rows']}
                for name in ('leaf', 'heavy', 'light', 'main'):
                    self.assertEqual(total.get(name, 0), within[name], name)
                own = {row['function']: row['self']['samples'] for row in report['rows']}
                self.assertEqual(own['leaf'], leaves['leaf'])
                self.assertEqual(sum(self.rows(each, 'thread', 'self', 'samples').values()), len(samples))
                self.assertIn('program', ' '.join(self.rows(each, 'thread')))
                self.assertIn(str(self.program), ' '.join(self.rows(each, 'image')))

    def test_perf_data(self):
        self.is_what_perf_says(self.perf())

    def test_perf_data_that_is_compressed(self):
        self.is_what_perf_says(self.perf('-z'))

    def test_perf_data_of_a_pipe(self):
        path = self.perf()
        piped = self.directory / 'piped.data'
        done = subprocess.run(f'perf record -q -e cpu-clock -F 999 -g -o - {self.program} > {piped}', shell=True, stdin=subprocess.DEVNULL,
                              capture_output=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = self.rows(piped, 'function', 'total', 'samples')
        self.assertGreater(rows['leaf'], 20)
        self.assertEqual(set(rows) & {'leaf', 'heavy', 'light', 'main'}, {'leaf', 'heavy', 'light', 'main'})
        self.assertEqual(self.report(path)['guest']['host'], self.report(piped)['guest']['host'])

    def test_perf_data_that_was_cut_says_so(self):
        content = self.perf().read_bytes()
        start, size = struct.unpack_from('<QQ', content, 40)
        report = self.report(self.write('cut.data', content[:start + size // 2]))
        self.assertEqual(report['ticks']['reason'], 'the file stops in the middle')

    def test_compressed_perf_data_of_a_writer_that_was_killed_has_all_samples_until_then(self):
        path = self.perf('-z')
        content = bytearray(path.read_bytes())
        start, size = struct.unpack_from('<QQ', content, 40)
        # The size is written at the end, and the sections behind the data.
        struct.pack_into('<Q', content, 48, 0)
        report = self.report(self.write('killed.data', bytes(content[:start + size])))
        self.assertEqual(report['ticks']['reason'], 'the file stops in the middle')
        self.assertEqual(report['stacks']['selected'], self.report(path)['stacks']['selected'])

    def test_several_processes_with_the_same_file(self):
        self.lacks('perf', 'linux-perf')
        path = self.directory / 'several.data'
        done = subprocess.run(['perf', 'record', '-q', '-e', 'cpu-clock', '-F', '999', '-g', '-o', path, 'sh', '-c',
                               f'{self.program} & {self.program}; wait'], capture_output=True, check=False, timeout=120)
        if done.returncode:
            self.skipTest(f'perf cannot record here: {done.stderr.decode(errors="replace")}')
        self.is_what_perf_says(path)
        processes = [name for name in self.rows(path, 'process') if name.startswith('program')]
        self.assertEqual(len(processes), 2)

    def test_callgrind(self):
        self.lacks('valgrind', 'valgrind')
        path = self.directory / 'callgrind.out'
        (self.directory / 'short.c').write_text(PROGRAM.replace('2000', '5'))
        short = self.directory / 'short'
        run('cc', '-g', '-O1', '-o', short, self.directory / 'short.c')
        run('valgrind', '--tool=callgrind', f'--callgrind-out-file={path}', short)
        text = run('callgrind_annotate', '--threshold=100', '--auto=no', path).decode()
        own = {name: int(cost.replace(',', '')) for cost, name in re.findall(r'^ *([\d,]+) \(.*?\)  \S*:(\w+) \[\S*short\]$', text, re.M)}
        text = run('callgrind_annotate', '--threshold=100', '--auto=no', '--inclusive=yes', path).decode()
        below = {name: int(cost.replace(',', '')) for cost, name in re.findall(r'^ *([\d,]+) \(.*?\)  \S*:(\w+) \[\S*short\]$', text, re.M)}
        self.assertEqual(set(own) & {'leaf', 'heavy', 'light', 'main'}, {'leaf', 'heavy', 'light', 'main'})
        rows, total = self.rows(path), self.rows(path, which='total')
        for name in 'leaf', 'heavy', 'light', 'main':
            self.assertEqual(rows[name], own[name], name)
            self.assertAlmostEqual(total[name] / below[name], 1, delta=.001)
        stacks = self.back(path)
        share = {name: sum(n for stack, n in stacks.items() if stack[-2:] == (name, 'leaf')) for name in ('heavy', 'light')}
        self.assertAlmostEqual(share['heavy'] / share['light'], 3, delta=.1)

    def test_pprof_of_go(self):
        self.lacks('go', 'golang-go')
        (self.directory / 'main.go').write_text(GO_PROGRAM)
        program, path = self.directory / 'gone', self.directory / 'go.pb.gz'
        environment = dict(os.environ, GO111MODULE='off', GOCACHE=str(self.directory / 'go-cache'), GOFLAGS='')
        run('go', 'build', '-o', program, self.directory / 'main.go', env=environment)
        path.write_bytes(run(program))
        text = run('go', 'tool', 'pprof', '-top', '-unit=ns', '-nodecount=1000', path).decode()
        cum = {name: int(ns) for ns, name in re.findall(r'(\d+)ns +\S+%  (\S+)', text)}
        self.assertIn('main.leaf', cum)
        self.assertEqual({name: ns for name, ns in self.rows(path, which='total').items() if name in cum}, cum)
        self.assertIn(str(program), ' '.join(self.rows(path, 'image')))


class Written(Imported):
    """Files of formats' other forms than ours."""

    def test_events_of_speedscope_are_stretches(self):
        path = self.write('events.json', json.dumps(SPEEDSCOPE_EVENTS))
        self.assertEqual(self.rows(path), {'outer': 2000000, 'inner': 4000000})
        self.assertEqual(self.rows(path, 'function', 'self', 'weight_ns', '--from=5ms'), {'inner': 1000000})
        self.assertEqual(self.rows(path, 'thread'), {'main': 6000000})
        self.assertEqual(self.report(path)['ticks']['elapsed_ns'], 6000000)

    def test_events_that_do_not_fit_are_refused(self):
        events = json.loads(json.dumps(SPEEDSCOPE_EVENTS))
        events['profiles'][0]['events'][2]['frame'] = 0
        self.assertIn('not the innermost', self.refused(self.write('order.json', json.dumps(events))))
        events['profiles'][0]['events'][2] = {'type': 'C', 'frame': 1, 'at': 1}
        self.assertIn('not in order of time', self.refused(self.write('time.json', json.dumps(events))))

    def test_firefox_threads_with_tables_of_their_own(self):
        profile = {'meta': {'version': 27, 'startTime': 1.7e12, 'interval': 1, 'preprocessedProfileVersion': 48},
                   'libs': [{'name': 'libxul.so', 'path': '/lib/libxul.so', 'codeId': 'abcd'}], 'threads': [FIREFOX_THREAD]}
        path = self.write('firefox.json', json.dumps(profile))
        self.assertEqual(self.rows(path), {'outer': 1, 'inner': 2, '[no stack]': 1} if '[no stack]' in self.rows(path) else {'outer': 1, 'inner': 2})
        self.assertEqual(self.rows(path, 'thread'), {'web/GeckoMain (13)': 4})
        self.assertEqual(self.rows(path, 'line')['a.js:7'], 1)
        self.assertEqual(self.rows(path, 'image')['/lib/libxul.so'], 2)
        report = self.report(path)
        self.assertEqual((report['ticks']['elapsed_ns'], report['guest']['start_unix_ns']), (5000000, 1700000000100000000))

    def test_numbers_that_lead_nowhere_are_refused(self):
        thread = json.loads(json.dumps(FIREFOX_THREAD))
        thread['stackTable']['prefix'][0] = 1
        path = self.write('loop.json', json.dumps({'meta': {}, 'threads': [thread]}))
        self.assertIn('a number in its tables is none', self.refused(path))
        scope = {'$schema': SPEEDSCOPE_EVENTS['$schema'], 'shared': {'frames': []},
                 'profiles': [{'type': 'sampled', 'unit': 'none', 'samples': [[1]], 'weights': [1]}]}
        self.assertIn("a frame's number is none", self.refused(self.write('none.json', json.dumps(scope))))

    def test_vcpus_that_do_not_fit_the_samples_are_refused(self):
        for ending in 'speedscope.json', 'firefox.json':
            text = self.export('many', f'many.{ending}').read_text()
            for wrong in '[0,1]', '[0,1,0]', '[4096,100000]', '[0.5,100000]', '[0,-1]', '[0,null]', '[null,100000]':
                with self.subTest(ending, wrong=wrong):
                    path = self.write(f'vcpus.{ending}', re.sub(r'(?<="vcpus":)\[[\d,]*\]', wrong, text))
                    self.assertIn('vCPUs are missing, or no numbers', self.refused(path))

    def test_a_bomb_does_not_go_off(self):
        """What unpacks to more than a file may have is refused, in bounded memory."""
        packed = gzip.compress(b'a;b 1\n' * (1 << 22), 9)  # 24 MiB in 25 KB
        self.assertEqual(self.back(self.write('many.gz', packed * 4)), Counter({('a', 'b'): 1 << 24}))
        deep = self.write('deep.json', '{"meta":' + '[' * 1000000)
        self.assertIn('no whole JSON', self.refused(deep))


if __name__ == '__main__':
    unittest.main()

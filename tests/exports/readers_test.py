#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Exports are what their own readers say: go tool pprof, protoc, perf, callgrind_annotate; the code of the Firefox Profiler, and Chrome's."""

import ast
import gzip
import html
import json
import re
import shutil
import subprocess
import sys
import time
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'browser'))

import npm  # noqa: E402
import trace_viewer  # noqa: E402
import webdriver  # noqa: E402
from exported import (BUILD, EXAMPLE, EXITS_SELF, HARMFUL, INLINED_SELF, INLINED_TOTAL, PLAIN, PLAIN_SELF, PLAIN_TOTAL, SOURCE, Exported,
                      folded, line_of, run, totals)  # noqa: E402
from picture import perf_script  # noqa: E402

# Only in this test: later versions bring older profiles up to date.
PROFILER_CLI = '@firefox-devtools/profiler-cli', '0.10.0'


def lacks(program, package):
    return unittest.skipUnless(shutil.which(program), f'{program} is not installed (package {package})')


@lacks('go', 'golang-go')
class Pprof(Exported):
    def pprof(self, path, *options):
        return run('go', 'tool', 'pprof', '-symbolize=none', *options, path).decode()

    def rows(self, path, *options):
        """flat and cum of each function, in units of the sample type."""
        rows = re.findall(r'^ *(\d+)\S* +\S+% +\S+% +(\d+)\S* +\S+%  (.*)$', self.pprof(path, '-top', '-nodecount=1000', *options), re.M)
        return {name: (int(flat), int(cum)) for flat, cum, name in rows}

    def test_functions_have_their_samples(self):
        rows = self.rows(self.export('plain', 'plain.pb.gz'), '-sample_index=samples')
        self.assertEqual({name: cum for name, (_, cum) in rows.items()}, PLAIN_TOTAL)
        self.assertEqual({name: flat for name, (flat, _) in rows.items() if flat}, PLAIN_SELF)

    def test_exits_are_counted(self):
        rows = self.rows(self.export('exits', 'exits.pb.gz', '--by', 'exit'), '-sample_index=samples')
        self.assertEqual({name: flat for name, (flat, _) in rows.items() if flat}, EXITS_SELF)
        self.assertEqual(rows['port'][1], EXITS_SELF['write_ports'])

    def test_time_is_what_samples_stand_for(self):
        text = self.pprof(self.export('plain', 'plain.pb.gz'), '-top')
        self.assertIn('Type: cpu\n', text)
        self.assertIn('Total samples = 100ms', text)

    def test_total_and_top_ten_are_those_of_report(self):
        path = self.export('many', 'many.pb.gz')
        total = re.search(r'of (\d+)ns total$', self.pprof(path, '-top', '-unit=ns'), re.M)[1]
        own = {name: flat for name, (flat, _) in self.rows(path, '-unit=ns').items()}
        self.is_as_reported(path, own, int(total))

    def test_images_have_their_build_id_and_place(self):
        text = self.pprof(self.export('plain', 'plain.pb.gz'), '-raw')
        identity = re.search(r'Build ID: (\w+)', run('readelf', '-n', EXAMPLE).decode())[1]
        self.assertRegex(text, rf'1: 0x1\w+/0x1\w+/0x\w+ {re.escape(str(EXAMPLE.resolve()))} {identity} \[FN\]')
        self.assertRegex(text, r'\d: 0x1\w{8} M=1 example_leaf')

    def test_inlined_functions_have_their_lines(self):
        path = self.export('inlined', 'inlined.pb.gz')
        self.assertEqual({name.removesuffix(' (inline)'): cum for name, (_, cum) in self.rows(path, '-sample_index=samples').items()},
                         INLINED_TOTAL)
        text = self.pprof(path, '-sample_index=samples', '-list=example_inlined|example_caller')
        self.assertRegex(text, rf'(?m)^ +10 +30 +{line_of("line of the call")}:\tuint64_t here = example_here')
        self.assertRegex(text, rf'(?m)^ +\. +30 +{line_of("line of what was inlined")}:\treturn example_inlined')

    def test_vcpus_and_states_can_be_told_apart(self):
        path = self.export('plain', 'states.pb.gz', '--state=all')
        rows = self.rows(path, '-sample_index=samples', '-tagfocus=blocked')
        self.assertEqual(rows, {'example_middle': (50, 50)})
        rows = self.rows(path, '-sample_index=samples', '-tagfocus=running', '-tagignore=vcpu0')
        self.assertEqual(rows['example_leaf'], (30, 30))

    def test_threads_can_be_told_apart(self):
        path = self.export('threads', 'threads.pb.gz')
        for option, middle, leaf in (('-tagfocus=comm=nginx', 60, 90), ('-tagfocus=tid=13', 0, 30), ('-tagfocus=thread_comm=pool', 0, 30)):
            rows = self.rows(path, '-sample_index=samples', option)
            self.assertEqual((rows.get('example_middle', (0, 0))[1], rows['example_leaf'][1]), (middle, leaf), option)
        self.assertEqual(self.rows(path, '-sample_index=samples', '-tagignore=pid=12')['example_outer'], (10, 10))

    def test_containers_can_be_told_apart(self):
        path = self.export('threads', 'containers.pb.gz')
        for container, middle, leaf in (('docker:0123456789ab', 60, 60), ('web', 0, 30)):
            rows = self.rows(path, '-sample_index=samples', f'-tagfocus=container={container}')
            self.assertEqual((rows.get('example_middle', (0, 0))[1], rows['example_leaf'][1]), (middle, leaf), container)
        # A thread that is not known has none.
        self.assertEqual(self.rows(path, '-sample_index=samples', '-tagignore=container=.')['example_outer'], (10, 10))

    def test_names_are_not_cut_by_a_second_demangling(self):
        names = '<u64 as core::cmp::PartialOrd>::lt', 'std::vector<int>::push_back(int&&)', 'plain'
        (self.directory / 'names.folded').write_text(''.join(f'{name} 1\n' for name in names))
        run(BUILD / 'uniprof', 'export', '-o', self.directory / 'names.pb.gz', self.directory / 'names.folded')
        text = run('go', 'tool', 'pprof', '-symbolize=local', '-raw', self.directory / 'names.pb.gz').decode()
        for name in names:
            self.assertRegex(text, rf'(?m) {re.escape(name)} :0')

    def test_any_name_can_be_read(self):
        path = self.export('hostile', 'hostile.pb.gz')
        text = self.pprof(path, '-raw')
        counts = [int(count) for count in re.findall(r'^ +(\d+) +\d+: \d', text, re.M)]
        self.assertEqual(sum(counts), sum(self.names().values()))
        for name in 'semi;colon', '<script>alert(1)</script>', 'quote"back\\slash', '\ufffdtxt.exe', '(1) compressed', 'x' * 65536:
            self.assertIn(f' {name} {name}:7 s=0', text)  # function and file
            self.assertRegex(text, rf'(?m)^\d+: 0x\w+/0x\w+/0x0 {re.escape(name)}  \[FN\]')  # an image without a build id


class Message(dict):
    """A message of protoc's text format: the values of each field, in order."""

    def __missing__(self, name):
        return []

    def one(self, name, otherwise=0):
        value, = self[name] or [otherwise]
        return value


def messages(text):
    """Reads what `protoc --decode` prints."""
    stack = [Message()]
    for line in text.splitlines():
        name, value = re.match(r'\s*(\w*)(.*)', line).groups()
        if value.endswith(' {') and not value.startswith(':'):
            stack.append(Message())
            dict.setdefault(stack[-2], name, []).append(stack[-1])
        elif not name:
            stack.pop()
        else:
            value = value.removeprefix(': ')
            dict.setdefault(stack[-1], name, []).append(ast.literal_eval('b' + value).decode('utf-8', 'surrogateescape')
                                                        if value.startswith('"') else int(value))
    return stack[0]


@lacks('protoc', 'protobuf-compiler')
class Otlp(Exported):
    TABLES = 'mapping', 'location', 'function', 'link', 'string', 'attribute', 'stack'

    def decode(self, path):
        """The request, read by Google's own decoder."""
        proto = Path(__file__).with_name('otlp.proto')
        text = run('protoc', f'-I{proto.parent}', '--decode=Request', proto, input=path.read_bytes())
        self.request = messages(text.decode())
        self.tables = self.request.one('dictionary')
        resource_profiles = self.request.one('resource_profiles')
        self.profile = resource_profiles.one('scope_profiles').one('profiles')
        self.facts = {each.one('key'): each.one('value').one('string_value') for each in resource_profiles.one('resource')['attributes']}
        return self.profile['samples']

    def string(self, i):
        return self.tables['string'][i]

    def functions(self, stack):
        """Names of the functions of a stack, leaf first."""
        for i in self.tables['stack'][stack]['location_indices']:
            for line in self.tables['location'][i]['lines']:
                yield self.string(self.tables['function'][line.one('function_index')].one('name_strindex'))

    def attributes(self, message):
        found = {}
        for i in message['attribute_indices']:
            attribute = self.tables['attribute'][i]
            (value,), = attribute.one('value').values()
            found[self.string(attribute.one('key_strindex'))] = value
        return found

    def milliseconds(self, samples):
        """Time of each stack, root first."""
        stacks = Counter()
        for sample in samples:
            stacks[tuple(self.functions(sample.one('stack_index')))[::-1]] += sample.one('values') / 1e6
        return stacks

    def test_stacks_have_their_time(self):
        samples = self.decode(self.export('plain', 'plain.otlp'))
        self.assertEqual(self.milliseconds(samples), PLAIN)
        for kind in 'sample_type', 'period_type':
            self.assertEqual([self.string(self.profile.one(kind).one(f'{what}_strindex')) for what in ('type', 'unit')],
                             ['cpu', 'nanoseconds'])
        self.assertEqual(self.profile.one('period'), 1000000)
        self.assertEqual(len(self.profile.one('profile_id', '').encode('utf-8', 'surrogateescape')), 16)

    def test_total_and_top_ten_are_those_of_report(self):
        path, own = self.directory / 'many.otlp', Counter()
        for stack, milliseconds in self.milliseconds(self.decode(self.export('many', path.name))).items():
            own[stack[-1]] += milliseconds
        self.is_as_reported(path, own, unit=1e6)

    def test_the_first_entry_of_each_table_is_zero_and_no_other_is_there_twice(self):
        samples = self.decode(self.export('inlined', 'inlined.otlp'))
        for name in self.TABLES:
            table = self.tables[name]
            self.assertIn(table[0], ('', {}), name)
            self.assertEqual(len({repr(entry) for entry in table}), len(table), name)
        kinds = {(sample.one('stack_index'), *sample['attribute_indices']) for sample in samples}
        self.assertEqual(len(kinds), len(samples))

    def test_the_guest_is_the_service(self):
        self.decode(self.export('plain', 'plain.otlp'))
        self.assertEqual(self.facts, {'service.name': 'web server (1)', 'uniprof.target': 'xen', 'uniprof.guest.id': '7',
                                      'uniprof.guest.type': 'pvh'})

    def test_images_have_their_build_id_and_place(self):
        self.decode(self.export('plain', 'plain.otlp'))
        image, = self.tables['mapping'][1:]
        self.assertEqual(self.string(image.one('filename_strindex')), str(EXAMPLE.resolve()))
        identity = re.search(r'Build ID: (\w+)', run('readelf', '-n', EXAMPLE).decode())[1]
        self.assertEqual(self.attributes(image), {'process.executable.build_id.gnu': identity})
        for place in self.tables['location'][1:]:
            self.assertEqual(place.one('mapping_index'), 1)
            self.assertTrue(image.one('memory_start') <= place.one('address') < image.one('memory_limit'))
            self.assertEqual(self.attributes(place), {'profile.frame.type': 'native'})

    def test_inlined_functions_have_their_lines(self):
        samples = self.decode(self.export('inlined', 'inlined.otlp'))
        self.assertEqual(totals(self.milliseconds(samples)), INLINED_TOTAL)
        lines = {(self.string(self.tables['function'][line.one('function_index')].one('name_strindex')), line.one('line'))
                 for place in self.tables['location'] for line in place['lines']}
        self.assertIn(('example_inlined', line_of('line of the call')), lines)
        self.assertIn(('example_caller', line_of('line of what was inlined')), lines)

    def test_vcpus_and_states_can_be_told_apart(self):
        found = Counter()
        for sample in self.decode(self.export('plain', 'states.otlp', '--state=all', '--weight=time')):
            attributes = self.attributes(sample)
            leaf = next(self.functions(sample.one('stack_index')))
            found[attributes['cpu.logical_number'], attributes['uniprof.vcpu.state'], leaf] += sample.one('values') / 1e6
        self.assertEqual(found[1, 'running', 'example_leaf'], 30)
        self.assertEqual({leaf: n for (_, state, leaf), n in found.items() if state == 'blocked'}, {'example_middle': 50})

    def test_threads_can_be_told_apart(self):
        found = Counter()
        for sample in self.decode(self.export('threads', 'threads.otlp')):
            attributes = self.attributes(sample)
            found[tuple(attributes.get(key) for key in ('process.pid', 'process.executable.name', 'thread.id', 'thread.name'))] += (
                sample.one('values') / 1e6)
        self.assertEqual(found, {(12, 'nginx', 12, 'nginx'): 60, (12, 'nginx', 13, 'pool (1)\ufffd[2J'): 30, (None,) * 4: 10})

    def test_containers_can_be_told_apart(self):
        found = Counter()
        for sample in self.decode(self.export('threads', 'containers.otlp')):
            attributes = self.attributes(sample)
            found[attributes.get('container.id'), attributes.get('process.linux.cgroup')] += sample.one('values') / 1e6
        digits = 4 * '0123456789abcdef'
        self.assertEqual(found, {(digits, f'/system.slice/docker-{digits}.scope'): 60, (None, '/system.slice/web \ufffd[2J.service'): 30, (None, None): 10})

    def test_any_name_can_be_read(self):
        samples = self.decode(self.export('hostile', 'hostile.otlp'))
        leaves = {next(self.functions(sample.one('stack_index'))) for sample in samples}
        for name in 'semi;colon', '<script>alert(1)</script>', 'quote"back\\slash', '\ufffdtxt.exe', 'x' * 65536:
            self.assertIn(name, leaves)


@lacks('callgrind_annotate', 'valgrind')
class Callgrind(Exported):
    def test_exits_are_counted(self):
        rows = self.rows(self.export('exits', 'exits.callgrind', '--by', 'exit'), event='Weight')
        self.assertEqual({name.split(':')[-1]: n for name, n in rows.items() if n}, EXITS_SELF)

    def rows(self, path, *options, event='Samples'):
        text = run('callgrind_annotate', '--threshold=100', '--auto=no', f'--show={event}', *options, path).decode()
        self.total = int(re.search(r'(?m)^ *([\d,]+) \(100.0%\)  PROGRAM TOTALS$', text)[1].replace(',', ''))
        rows = re.findall(r'^ *([\d,]+) \([\d. ]+%\)  (?!PROGRAM TOTALS)(.*?)(?: \[\])?$', text, re.M)
        return {name: int(count.replace(',', '')) for count, name in rows}

    def functions(self, *options, kind='plain'):
        """... without their files."""
        rows = self.rows(self.export(kind, f'{kind}.callgrind'), *options)
        return {name.split(':')[-1]: count for name, count in rows.items()}

    def test_self_is_told_by_function(self):
        rows = self.functions()
        self.assertEqual({name: count for name, count in rows.items() if count}, PLAIN_SELF)

    def test_total_and_top_ten_are_those_of_report(self):
        path = self.export('many', 'many.callgrind')
        rows = self.rows(path, event='Weight')
        self.is_as_reported(path, {re.fullmatch(r'(?:[^:]*real\.c:)?(.*)', name)[1]: own for name, own in rows.items()}, self.total)

    def test_inlined_functions_have_their_lines(self):
        self.assertEqual({name: n for name, n in self.functions(kind='inlined').items() if n}, INLINED_SELF)
        self.assertEqual(self.functions('--inclusive=yes', kind='inlined'), INLINED_TOTAL)
        text = run('callgrind_annotate', '--auto=yes', '--show=Samples', self.directory / 'inlined.callgrind').decode()
        self.assertRegex(text, r'(?m)^10 \([\d.%]+\)\s+uint64_t here = example_here.*\n20 \([\d.%]+\)  => .*:example_here \(20x\)$')
        self.assertRegex(text, r'(?m)return example_inlined.*\n30 \([\d.%]+\)  => .*:example_inlined \(30x\)$')

    def test_inclusive_is_what_callees_add(self):
        self.assertEqual(self.functions('--inclusive=yes'), PLAIN_TOTAL)

    def test_any_name_can_be_read(self):
        self.text('hostile', 'hostile.callgrind')
        rows = self.rows(self.directory / 'hostile.callgrind')
        self.assertEqual(sum(rows.values()), sum(self.names().values()))
        for name in '<script>alert(1)</script>', '(1) compressed', 'fn=(2) other', 'calls=3 4', '+5 17', '__proto__':
            self.assertEqual(rows.get(f'{name}:{name}'), self.names()[name], name)


@lacks('perf', 'linux-perf')
class PerfData(Exported):
    def perf(self, *arguments):
        return run('perf', *arguments).decode(errors='replace')

    def test_perf_report_finds_the_names(self):
        path = self.export('plain', 'perf.data')
        text = self.perf('report', '-i', path, '--stdio', '--no-children', '-g', 'none')
        rows = dict(re.findall(r'^ +([\d.]+)% .* \[\.\] (\w+)', text, re.M)[::-1])
        self.assertEqual({name: share for share, name in rows.items()}, {'example_leaf': '90.00', 'example_outer': '10.00'})

    def test_total_and_top_ten_are_those_of_report(self):
        path = self.export('many', 'many.data')
        # By itself perf leaves out the arguments of C++.
        text = self.perf('report', '-i', path, '--stdio', '--no-children', '-g', 'none', '--no-demangle', '--sort', 'sym',
                         '-F', 'period,sym', '-t', '|')
        rows = re.findall(r'(?m)^ *(\d+) *\|\[\.\] (.*?) *$', run('c++filt', input=text.encode()).decode())
        total = int(re.search(r'# Event count \(approx.\): (\d+)', text)[1])
        self.is_as_reported(path, {name: int(own) for own, name in rows}, total)

    def test_the_guests_processes_and_threads_are_told(self):
        path = self.export('many', 'threads.data')
        text = self.perf('script', '-i', path, '-F', 'comm,pid,tid,cpu')
        seen = Counter(re.findall(r'(?m)^ *(\S.*?\S) +(\d+)/(\d+) +\[(\d+)\]', text))
        self.assertEqual(sum(seen.values()), 948)
        self.assertEqual(set(seen), {('web server (1)', '7', '7', '000'), ('web server (1)', '7', '8', '001'), ('nginx', '12', '12', '000'),
                                     ('nginx', '12', '12', '001'), ('pool', '20', '21', '000'), ('pool', '20', '21', '001'), ('swapper', '0', '0', '000'),
                                     ('swapper', '0', '0', '001')})
        rows = re.findall(r'(?m)^ +([\d.]+)% +(nginx|pool|swapper|web server \(1\)) +export_example_guest +\[\.\] (\S+)',
                          self.perf('report', '-i', path, '--stdio', '--no-children', '-g', 'none', '--sort', 'comm,dso,sym'))
        self.assertEqual(len(rows), 24)
        self.assertEqual([(comm, name) for _, comm, name in rows[:3]], [('swapper', 'shop::rotate<char,'), ('pool', 'shop::operator<'), ('nginx', 'shop_close')])
        text = self.perf('script', '-i', path, '--show-task-events', '--show-mmap-events')
        self.assertEqual(re.findall(r'PERF_RECORD_(?:FORK|COMM).*', text),
                         ['PERF_RECORD_COMM: web server (1):7/7', 'PERF_RECORD_COMM: web server (1):7/8', 'PERF_RECORD_FORK(12:12):(7:7)',
                          'PERF_RECORD_COMM: nginx:12/12', 'PERF_RECORD_FORK(20:20):(7:7)', 'PERF_RECORD_COMM: db:20/20',
                          'PERF_RECORD_COMM: pool:20/21', 'PERF_RECORD_FORK(0:0):(7:7)',
                          'PERF_RECORD_COMM: swapper:0/0'])
        self.assertRegex(text, r'PERF_RECORD_MMAP2 7/7: .*export_example_guest')

    def test_perf_script_prints_the_stacks(self):
        text = self.perf('script', '-i', self.export('plain', 'perf.data'), '-F', 'comm,tid,time,event,ip,sym')
        self.assertEqual(collapse(text), PLAIN)

    def test_build_ids_are_told(self):
        identity = re.search(r'Build ID: (\w+)', run('readelf', '-n', EXAMPLE).decode())[1]
        text = self.perf('buildid-list', '-i', self.export('plain', 'perf.data'))
        self.assertEqual(text.split(), [identity, str(EXAMPLE.resolve())])

    def test_the_header_tells_of_the_guest_and_not_of_this_machine(self):
        text = self.perf('report', '--header-only', '-I', '-i', self.export('plain', 'perf.data'))
        for line in ('arch : x86_64', 'nrcpus online : 2', 'nrcpus avail : 2', 'time of first sample : 0.001000',
                     'time of last sample : 0.100000', 'sample duration :     99.000 ms'):
            self.assertIn(f'# {line}\n', text)
        self.assertRegex(text, r'# event : name = cpu-clock, ')
        self.assertNotRegex(text, '# (hostname|os release|cpudesc|cmdline) :')
        self.assertEqual(self.perf('evlist', '-i', self.directory / 'perf.data').split(), ['cpu-clock'])

    def test_any_name_of_guests_and_images_can_be_read(self):
        text = self.perf('script', '-i', self.export('hostile', 'perf.data'), '-F', 'comm,ip,sym,dso')
        self.assertIsNone(HARMFUL.search(text))
        self.assertEqual(text.count('\n\n'), sum(self.names().values()))
        self.assertEqual(set(re.findall(r'^(\S.*?) *$', text, re.M)), {'semi;colon <scr'})
        images = set(re.findall(r'^\t +\w+ \[unknown\] \((.*)\)$', text, re.M))
        for name in './semi;colon', './<script>alert(1)</script>', './\ufffdtxt.exe', './[vdso]', '/.//anon', '/./dev/zero':
            self.assertIn(name, images)
        self.assertFalse([name for name in images if '/tmp/perf-' in name or name == '[vdso]'])
        self.assertEqual(max(map(len, images)), 4095)

    def test_an_oddly_named_image_is_found(self):
        self.directory.chmod(0o755)  # uniprof reads what a recording names without root's rights
        odd = self.directory / 'a b;<script>"\'(1) [k]\u00e9.elf'
        shutil.copy(EXAMPLE, odd)
        run(odd, 'plain', self.directory / 'odd.uniprof')
        text = self.perf('script', '-i', self.export('odd', 'odd.data'), '-F', 'comm,tid,time,event,ip,sym')
        self.assertEqual(collapse(text), PLAIN)


def collapse(text):
    """Stacks of what perf script prints, in the way of FlameGraph's stackcollapse-perf.pl, without the command."""
    stacks, frames = Counter(), None
    for line in text.splitlines():
        if not line.strip():
            if frames is not None:
                stacks[tuple(frames)] += 1
            frames = None
        elif frames is None:
            frames = []
        else:
            name = re.fullmatch(r'\s*\w+\s+(.+?)(?:\+0x[0-9a-f]+)?(?: \(\S*\))?', line)[1]
            frames.insert(0, name.replace(';', ':'))
    return stacks


class PerfScript(Exported):
    def test_stacks_are_those_of_the_folded_export(self):
        self.assertEqual(collapse(self.text('plain', 'plain.perf')), PLAIN)

    def test_threads_are_as_perf_prints_them(self):
        text = self.text('threads', 'threads.perf')
        self.assertEqual(collapse(text), PLAIN)
        self.assertEqual(Counter(re.findall(r'(?m)^(\S+ \d+/\d+ \[\d+\]) ', text)),
                         {'nginx 12/12 [000]': 60, 'web_server__1_ 7/7 [000]': 10, 'pool__1_\ufffd_2J 12/13 [001]': 30})

    def test_inlined_functions_are_as_perf_prints_them(self):
        text = self.text('inlined', 'inlined.perf')
        self.assertEqual(totals(collapse(text)), INLINED_TOTAL)
        self.assertRegex(text, r'\n\t +(\w+) example_inlined \(inlined\)\n\t +\1 example_caller\+0x\w+ \(/\S*export_example_guest\)\n')

    def test_lines_are_as_perf_prints_them(self):
        text = self.text('plain', 'plain.perf')
        self.assertRegex(text, r'\Aweb_server__1_ 7/7 \[000\] 0\.001000: 1000000 cpu-clock: \n')
        self.assertRegex(text, r'\n\t +1[0-9a-f]{8} example_leaf\+0x4 \(/\S*export_example_guest\)\n')

    def test_any_name_can_be_read(self):
        self.assertEqual(totals(collapse(self.text('hostile', 'hostile.perf'))),
                         totals(folded(self.text('hostile', 'hostile.folded'))))

    def test_it_is_read_again(self):
        self.export('hostile', 'again.perf')
        back = run(BUILD / 'uniprof', 'export', '--format=folded', self.directory / 'again.perf').decode()
        self.assertEqual(folded(back), folded(self.text('hostile', 'hostile.folded')))


@unittest.skipUnless(shutil.which('flamegraph.pl'), 'flamegraph.pl is in no package of Debian or npm; speedscope_test.py reads this format')
class Folded(Exported):
    def test_total_and_top_ten_are_those_of_report(self):
        path = self.export('many', 'many.folded')
        titles = re.findall(r'<title>(.*) \(([\d,]+) samples, [\d.]+%\)</title>', run('flamegraph.pl', '--minwidth=0', path).decode())
        shares = {html.unescape(name): int(n.replace(',', '')) for name, n in titles}
        total = shares.pop('all')
        # Leaves have nothing below them, and are below this one.
        del shares['example_outer']
        self.is_as_reported(path, shares, total, weight='samples')


class Sizes(Exported):
    def test_a_compressed_time_line_is_smaller_than_its_recording(self):
        run(EXAMPLE, 'long', self.directory / 'long.uniprof')
        path = self.export('long', 'long.trace.json.gz')
        self.assertLess(path.stat().st_size, (self.directory / 'long.uniprof').stat().st_size)
        trace = json.loads(gzip.decompress(path.read_bytes()))
        self.assertGreater(len([sample for sample in trace['samples'] if sample['sf']]), 990000)

    def test_of_many_pauses_the_longest_are_markers(self):
        run(EXAMPLE, 'long', self.directory / 'long.uniprof')
        profile = json.loads(self.export('long', 'long.firefox.json').read_bytes())
        lengths = [end - start for thread in profile['threads']
                   for start, end in zip(thread['markers']['startTime'], thread['markers']['endTime'])]
        self.assertTrue(19000 < len(lengths) <= 20000, len(lengths))
        # They are spread evenly over 10 to 40 us.
        self.assertAlmostEqual(min(lengths), .04 - .03 * len(lengths) / 1e6, delta=.0002)
        self.assertIn(f'Pauses shorter than {min(lengths) * 1000:.3f} \u00b5s are not shown.', profile['meta']['markerSchema'][0]['description'])

    def test_all_formats_can_be_compressed(self):
        for ending in 'folded', 'perf', 'callgrind', 'speedscope.json', 'data':
            plain = self.export('plain', f'plain.{ending}').read_bytes()
            self.assertEqual(gzip.decompress(self.export('plain', f'plain.{ending}.gz').read_bytes()), plain)


@unittest.skipIf(trace_viewer.missing(), trace_viewer.missing())
@unittest.skipIf(webdriver.missing(), webdriver.missing())
class Chrome(Exported):
    """Read by Chrome's own trace viewer, in a browser."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = cls.enterClassContext(webdriver.Browser())
        cls.viewer = cls.enterClassContext(trace_viewer.TraceViewer(cls.browser))

    def threads(self, kind):
        """Threads of the exported trace by name: (start, length in ms, stack, root first), as the viewer reads them."""
        self.text(kind, f'{kind}.trace.json')
        self.viewer.open(self.directory / f'{kind}.trace.json')
        self.assertEqual(self.viewer.warnings(), [])
        threads = {thread['name']: thread for thread in self.viewer.threads()}
        self.assertEqual({thread['process'] for thread in threads.values()}, {self.process})
        lengths = {}
        for name, thread in threads.items():
            samples = sorted(thread['samples'], key=lambda sample: sample['start'])
            self.assertEqual(samples[-1]['stack'], ['(no sample)'])
            lengths[name] = [(one['start'], behind['start'] - one['start'], tuple(one['stack'][::-1]))
                             for one, behind in zip(samples, samples[1:]) if one['stack'] != ['(no sample)']]
        return lengths

    process = 'web server (1)'

    def self_time(self, threads):
        own = Counter()
        for samples in threads.values():
            for _, length, stack in samples:
                own[stack[-1]] += length
        return own

    def test_functions_have_their_time(self):
        self.assertEqual(self.self_time(self.threads('plain')), PLAIN_SELF)

    def test_total_and_top_ten_are_those_of_report(self):
        path = self.directory / 'many.trace.json'
        self.is_as_reported(path, self.self_time(self.threads('many')), unit=1e6)

    def test_inlined_functions_have_their_time(self):
        threads = self.threads('inlined')
        self.assertEqual({name: round(time, 3) for name, time in self.self_time(threads).items()}, INLINED_SELF)
        self.assertIn(('example_caller', 'example_inlined', 'example_here'), {stack for _, _, stack in threads['vCPU 0']})

    def test_each_thread_is_shown_with_its_samples(self):
        self.threads('plain')
        self.assertEqual(self.viewer.shown(), [len(thread['samples']) for thread in self.viewer.threads()])

    def test_samples_of_the_same_stack_are_one(self):
        threads = self.threads('plain')
        self.assertEqual(set(threads), {'vCPU 0', 'vCPU 1'})
        self.assertEqual(threads['vCPU 0'], [(1, 60, ('example_outer', 'example_middle', 'example_leaf')), (61, 10, ('example_outer',))])

    def test_time_without_samples_is_a_gap(self):
        run(BUILD / 'uniprof', 'export', '--from=5ms', '--to=20ms', '-o', self.directory / 'gap.trace.json', self.directory / 'plain.uniprof')
        self.viewer.open(self.directory / 'gap.trace.json')
        thread, = [thread for thread in self.viewer.threads() if thread['samples']]
        self.assertEqual([(sample['start'], sample['stack'][0]) for sample in thread['samples']], [(5, 'example_leaf'), (20, '(no sample)')])

    def test_any_name_can_be_read(self):
        self.process = json.loads(self.text('hostile', 'names.trace.json'))['traceEvents'][0]['args']['name']
        own = self.self_time(self.threads('hostile'))
        self.assertAlmostEqual(sum(own.values()) / 1.003009, sum(self.names().values()), delta=.001)
        self.assertEqual(set(self.names()) - set(name.replace(';', ':') for name in own), set())
        for name in '<script>alert(1)</script>', '(1) compressed', '__proto__', '\ufffdtxt.exe', 'x' * 65536:
            self.assertGreater(own[name], 0)
        self.assertEqual(self.browser.run('return document.querySelectorAll("body script").length'), 0)


class Firefox(Exported):
    """Read by the profiler's own code, as a program."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not shutil.which('node'):
            raise unittest.SkipTest('node is not installed (package nodejs)')
        cls.program = npm.package(*PROFILER_CLI) / 'dist/profiler-cli.js'

    def cli(self, *arguments):
        done = subprocess.run(['node', self.program, *map(str, arguments)], cwd=self.directory, capture_output=True,
                              text=True, timeout=120, env={'HOME': str(self.directory), 'PATH': '/usr/bin:/bin'}, check=False)
        return done.stdout if done.returncode == 0 else None

    def load(self, path):
        # It waits half a second for its server, which is not enough on a slow machine.
        if self.cli('load', path) is None:
            deadline = time.monotonic() + 60
            while not self.cli('status') and time.monotonic() < deadline:
                time.sleep(1)
        self.addCleanup(self.cli, 'stop', '--all')

    def functions(self, path):
        """self and total, in milliseconds, of each function, of all threads."""
        self.load(path)
        sums = {}
        processes = json.loads(self.cli('profile', 'info', '--json'))['processes']
        for thread in (thread for process in processes for thread in process['threads']):
            rows = json.loads(self.cli('thread', 'functions', '--json', '--limit', '0', '--thread', thread['threadHandle']))
            for row in rows['functions']:
                old = sums.get(row['name'], (0, 0))
                sums[row['name']] = (old[0] + row['selfSamples'], old[1] + row['totalSamples'])
        return sums

    def test_functions_have_their_time(self):
        rows = self.functions(self.export('plain', 'plain.firefox.json'))
        self.assertEqual({name: total for name, (_, total) in rows.items()}, PLAIN_TOTAL)

    def test_total_and_top_ten_are_those_of_report(self):
        path = self.export('many', 'many.firefox.json')
        self.is_as_reported(path, {name: own for name, (own, _) in self.functions(path).items()}, unit=1e6)

    def test_total_and_top_ten_of_perf_script_are_those_of_report(self):
        path = self.export('many', 'many.perf')
        # The profiler counts its samples.
        self.is_as_reported(path, {name: own for name, (own, _) in self.functions(path).items()}, weight='samples')

    def test_the_guests_processes_and_threads_are_told(self):
        self.load(self.export('many', 'threads.firefox.json'))
        processes = json.loads(self.cli('profile', 'info', '--json'))['processes']
        told = {(process['name'], process['pid'], thread['name'], thread['tid']) for process in processes for thread in process['threads']}
        self.assertEqual({tuple(map(str, each)) for each in told},
                         {('nginx', '12', 'nginx', '12'), ('db', '20', 'pool', '21'), ('swapper/0', '0', 'swapper/0', '0'),
                          ('web server (1)', '7', 'vCPU 0', '7'), ('web server (1)', '7', 'vCPU 1', '8')})

    def test_each_pause_is_a_marker(self):
        self.load(self.export('many', 'pauses.firefox.json'))
        text = self.cli('thread', 'list')
        self.assertEqual({name: int(markers) for name, markers in re.findall(r'(?m)^\W*t-\d+ +(\S.*?)  .* (\d+)$', text)},
                         {'nginx': 228, 'pool': 246, 'swapper/0': 264, 'vCPU 0': 111, 'vCPU 1': 99})
        self.assertRegex(self.cli('thread', 'markers', '--search', 'pause'), r'pause +264 markers +\(interval: min=10\.300.s, avg=11\.618.s, max=12\.300.s\)')

    def test_vcpus_use_the_cpu_in_a_category_that_is_no_other(self):
        self.load(self.export('plain', 'plain.firefox.json'))
        threads = json.loads(self.cli('profile', 'info', '--json'))['processes'][0]['threads']
        # The profiler leaves out the first sample of a thread: nothing is known of before.
        self.assertEqual([thread['cpuMs'] for thread in threads], [69, 29])
        self.assertRegex(self.cli('thread', 'samples'), r'Guest .*100\.0%')

    def test_kinds_of_code_are_categories(self):
        recording, path = perf_script(self.directory / 'kinds.perf'), self.directory / 'kinds.firefox.json'
        subprocess.run([BUILD / 'uniprof', 'export', '-o', path, recording], check=True, timeout=60)
        self.load(path)
        shares = re.findall(r'(?m)^\W*(Kernel|User|Guest|Hypervisor|Idle|Other)\b.*?([\d.]+)%', self.cli('thread', 'samples'))
        # What is idle is no activity to it: 90 samples are.
        self.assertEqual({name: round(float(share)) for name, share in shares}, {'User': 67, 'Kernel': 22, 'Hypervisor': 11})
        categories = json.loads(path.read_text(encoding='utf-8'))['meta']['categories']
        self.assertEqual([category['name'] for category in categories], ['Other', 'Kernel', 'User', 'Guest', 'Hypervisor', 'Idle'])
        self.assertIn('default_idle', {row['name'] for row in json.loads(self.cli('thread', 'functions', '--json', '--limit', '0', '--include-idle'))['functions']})

    def test_inlined_functions_have_their_lines(self):
        self.load(self.export('inlined', 'inlined.firefox.json'))
        rows = json.loads(self.cli('thread', 'functions', '--json', '--limit', '0'))['functions']
        self.assertEqual({row['name']: row['totalSamples'] for row in rows}, INLINED_TOTAL)
        handle, = [row['functionHandle'] for row in rows if row['name'] == 'example_inlined']
        annotated = json.loads(self.cli('function', 'annotate', handle, '--json'))['srcAnnotation']
        self.assertEqual(Path(annotated['filename']).resolve(), SOURCE.resolve())
        lines = {row['lineNumber']: (row['selfSamples'], row['totalSamples']) for row in annotated['lines']}
        self.assertEqual(lines[line_of('line of the call')], (10, 30))
        self.assertEqual(lines[line_of('line of what was inlined')], (0, 30))

    def test_any_name_can_be_read(self):
        self.text('hostile', 'hostile.firefox.json')
        rows = self.functions(self.directory / 'hostile.firefox.json')
        self.assertAlmostEqual(sum(own for own, _ in rows.values()), 1.003009 * sum(self.names().values()), places=3)
        self.assertIn('<script>alert(1)</script>', rows)


if __name__ == '__main__':
    unittest.main()

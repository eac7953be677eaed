#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What receivers of profiles are sent, and what is done where they refuse, stall, cut the connection or take a part."""

import base64
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
import urllib.parse
from pathlib import Path

import readers_test
from exported import BUILD, PLAIN, PLAIN_TOTAL, Exported, run
from receiver import Receiver, answer, closed_port, cut, stall

UNIPROF = BUILD / 'uniprof'
OTLP, PYROSCOPE, PARCA = '/v1development/profiles', '/ingest', '/profiles/writeraw'
NOT_WRITTEN, USAGE, INPUT, FAILED = 7, 2, 6, 1
HOST = socket.gethostname()
GUEST = 'web server (1)'


def field(number, value):
    """A field of a message: a number, or bytes."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def partial(rejected, message):
    return answer(body=field(1, (field(1, rejected) if rejected else b'') + field(2, message)), Content_Type='application/x-protobuf')


class Pushed(Exported):
    def push(self, url, *options, expect=0, kind='plain', **more):
        """What it says."""
        path = kind if isinstance(kind, Path) else self.directory / f'{kind}.uniprof'
        done = subprocess.run([str(word) for word in (UNIPROF, 'push', *options, path, url)], stdin=subprocess.DEVNULL, capture_output=True,
                              check=False, timeout=120, **more)
        text = done.stderr.decode()
        self.assertEqual(done.returncode, expect, text)
        self.assertEqual(done.stdout, b'')
        return text

    def pprof(self, data):
        """Functions and their samples, as go tool pprof reads them."""
        path = self.directory / 'pushed.pb.gz'
        path.write_bytes(data)
        text = run('go', 'tool', 'pprof', '-symbolize=none', '-top', '-sample_index=samples', path).decode()
        return {name: int(cum) for cum, name in re.findall(r'^ *\d+ +\S+% +\S+% +(\d+) +\S+%  (.*)$', text, re.M)}


class Bodies(Pushed):
    @readers_test.lacks('protoc', 'protobuf-compiler')
    def test_otlp(self):
        receiver = Receiver(self)
        said = self.push(receiver.root + OTLP)
        self.assertIn('pushed 100 samples', said)
        request, = receiver.requests
        self.assertEqual(request.path, OTLP)
        self.assertEqual(request.headers['Content-Type'], 'application/x-protobuf')
        self.assertEqual(request.headers['Content-Encoding'], 'gzip')
        self.assertNotIn('Authorization', request.headers)
        path = self.directory / 'pushed.otlp'
        path.write_bytes(gzip.decompress(request.body))
        reader = readers_test.Otlp('test_stacks_have_their_time')
        samples = reader.decode(path)
        self.assertEqual(reader.milliseconds(samples), PLAIN)
        for name in reader.TABLES:
            self.assertIn(reader.tables[name][0], ('', {}), name)
        self.assertEqual(reader.facts, {'service.name': GUEST, 'host.name': HOST, 'uniprof.target': 'xen', 'uniprof.guest.id': '7',
                                        'uniprof.guest.type': 'pvh'})
        self.assertEqual({reader.attributes(sample)['uniprof.vcpu.state'] for sample in samples}, {'running'})

    @readers_test.lacks('go', 'golang-go')
    def test_pyroscope(self):
        receiver = Receiver(self)
        self.push(receiver.root + PYROSCOPE, '--host', 'h1, {odd}', '--tenant', 'ops')
        request, = receiver.requests
        path, _, query = request.path.partition('?')
        self.assertEqual(path, PYROSCOPE)
        query = dict(urllib.parse.parse_qsl(query, strict_parsing=True))
        self.assertEqual(query['name'], 'web_server__1_{guest=web_server__1_,host=h1___odd_,kind=xen}')
        self.assertEqual(query['format'], 'pprof')
        self.assertGreaterEqual(int(query['until']) - int(query['from']), 1)
        self.assertEqual(request.headers['X-Scope-OrgID'], 'ops')
        self.assertNotIn('Content-Encoding', request.headers)
        self.assertEqual(self.pprof(request.body), PLAIN_TOTAL)

    @readers_test.lacks('go', 'golang-go')
    def test_parca(self):
        receiver = Receiver(self)
        self.push(receiver.root, '--protocol=parca', '--host', 'h"1')
        request, = receiver.requests
        self.assertEqual(request.path, PARCA)
        self.assertEqual(request.headers['Content-Type'], 'application/json')
        series, = json.loads(request.body)['series']
        labels = [(label['name'], label['value']) for label in series['labels']['labels']]
        self.assertEqual(labels, [('__name__', 'uniprof'), ('guest', GUEST), ('host', 'h"1'), ('kind', 'xen')])
        sample, = series['samples']
        self.assertEqual(self.pprof(base64.b64decode(sample['rawProfile'], validate=True)), PLAIN_TOTAL)

    def test_names_of_a_hostile_guest_are_sent_to_each(self):
        for path in OTLP, PYROSCOPE, PARCA:
            receiver = Receiver(self)
            self.push(receiver.root + path, kind='hostile')
            self.assertEqual(len(receiver.requests), 1)

    def test_a_stretch_can_be_sent_and_nothing_is_not(self):
        receiver = Receiver(self)
        self.assertRegex(self.push(receiver.root + OTLP, '--to=50ms'), 'pushed [345]. samples')
        self.assertIn('nothing to push', self.push(receiver.root + OTLP, '--from=10m', expect=INPUT))
        self.assertIn('no recording', self.push(receiver.root + OTLP, kind=Path(__file__), expect=INPUT))
        self.assertEqual(len(receiver.requests), 1)

    def test_what_is_too_large_is_refused_with_a_sentence(self):
        receiver = Receiver(self)
        path = self.directory / 'large.folded'
        path.write_text(''.join(f'f{i}{"x" * 65000} 1\n' for i in range(1100)))
        said = self.push(receiver.root + OTLP, kind=path, expect=USAGE)
        self.assertRegex(said, r'the request takes \d+ MiB, and receivers take 64 MiB at most')
        self.assertFalse(receiver.requests)


class Answers(Pushed):
    def test_a_receiver_that_has_too_much_to_do_is_asked_again_when_it_wants(self):
        receiver = Receiver(self, answer(429, Retry_After='3'))
        self.assertRegex(self.push(receiver.root + OTLP), r'answers 429: too many requests: sent again in [34]\.')
        first, second = receiver.requests
        self.assertGreaterEqual(second.when - first.when, 3)
        self.assertEqual(first.body, second.body)

    def test_it_is_tried_more_and_more_seldom_for_a_bounded_time(self):
        receiver = Receiver(self, otherwise=answer(503, b'busy\n'))
        begun = time.monotonic()
        said = self.push(receiver.root + OTLP, '--retry-for=4', expect=NOT_WRITTEN)
        self.assertLess(time.monotonic() - begun, 30)
        self.assertIn('answers 503: not available now (busy)', said)
        self.assertIn('given up', said)
        self.assertGreater(len(receiver.requests), 1)
        self.assertLess(len(receiver.requests), 8)

    def test_a_receiver_that_wants_more_patience_than_there_is_is_given_up(self):
        receiver = Receiver(self, otherwise=answer(503, Retry_After='3600'))
        self.assertIn('given up', self.push(receiver.root + OTLP, '--retry-for=10', expect=NOT_WRITTEN))
        self.assertEqual(len(receiver.requests), 1)

    def test_other_answers_are_not_asked_again(self):
        for status, said in ((400, r'answers 400 \(wrong \[31mcolour\)'), (401, 'the token is missing or wrong'), (404, 'nothing takes profiles'),
                             (413, 'too large'), (500, 'answers 500'), (302, 'it leads elsewhere')):
            receiver = Receiver(self, otherwise=answer(status, field(1, 3) + field(2, b'wrong [31mcolour') if status == 400 else b'',
                                                       Location='http://127.0.0.1:1/'))
            self.assertRegex(self.push(receiver.root + OTLP, expect=NOT_WRITTEN), said)
            self.assertEqual(len(receiver.requests), 1)

    def test_partial_success_is_told_and_not_sent_again(self):
        receiver = Receiver(self, partial(1, b'no room for it'))
        self.assertIn('took only a part and rejected 1 profile: no room for it', self.push(receiver.root + OTLP, expect=NOT_WRITTEN))
        receiver.script.append(partial(0, b'old format'))
        self.assertIn('the receiver warns: old format', self.push(receiver.root + OTLP))
        self.assertEqual(len(receiver.requests), 2)

    def test_answers_that_are_no_messages_are_answers(self):
        for body in b'\xff' * 100, b'\x0a\xff', b'{}', b'x' * 100000:
            receiver = Receiver(self, answer(200, body), answer(400, body))
            self.push(receiver.root + OTLP)
            self.push(receiver.root + OTLP, expect=NOT_WRITTEN)

    def test_what_may_be_there_twice_is_told(self):
        for misbehave, options in ((cut, ()), (stall, ('--send-timeout=1',))):
            receiver = Receiver(self, misbehave)
            self.assertRegex(self.push(receiver.root + OTLP, *options), r'no answer came: .*: sent again in .*may be there twice then')
            first, second = receiver.requests
            self.assertEqual(first.body, second.body)

    def test_a_receiver_that_is_not_there(self):
        said = self.push(f'http://127.0.0.1:{closed_port()}{OTLP}', '--retry-for=3', expect=NOT_WRITTEN)
        self.assertRegex(said, 'could not be sent: .*sent again')
        self.assertNotIn('twice', said)

    def test_an_interrupt_ends_it(self):
        for receiver in Receiver(self, otherwise=stall), Receiver(self, otherwise=answer(503, Retry_After='60')):
            with subprocess.Popen([UNIPROF, 'push', self.directory / 'plain.uniprof', receiver.root + OTLP], stderr=subprocess.PIPE) as pushing:
                while not receiver.requests:
                    self.assertIsNone(pushing.poll())
                    time.sleep(0.05)
                time.sleep(0.5)
                begun = time.monotonic()
                pushing.send_signal(signal.SIGINT)
                said = pushing.communicate(timeout=20)[1].decode()
                self.assertLess(time.monotonic() - begun, 15)
            self.assertEqual(pushing.returncode, FAILED, said)
            self.assertIn('interrupted', said)


class Trust(Pushed):
    def token(self, text='s3cret.token\n'):
        path = self.directory / 'token'
        path.write_text(text)
        return path

    def test_a_token_is_sent_and_not_told(self):
        receiver = Receiver(self, answer(), answer(401))
        said = self.push(receiver.root + OTLP, '--token-file', self.token())
        said += self.push(receiver.root + OTLP, '--token-file', self.token(), expect=NOT_WRITTEN)
        self.assertEqual(receiver.requests[0].headers['Authorization'], 'Bearer s3cret.token')
        self.assertNotIn('s3cret', said)

    def test_a_token_is_one_word_and_goes_over_no_open_network(self):
        self.assertIn('others can read it', self.push('http://example.org/ingest', '--token-file', self.token(), expect=USAGE))
        self.assertIn('others can read it', self.push('http://localhost.example.org/ingest', '--token-file', self.token(), expect=USAGE))
        for text in 'two words', '', 'a\r\nX-Other: b\n', 'x' * 10000:
            self.push(f'http://127.0.0.1:1{OTLP}', '--token-file', self.token(text), expect=INPUT)

    def test_urls_that_cannot_be_meant(self):
        for url in 'ftp://h/ingest', 'h:4318', 'http://', f'http://h{OTLP}?x', 'http://u:p@h/ingest', 'http://h/other', 'http://h/in gest', f'http://{"h" * 2000}/':
            self.push(url, expect=USAGE)

    def test_no_proxy_of_the_environment_is_used_unless_asked(self):
        nobody = f'http://127.0.0.1:{closed_port()}'
        environment = dict(os.environ, http_proxy=nobody, all_proxy=nobody, ALL_PROXY=nobody, no_proxy='', NO_PROXY='')
        receiver = Receiver(self)
        self.push(receiver.root + OTLP, env=environment)
        self.assertEqual(len(receiver.requests), 1)
        self.push(receiver.root + OTLP, '--proxy=environment', '--retry-for=0', env=environment, expect=NOT_WRITTEN)
        self.push(receiver.root + OTLP, '--proxy', nobody, '--retry-for=0', expect=NOT_WRITTEN)
        self.assertEqual(len(receiver.requests), 1)

    @readers_test.lacks('openssl', 'openssl')
    def test_certificates_are_checked(self):
        certificate = self.directory / 'certificate'
        run('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=127.0.0.1', '-addext',
            'subjectAltName=IP:127.0.0.1', '-keyout', self.directory / 'key', '-out', certificate)
        both = self.directory / 'both'
        both.write_bytes((self.directory / 'key').read_bytes() + certificate.read_bytes())
        receiver = Receiver(self, certificate=both)
        self.assertIn('certificate', self.push(receiver.root + OTLP, '--token-file', self.token(), expect=NOT_WRITTEN))
        self.assertFalse(receiver.requests)
        self.push(receiver.root + OTLP, '--token-file', self.token(), '--ca-file', certificate)
        self.push(receiver.root.replace('127.0.0.1', 'localhost') + OTLP, '--ca-file', certificate, expect=NOT_WRITTEN)
        self.assertEqual(len(receiver.requests), 1)


class Queue(Pushed):
    """The agent's queue, filled by hand: no guest is sampled."""

    def setUp(self):
        self.store = self.directory / self.id()
        self.queue = self.store / '%queue'
        self.queue.mkdir(parents=True, mode=0o700)
        self.count = 0

    def fill(self, n=1, state='ready', kind='plain'):
        for _ in range(n):
            self.count += 1
            shutil.copy(self.directory / f'{kind}.uniprof', self.queue / f'20261121T1400{self.count:02}Z.web.{state}')

    def agent(self, receiver, *options):
        log = (self.store / 'log').open('w+')
        self.addCleanup(log.close)
        agent = subprocess.Popen([UNIPROF, 'agent', '--store', self.store, '--include', 'none-of-them', '--push', receiver.root + OTLP, *options],
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        return agent

    def said(self):
        return (self.store / 'log').read_text()

    def left(self):
        return sorted(path.name for path in self.queue.iterdir())

    def wait(self, condition, what):
        for _ in range(1200):
            if condition():
                return
            time.sleep(0.05)
        self.fail(f'{what}: {self.left()}\n{self.said()}')

    def quit(self, agent):
        agent.send_signal(signal.SIGTERM)
        self.assertEqual(agent.wait(30), 0, self.said())
        return self.said()

    def test_all_of_it_is_delivered_oldest_first_and_once(self):
        receiver = Receiver(self)
        self.fill(5)
        self.fill(1, state='open')
        agent = self.agent(receiver)
        self.wait(lambda: not self.left(), 'it is not emptied')
        self.assertEqual(self.quit(agent), '')
        self.assertEqual(len(receiver.requests), 6)
        self.assertTrue(all(gzip.decompress(request.body) for request in receiver.requests))

    def test_nothing_is_lost_or_told_wrong_while_the_receiver_is_away(self):
        receiver = Receiver(self, *[answer(503)] * 3)
        self.fill(2)
        agent = self.agent(receiver)
        self.wait(lambda: not self.left(), 'it is not emptied')
        said = self.quit(agent)
        self.assertEqual(len(receiver.requests), 5)
        self.assertRegex(said, r'web: the receiver answers 503: not available now; kept, and tried again')
        self.assertEqual(said.count('503'), 1)
        self.assertIn('the receiver answers again', said)
        self.assertNotIn('twice', said)

    def test_an_answer_that_does_not_come_is_told(self):
        receiver = Receiver(self, cut)
        self.fill()
        agent = self.agent(receiver)
        self.wait(lambda: not self.left(), 'it is not emptied')
        self.assertIn('sent again, and may be there twice then', self.quit(agent))
        self.assertEqual(len(receiver.requests), 2)

    def test_what_is_refused_is_told_and_does_not_stop_the_others(self):
        receiver = Receiver(self, answer(400, b'no such thing'), partial(1, b'too old'))
        self.fill(3)
        (self.queue / '20261121T140001Z.web.ready').write_bytes(b'no recording')
        self.fill(1)
        agent = self.agent(receiver)
        self.wait(lambda: not self.left(), 'it is not emptied')
        said = self.quit(agent)
        self.assertEqual(len(receiver.requests), 3)
        self.assertRegex(said, '(?m)1 recording is not delivered; the last: 20261121T140001Z.web: .*no.* recording')
        self.assertRegex(said, '2 recordings are not delivered; the last: 20261121T140003Z.web: .* rejected 1 profile: too old')

    def test_a_wrong_token_loses_nothing(self):
        receiver = Receiver(self, answer(401))
        token = self.store / 'token'
        token.write_text('old')
        self.fill(2)
        agent = self.agent(receiver, '--token-file', token)
        self.wait(lambda: receiver.requests, 'nothing is sent')
        token.write_text('new')
        self.wait(lambda: not self.left(), 'it is not emptied')
        self.assertIn('the token is missing or wrong; kept', self.quit(agent))
        self.assertEqual([request.headers['Authorization'] for request in receiver.requests], ['Bearer old', 'Bearer new', 'Bearer new'])

    def test_the_queue_is_bounded_and_drops_its_oldest(self):
        receiver = Receiver(self, otherwise=answer(503))
        self.fill(40)
        for path in self.queue.iterdir():
            path.write_bytes(path.read_bytes() + bytes(1 << 17))
        agent = self.agent(receiver, '--max-queue=1M')
        self.wait(lambda: len(self.left()) < 9, 'nothing is dropped')
        self.assertTrue(self.left()[-1].startswith('20261121T140040Z'))
        self.assertRegex(self.quit(agent), r'push: 3\d recordings are not delivered; the last: .*: dropped, as the queue is full')
        self.assertTrue(self.left())

    def test_a_queue_survives_a_kill_and_what_may_be_there_twice_is_told(self):
        receiver = Receiver(self, otherwise=stall)
        self.fill(3)
        agent = self.agent(receiver)
        self.wait(lambda: receiver.requests, 'nothing is sent')
        agent.kill()
        agent.wait()
        self.assertEqual([name.rpartition('.')[2] for name in self.left()], ['sending', 'ready', 'ready'])
        second = Receiver(self)
        agent = self.agent(second)
        self.wait(lambda: not self.left(), 'it is not emptied')
        self.assertIn('1 recording was sent when the last agent ended, without an answer: sent again, and may be there twice', self.quit(agent))
        self.assertEqual(len(second.requests), 3)

    def test_an_end_waits_for_an_answer_that_is_on_its_way(self):
        def slow(handler):
            time.sleep(1.5)
            answer()(handler)
        receiver = Receiver(self, slow)
        self.fill(1)
        agent = self.agent(receiver)
        self.wait(lambda: receiver.requests, 'nothing is sent')
        self.assertEqual(self.quit(agent), '')
        self.assertFalse(self.left())

    @unittest.skipIf(os.geteuid(), 'only root has rights to give up')
    def test_whoever_sends_has_no_rights(self):
        if 'keeps its rights' in run(UNIPROF, '-V').decode():
            self.skipTest('a build with sanitizers gives up nothing')
        receiver = Receiver(self, otherwise=stall)
        self.fill(1)
        agent = self.agent(receiver)
        self.wait(lambda: receiver.requests, 'nothing is sent')
        children = Path(f'/proc/{agent.pid}/task/{agent.pid}/children').read_text().split()
        states = [Path(f'/proc/{pid}/status').read_text() for pid in children if os.path.exists(f'/proc/{pid}')]
        self.assertTrue([text for text in states if 'Uid:\t65534\t65534' in text and 'CapEff:\t0000000000000000' in text and 'NoNewPrivs:\t1' in text])

    def test_metrics_tell_what_was_pushed_and_what_waits(self):
        receiver = Receiver(self, answer(), answer(400), otherwise=answer(503, Retry_After='3600'))
        metrics = self.store / 'uniprof.prom'
        metrics.write_text('of an earlier agent')
        self.fill(5)
        agent = self.agent(receiver, '--metrics', metrics)
        self.wait(lambda: len(receiver.requests) == 3, 'not all is sent')
        self.wait(lambda: '# EOF' in metrics.read_text(), 'no metrics are written')
        self.quit(agent)
        lines = metrics.read_text().splitlines()
        self.assertEqual(lines[-1], '# EOF')
        self.assertEqual(metrics.stat().st_mode & 0o777, 0o644)
        values = dict(line.rsplit(' ', 1) for line in lines if not line.startswith('#'))
        self.assertEqual([values[f'uniprof_{name}'] for name in ('guests', 'push_recordings_total', 'push_lost_total', 'push_queue_recordings')],
                         ['0', '1', '1', '3'])
        self.assertEqual(int(values['uniprof_push_bytes_total']), len(receiver.requests[0].body))
        self.assertGreater(int(values['uniprof_push_queue_bytes']), 0)

    def test_without_a_receiver_or_its_token_it_does_not_begin(self):
        for options, status in (('--push', 'http://h/other'), USAGE), (('--push', 'http://localhost/ingest', '--token-file', self.store / 'none'), INPUT):
            done = subprocess.run([UNIPROF, 'agent', '--store', self.store, '--include', 'none-of-them', *options], check=False, capture_output=True, timeout=60)
            self.assertEqual(done.returncode, status, done.stderr)


if __name__ == '__main__':
    unittest.main()

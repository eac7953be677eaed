#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whatever a file of symbols or of debugging information holds, reading it takes bounded memory and time, and ends."""

import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'exports'))

from exported import BUILD, EXAMPLE, Exported, run  # noqa: E402

MEMORY = 512 << 20
CPU_S = 10
# For what waits 10 s; a busy machine takes longer.
WALL_S = 30
# Only for a test that would never end: processes are killed then.
END_S = 300

HEADERS, HEADER = 0x28, 64  # e_shoff, and the size of a section's header
SHF_COMPRESSED = 1 << 11


class Elf:
    """An ELF file of 64 bits whose sections are replaced."""

    def __init__(self, path):
        self.bytes = bytearray(path.read_bytes())
        self.headers, = struct.unpack_from('<Q', self.bytes, HEADERS)
        self.n, names = struct.unpack_from('<HH', self.bytes, 0x3c)
        start = self.get(names, 0x18)
        self.number = {}
        for i in range(self.n):
            name = start + struct.unpack_from('<I', self.bytes, self.headers + i * HEADER)[0]
            self.number[self.bytes[name:self.bytes.index(0, name)].decode()] = i

    def get(self, section, field):
        return struct.unpack_from('<Q', self.bytes, self.headers + section * HEADER + field)[0]

    def set(self, name, field, value):
        struct.pack_into('<Q', self.bytes, self.headers + self.number[name] * HEADER + field, value)

    def replace(self, name, data):
        self.set(name, 0x18, len(self.bytes))
        self.set(name, 0x20, len(data))
        self.bytes += data

    def contents(self, name):
        start = self.get(self.number[name], 0x18)
        return bytes(self.bytes[start:start + self.get(self.number[name], 0x20)])

    def pack(self, name, packed, size):
        self.replace(name, struct.pack('<IIQQ', 1, 0, size, 1) + packed)
        self.set(name, 0x08, SHF_COMPRESSED)


def bomb(size, window=zlib.MAX_WBITS):
    packer = zlib.compressobj(9, zlib.DEFLATED, window)
    step = bytes(1 << 20)
    return b''.join(packer.compress(step) for _ in range(size >> 20)) + packer.flush()


def tree(session):
    """Bytes of memory of all processes of a session, without pages of files, which the kernel can drop."""
    total = 0
    for process in Path('/proc').glob('[0-9]*'):
        try:
            if os.getsid(int(process.name)) == session:
                _, resident, shared, *_ = map(int, (process / 'statm').read_text().split())
                total += (resident - shared) * os.sysconf('SC_PAGE_SIZE')
        except (OSError, ValueError):
            pass
    return total


class Files(Exported):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory.chmod(0o755)
        cls.image = cls.directory / 'image'
        shutil.copy(EXAMPLE, cls.image)
        run(cls.image, 'inlined', cls.directory / 'image.uniprof')
        cls.good = Elf(cls.image)
        cls.packed = bomb(256 << 20)

    def elf(self):
        return Elf(EXAMPLE)

    def bounded(self, *arguments):
        """Runs uniprof; returns its status and what it said."""
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.directory / 'cache'))
        before = os.times()
        with subprocess.Popen([BUILD / 'uniprof', *arguments], cwd=self.directory, stdin=subprocess.DEVNULL, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
            peak = [0]

            def watch():
                while process.returncode is None:
                    peak[0] = max(peak[0], tree(process.pid))
                    time.sleep(0.01)

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                text, _ = process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                text, _ = process.communicate()
                text += b' (killed by the test)'
            watcher.join()
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        text = text.decode('utf-8', 'backslashreplace')
        self.assertNotIn('(killed by the test)', text)
        self.assertLessEqual(peak[0], MEMORY, text)
        self.assertLessEqual(cpu, CPU_S, text)
        self.assertGreaterEqual(process.returncode, 0, text)
        return process.returncode, text

    def given(self, name='image'):
        """The file as one of symbols: a sentence, or a report."""
        status, text = self.bounded('report', '-s', name, 'plain.uniprof')
        if status:
            self.assertEqual(status, 6, text)
            self.assertRegex(text, f'^uniprof: .*{name}')
        else:
            self.assertIn('%', text)
        return text

    def found(self, contents):
        """The file where the recording says that it is, and given."""
        self.image.unlink(missing_ok=True)
        self.image.write_bytes(contents)
        status, text = self.bounded('report', 'image.uniprof')
        self.assertEqual(status, 0, text)
        self.assertIn('%', text)
        return self.given()


class Bombs(Files):
    def test_every_debug_section_is_a_bomb(self):
        elf = self.elf()
        for name in elf.number:
            if name.startswith('.debug_'):
                elf.pack(name, self.packed, 256 << 20)
        self.found(elf.bytes)

    def test_one_debug_section_is_a_bomb(self):
        for name in '.debug_info', '.debug_line', '.debug_str', '.debug_abbrev':
            with self.subTest(name):
                elf = self.elf()
                elf.pack(name, self.packed, 256 << 20)
                self.found(elf.bytes)

    def test_a_section_says_that_it_unpacks_to_exabytes(self):
        elf = self.elf()
        elf.pack('.debug_info', zlib.compress(bytes(4096)), 1 << 60)
        self.found(elf.bytes)

    def kernel(self, size, least):
        """A kernel image that unpacks to `size` bytes, all zero, from at least so many."""
        kernel = bytearray(0x1000)
        payload = bomb(size, 16 + zlib.MAX_WBITS).ljust(least, b'\0') + struct.pack('<I', size)
        kernel[0x1f1] = 1
        struct.pack_into('<H', kernel, 0x1fe, 0xaa55)
        kernel[0x202:0x206] = b'HdrS'
        struct.pack_into('<H', kernel, 0x206, 0x20f)
        struct.pack_into('<II', kernel, 0x248, 0x1000 - 1024, len(payload))
        (self.directory / 'vmlinuz').write_bytes(bytes(kernel) + payload)
        return self.given('vmlinuz')

    def test_a_kernel_is_a_bomb(self):
        self.assertRegex(self.kernel(250 << 20, 0), rf'damaged Linux kernel image: \d+ bytes cannot unpack to {250 << 20}\n')
        self.assertIn('takes too much memory for its size', self.kernel(250 << 20, 4 << 20))

    def test_a_compressed_file_is_a_bomb(self):
        (self.directory / 'table.gz').write_bytes(bomb(256 << 20, 16 + zlib.MAX_WBITS))
        self.assertIn('unpack it first', self.given('table.gz'))


class Headers(Files):
    def test_truncated_at_each_header(self):
        whole = bytes(self.good.bytes)
        for length in 0, 3, 16, 63, 64, 100, 4096, self.good.headers, self.good.headers + 65, len(whole) - 1:
            with self.subTest(length):
                self.found(whole[:length])

    def test_sections_without_number(self):
        elf = self.elf()
        struct.pack_into('<H', elf.bytes, 0x3c, 0)
        struct.pack_into('<Q', elf.bytes, elf.headers + 0x20, 1 << 32)
        self.found(elf.bytes)

    def test_segments_without_number(self):
        elf = self.elf()
        struct.pack_into('<H', elf.bytes, 0x38, 0xffff)
        self.found(elf.bytes)

    def test_headers_without_number_in_a_sparse_file(self):
        for field, size, number in (0x20, 56, 0x38), (0x28, HEADER, 0x3c):
            with self.subTest(field):
                elf = self.elf()
                # The true number stands in the first section, which the second case has moved.
                section, start, n = elf.headers, 16 << 20, (900 << 20) // size
                struct.pack_into('<Q', elf.bytes, field, start)
                struct.pack_into('<H', elf.bytes, number, 0xffff if field == 0x20 else 0)
                struct.pack_into('<I', elf.bytes, section + 0x2c, n)
                self.found(elf.bytes)
                with self.image.open('r+b') as image:
                    image.truncate(start + n * size)
                    if field == 0x28:
                        image.seek(start + 0x20)
                        image.write(struct.pack('<Q', n))
                self.given()
                status, text = self.bounded('export', '-o', 'sparse.pb.gz', 'image.uniprof')
                self.assertEqual(status, 0, text)

    def test_sections_of_enormous_size(self):
        for name in '.symtab', '.strtab', '.text', '.note.gnu.build-id', '.eh_frame', '.debug_info', '.debug_line':
            for size in 24 << 32, (1 << 63) - 8:
                with self.subTest(name, size=size):
                    elf = self.elf()
                    elf.set(name, 0x20, size)
                    self.found(elf.bytes)

    def test_sections_overlap(self):
        elf = self.elf()
        for name in elf.number:
            if name:
                elf.set(name, 0x18, 0)
                elf.set(name, 0x20, len(elf.bytes))
        self.found(elf.bytes)

    def test_strings_without_end(self):
        elf = self.elf()
        elf.replace('.strtab', b'x' * (1 << 20))
        elf.replace('.shstrtab', b'.' * 4096)
        self.found(elf.bytes)

    def test_a_note_is_longer_than_its_section(self):
        elf = self.elf()
        elf.replace('.note.gnu.build-id', struct.pack('<III', 0xffffffff, 0xffffffff, 3) + b'GNU\0' + bytes(4096))
        self.found(elf.bytes)


class Debugging(Files):
    def test_abbreviations_without_end(self):
        elf = self.elf()
        # Number 1 is an entry with children and no attributes: the entries below it have no end.
        elf.replace('.debug_abbrev', b'\x01\x2e\x01\0\0\0')
        unit = struct.pack('<HBBI', 5, 1, 8, 0) + b'\x01' * (2 << 20)
        elf.replace('.debug_info', struct.pack('<I', len(unit)) + unit)
        self.found(elf.bytes)

    def test_a_line_program_without_end(self):
        elf = self.elf()
        header = elf.contents('.debug_line')[:64]
        # Each byte of what follows is an opcode that adds a row.
        elf.replace('.debug_line', struct.pack('<I', (4 << 20) + 60) + header[4:] + b'\xff' * (4 << 20))
        self.found(elf.bytes)

    def test_random_debugging_information(self):
        for name in '.debug_info', '.debug_abbrev', '.debug_line', '.eh_frame':
            for byte in 0x01, 0x7f, 0x80, 0xff:
                with self.subTest(name, byte=byte):
                    elf = self.elf()
                    data = bytearray(elf.contents(name))
                    data[len(data) // 4:] = bytes([byte]) * (len(data) - len(data) // 4)
                    elf.replace(name, data)
                    self.found(elf.bytes)

    def test_a_link_to_itself(self):
        stripped = self.directory / 'stripped'
        run('objcopy', '--strip-debug', '--remove-section=.note.gnu.build-id', EXAMPLE, stripped)
        run('objcopy', f'--add-gnu-debuglink={stripped}', stripped)
        self.found(stripped.read_bytes())
        self.given('stripped')

    def test_the_debug_file_is_a_fifo(self):
        stripped = self.directory / 'waiting'
        run('objcopy', '--strip-debug', EXAMPLE, stripped)
        os.mkfifo(self.directory / 'waiting.debug')
        self.given('waiting')


class Kinds(Files):
    def test_a_directory(self):
        (self.directory / 'directory').mkdir()
        self.assertIn('is a directory', self.given('directory'))

    def test_a_device(self):
        status, text = self.bounded('report', '-s', '/dev/zero', 'plain.uniprof')
        self.assertEqual(status, 6, text)
        self.assertIn('/dev/zero', text)

    def test_a_sparse_file(self):
        self.image.unlink(missing_ok=True)
        with self.image.open('wb') as image:
            image.truncate(4 << 30)
        self.assertIn('not an ELF file', self.given())

    def test_a_fifo_that_nobody_writes_to(self):
        os.mkfifo(self.directory / 'fifo')
        self.assertIn('fifo: cannot open the symbol file: No data available', self.given('fifo'))

    def test_a_fifo_whose_writer_says_nothing(self):
        os.mkfifo(self.directory / 'silent')
        began = time.monotonic()
        # For reading, too: an open for writing alone waits for the reader.
        writer = os.open(self.directory / 'silent', os.O_RDWR)
        self.addCleanup(os.close, writer)
        self.assertIn('silent: it could not be read within 10 s', self.given('silent'))
        self.assertLess(time.monotonic() - began, WALL_S)

    def test_a_socket(self):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.directory / 'socket'))
            server.listen()
            self.assertIn('socket', self.given('socket'))


if __name__ == '__main__':
    unittest.main()

# SPDX-License-Identifier: BSD-3-Clause
"""Core files as QEMU writes them, of a guest of 64 bits whose memory is full of what a search may take for a kernel's tables."""

import struct

PAGE = 4096
# Page tables, and behind them a megabyte that is mapped again and again where kernels are.
TABLES, ROUND = 4, 256
KERNEL = 0xFFFFFFFF80000000
PRESENT = 3


def _note(name, kind, desc):
    name += b"\0"
    return struct.pack("<III", len(name), len(desc), kind) + b"".join(part + bytes(-len(part) % 4) for part in (name, desc))


def _state(pc, cr3):
    """QEMU's note: general registers, pc, flags, ten segments, control registers; paging with four levels is on."""
    code = struct.pack("<4IQ", 8, 0xFFFFFFFF, 1 << 21, 0, 0)
    return struct.pack("<II", 1, 432) + struct.pack("<18Q", *[pc] * 16, pc, 2) + code + bytes(9 * 24) + struct.pack("<5Q", 0x80000011, 0, 0, cr3, 0x20)


def core(memory):
    """Core file of a guest that executes `memory`, a megabyte that repeats through all of the gigabyte where x86-64 has its kernels."""
    assert len(memory) == ROUND * PAGE
    physical = [index * PAGE | PRESENT for index in range(TABLES + ROUND)]
    top = [0] * 511 + [physical[1]]
    third = [0] * 510 + [physical[2], 0]
    second = [physical[3]] * 512
    first = physical[TABLES:] * (512 // ROUND)
    frames = b"".join(struct.pack("<512Q", *table) for table in (top, third, second, first)) + memory
    notes = _note(b"QEMU", 0, _state(KERNEL + (16 << 20), 0))
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 4, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    at = 64 + 2 * 56
    parts = struct.pack("<IIQQQQQQ", 4, 0, at, 0, 0, len(notes), 0, 0) + \
        struct.pack("<IIQQQQQQ", 1, 0, at + len(notes), 0, 0, len(frames), len(frames), 0)
    return head + parts + notes + frames


def index():
    """The token table of kallsyms: 256 tokens of one letter, and their offsets."""
    return b"a\0" * 256 + struct.pack("<256H", *range(0, 512, 2))


def markers():
    """Each 32 bytes begin markers of kallsyms, and an index comes once in a megabyte."""
    one = struct.pack("<8I", *range(0, 4096, 512))
    return one * (ROUND * PAGE // len(one) - 32) + index()


def indices():
    return index() * ROUND * 4


def notes():
    """Notes that are nearly build ids."""
    return struct.pack("<3I4s", 4, 20, 3, b"GNV\0") * (ROUND * PAGE // 16)


FLOODS = {"markers": markers, "indices": indices, "notes": notes}

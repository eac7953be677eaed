# SPDX-License-Identifier: BSD-3-Clause
"""Just enough ELF to tell which shared libraries a 64-bit file asks for."""

import struct

PT_DYNAMIC = 2
PT_INTERP = 3
PT_LOAD = 1
DT_NEEDED = 1
DT_STRTAB = 5


def is_dynamic(data):
    """True if the loader has to load libraries: for any 64-bit ELF with a dynamic section."""
    return any(kind == PT_DYNAMIC for kind, *_ in _segments(data))


def needed(data):
    """The sonames a file links to, in its own order; none for a static file or another format."""
    segments = _segments(data)
    dynamic = [data[offset:offset + size] for kind, offset, _, size in segments if kind == PT_DYNAMIC]
    if not dynamic:
        return []
    usable = len(dynamic[0]) // 16 * 16
    entries = list(struct.iter_unpack("<qQ", dynamic[0][:usable]))
    table = next((value for tag, value in entries if tag == DT_STRTAB), None)
    start = _file_offset(segments, table)
    if start is None:
        return []
    return [_string(data, start + value) for tag, value in entries if tag == DT_NEEDED]


def _segments(data):
    """(type, file offset, address, size in the file) of each program header."""
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        return []
    offset, = struct.unpack_from("<Q", data, 32)
    entry_size, count = struct.unpack_from("<HH", data, 54)
    found = []
    for i in range(count):
        at = offset + i * entry_size
        if at + 56 > len(data):
            break
        kind, _, file_offset, address, _, file_size = struct.unpack_from("<IIQQQQ", data, at)
        found.append((kind, file_offset, address, file_size))
    return found


def _file_offset(segments, address):
    for kind, offset, start, size in segments:
        if kind == PT_LOAD and address is not None and start <= address < start + size:
            return address - start + offset
    return None


def _string(data, at):
    return data[at:data.index(b"\0", at)].decode("ascii", "replace")

# SPDX-License-Identifier: BSD-3-Clause
"""Writes the "newc" cpio archive that Linux unpacks as its first root file system."""

import stat


class Archive:
    """Files of root, added in any order and written in order of their names.

    Parent directories appear by themselves. A name that is added again replaces the earlier one.
    """

    def __init__(self):
        self._entries = {}

    def __contains__(self, name):
        return name.strip("/") in self._entries

    def directory(self, name, mode=0o755):
        self._add(name, stat.S_IFDIR | mode, b"")

    def file(self, name, data, mode=0o644):
        self._add(name, stat.S_IFREG | mode, data)

    def link(self, name, target):
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def _add(self, name, mode, data):
        parts = name.strip("/").split("/")
        for depth in range(1, len(parts)):
            self._entries.setdefault("/".join(parts[:depth]), (stat.S_IFDIR | 0o755, b""))
        self._entries["/".join(parts)] = (mode, data)

    def write(self, out):
        for inode, (name, (mode, data)) in enumerate(sorted(self._entries.items()), start=1):
            _write_entry(out, inode, name.encode(), mode, data)
        _write_entry(out, 0, b"TRAILER!!!", 0, b"")


def _write_entry(out, inode, name, mode, data):
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + name + b"\0"
    out.write(header + b"\0" * (-len(header) % 4))
    out.write(data + b"\0" * (-len(data) % 4))

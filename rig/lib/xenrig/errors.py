# SPDX-License-Identifier: BSD-3-Clause
"""Errors, each with a sentence for people."""


class RigError(Exception):
    """The rig itself failed: missing tools, no packages, a lost or hung QEMU."""


class NotOffered(RigError):
    """A mirror lacks a file that its own list has: nothing here can help."""


class RigTimeout(RigError):
    """A command in the machine took longer than it was allowed; `output` is what it said until then."""

    def __init__(self, sentence, output=b""):
        super().__init__(sentence)
        self.output = output

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes every call edge that a guest's code can take, one `caller callee` a line.

The edges are those that can stand on a stack: direct calls, and, where a function ends in a jump
to another, calls from its callers to that other one. Indirect calls are taken from a file of such
lines, of which only those count whose two functions are in the image. In that file the caller `*`
stands for whatever an interrupt can find running: all functions but those that only its handler
calls.
"""
import argparse
import re
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = r"^\s*[0-9a-f]+:\s+(?:bnd |notrack )?"
TARGET = r"[0-9a-f]+ <([^>+]+)(?:\+0x[0-9a-f]+)?>"
DIRECT = re.compile(INSTRUCTION + r"(call|j\w+)\s+" + TARGET)
DIRECT_ARM64 = re.compile(INSTRUCTION + r"(bl?|b\.\w+|cbn?z|tbn?z)\s+(?:\w+, (?:#\d+, )?)?" + TARGET)
CONDITION = "(?:eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)"
DIRECT_ARM32 = re.compile(INSTRUCTION + rf"(blx?|bl{CONDITION}|b{CONDITION}?(?:\.[nw])?|cbn?z)\s+(?:\w+, )?" + TARGET)
# A pair of instructions is one branch: objdump says where the second leads to.
DIRECT_RISCV64 = re.compile(INSTRUCTION + r"(jalr?|jr?|b\w+)\s+(?:(?:\w+,)*|.* # )" + TARGET)
CALL = re.compile(rf"call|blx?|bl{CONDITION}|jalr?")
DIRECTS = DIRECT, DIRECT_ARM64, DIRECT_ARM32, DIRECT_RISCV64
ANYTHING = "*"
INDIRECT = re.compile(INSTRUCTION + r"(?:l?(?:call|jmp)q?\s+\*|blr\s|br\s|blx\s+r|bx\s+r|jalr\s|jr\s)")


class Code:
    """Facts from the disassembly: functions, calls, tail jumps, and functions that branch indirectly."""

    def __init__(self, disassembly):
        self.functions, self.calls, self.jumps, self.indirect = set(), set(), set(), set()
        current = None
        for line in disassembly:
            if match := FUNCTION.match(line):
                current = match[1]
                self.functions.add(current)
            elif match := next(filter(None, (direct.match(line) for direct in DIRECTS)), None):
                self._branch(current, match[1], match[2])
            elif INDIRECT.match(line):
                self.indirect.add(current)

    def _branch(self, current, kind, target):
        if CALL.fullmatch(kind):
            self.calls.add((current, target))
        elif target != current:
            self.jumps.add((current, target))


def close_over_jumps(calls, jumps):
    """A call of a function that jumps on is, once it jumped, a call of where it went."""
    edges, work = set(calls), list(calls)
    while work:
        caller, callee = work.pop()
        for edge in ((caller, to) for via, to in jumps if via == callee):
            if edge not in edges:
                edges.add(edge)
                work.append(edge)
    return edges


def called_from(edges, roots):
    """The functions and all that they lead to."""
    found, work = set(roots), list(roots)
    while work:
        caller = work.pop()
        new = {callee for via, callee in edges if via == caller} - found
        found |= new
        work += new
    return found


def interrupted(code, edges, handlers):
    """Code under a handler was not called: it was interrupted, with interrupts on."""
    found = set()
    for handler in handlers & code.functions:
        elsewhere = called_from(edges, code.functions - called_from(edges, {handler}))
        found |= {(function, handler) for function in elsewhere - {handler}}
    return found


def edges_of(code, known_indirect):
    """All edges; ValueError names the functions whose indirect branches nobody has written down."""
    unknown = code.indirect - {caller for caller, _ in known_indirect}
    if unknown:
        raise ValueError("no edges are written down for the indirect branches of: "
                         + ", ".join(sorted(unknown)))
    indirect = {(caller, callee) for caller, callee in known_indirect
                if caller in code.indirect and callee in code.functions}
    edges = close_over_jumps(code.calls | indirect, code.jumps)
    handlers = {handler for caller, handler in known_indirect if caller == ANYTHING}
    return edges | interrupted(code, edges, handlers)


def read_edges(lines):
    pairs = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return {(caller, callee) for caller, callee in pairs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objdump", default="objdump")
    parser.add_argument("--indirect", required=True, help="file with the edges of indirect calls")
    parser.add_argument("image")
    parser.add_argument("output")
    options = parser.parse_args()
    listing = subprocess.run([options.objdump, "-d", "--no-show-raw-insn", options.image],
                             check=True, capture_output=True, text=True).stdout
    with open(options.indirect, encoding="utf-8") as file:
        known_indirect = read_edges(file)
    try:
        edges = edges_of(Code(listing.splitlines()), known_indirect)
    except ValueError as error:
        sys.exit(f"{options.image}: {error}")
    with open(options.output, "w", encoding="utf-8") as file:
        file.writelines(f"{caller} {callee}\n" for caller, callee in sorted(edges))


if __name__ == "__main__":
    main()

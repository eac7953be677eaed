# SPDX-License-Identifier: BSD-3-Clause
"""Judges the stacks of a profile by the code that ran: what cannot be, what is missing, and what was said of it."""

import collections
import re

FRAME = re.compile(r"^\s+([0-9a-f]+) ")
# Ahead of an outermost call: the frame pointer is cleared (System V ABI, "process initialization").
CLEARS_FRAME_POINTER = re.compile(r"xor\w*\s+%[re]bp,%[re]bp|mov\s+[xw](?:29|30), [xw]zr|li\s+(?:s0|ra|fp),0|mov\s+x29, #0x0")

# It is so few instructions ahead, at the most.
BEGINNING = 12


def parse_perf_script(text):
    """[addresses of a stack, innermost first], one for each sample."""
    stacks, stack = [], []
    for line in text.splitlines():
        match = FRAME.match(line)
        if match:
            stack.append(int(match[1], 16))
        elif stack:
            stacks.append(tuple(stack))
            stack = []
    return stacks + ([stack] if stack else [])


class Verdict:
    """Counts samples, by what is wrong with them, each with its reason."""

    def __init__(self, code, outermost=()):
        """`outermost` names functions that are reached by a pointer and begin a stack: that no code tells."""
        self.code, self.outermost, self.samples, self.outside = code, set(outermost), 0, 0
        self.impossible, self.missing, self.roots = (collections.Counter() for _ in range(3))

    def judge(self, stack):
        self.samples += 1
        # perf's callers are the last bytes of their calls.
        stack = [stack[0], *(address + 1 if self.code.call_before(address + 1) else address for address in stack[1:])]
        self.outside += not all(map(self.code.covers, stack))
        exact = True
        for inner, outer in zip(stack, stack[1:]):
            reason, exact = self._edge(inner, exact, outer)
            if reason:
                self.impossible[reason] += 1
                return
        self._root(stack[-1], exact)

    def _place(self, address, exact):
        """The instruction at which a frame stands: that which runs next, or its call."""
        call = None if exact else self.code.call_before(address)
        return call.address if call else address

    def _edge(self, inner, exact, outer):
        """(why outer cannot have called inner; None if it can, whether outer was interrupted)"""
        code, pc = self.code, self._place(inner, exact)
        if not (code.covers(pc) and code.covers(outer)):
            return None, False
        call = code.call_before(outer)
        if not call:
            if code.returns_from_interrupt(pc):
                return None, True
            return f"{code.name(outer)} at {outer:#x} -> {code.name(pc)}: there is no call before the return address", False
        if call.target is None:
            if code.in_taken(pc) or code.in_called(pc):
                return None, False
            return f"{code.name(outer - 1)} at {outer:#x} -> {code.name(pc)} at {pc:#x}: no pointer leads there", False
        if code.leads_to(call.target, pc):
            return None, False
        if code.returns_from_interrupt(pc):
            return None, True
        return f"{code.name(outer - 1)} at {outer:#x} -> {code.name(pc)} at {pc:#x}: it calls {code.name(call.target)}", False

    def _root(self, address, exact):
        code, pc = self.code, self._place(address, exact)
        if not code.covers(pc):
            return
        self.roots[code.name(pc)] += 1
        reason = self._why_not_outermost(pc)
        if reason:
            self.missing[f"{code.name(pc)} at {pc:#x}: {reason}"] += 1

    def _why_not_outermost(self, pc):
        code = self.code
        if (code.elf.entry is not None and pc in code.flow(code.elf.entry)[0]) or code.name(pc) in self.outermost:
            return None
        if code.returns_from_interrupt(pc):
            return None if code.serves(pc) else "it interrupts what runs"
        if self._begins_frames(pc):
            return None
        return code.may_be_called(pc)

    def _begins_frames(self, pc):
        """Whether the frame pointer is cleared shortly ahead of the call."""
        for _ in range(BEGINNING):
            before = self.code.by_end.get(pc)
            if not before or before.kind in ("end", "jump", "handler_return"):
                return False
            if CLEARS_FRAME_POINTER.match(f"{before.name} {before.operands}"):
                return True
            pc = before.address
        return False


def told(verdict, ends):
    """Lines of what came out, and whether it is all right. `ends` is what the report says of the stacks' ends."""
    cut = sum(ends.values()) - ends["whole"]
    missing = sum(verdict.missing.values())
    falsely = max(0, cut - missing)
    unsaid = max(0, missing - cut)
    lines = [f"{verdict.samples} samples, {sum(verdict.impossible.values())} with an impossible edge, {missing} with a missing caller"
             f" ({unsaid} of them not said), {cut} said to be cut short ({falsely} of them falsely), {verdict.outside} that lead outside of the file"]
    for kind, counter in (("impossible", verdict.impossible), ("missing", verdict.missing)):
        lines += [f"  {kind}: {n} {reason}" for reason, n in counter.most_common(8)]
    lines.append("  outermost: " + ", ".join(f"{name} {n}" for name, n in verdict.roots.most_common(6)))
    # What is never in the file is another file's guest.
    return lines, not (verdict.impossible or unsaid or falsely) and verdict.outside < max(verdict.samples, 1)

# SPDX-License-Identifier: BSD-3-Clause
"""A guest's code as a graph of instructions, from its disassembly alone: no symbols, no unwind tables."""

import bisect
import re
import struct
import subprocess
import tempfile
from pathlib import Path

LINE = re.compile(r"^\s*([0-9a-f]+):\t((?:[0-9a-f]{2} |[0-9a-f]{4,8} )+)\s*(?:\t(.*))?$")
ADDRESS = re.compile(r"(?:^|[\s,])(?:0x)?([0-9a-f]+)(?: <[^>]*>)?$")
REGISTER = re.compile(r"(?:^|,)a[0-7]$")
PREFIXES = re.compile(r"^(?:bnd|notrack|data16|cs|ds|rex\.W|repz|addr32) ")
PT_LOAD, PT_NOTE, SHT_NOTE = 1, 4, 7
# Bytes of a stub of the hypercall page, which Xen writes: in the file stands one byte again and again.
STUB = 32


class Isa:
    """By the names of instructions: which call, which jump, which end, and which return from an interrupt."""

    def __init__(self, objdump, raw, call, jump, branch, end, handler_return):
        self.objdump, self.raw = objdump, raw
        words = {"handler_return": handler_return, "end": end, "call": call, "jump": jump, "branch": branch}
        self.kinds = {kind: re.compile(rf"(?:{names})$") for kind, names in words.items()}
        self.known = {}

    def kind(self, name):
        """Kind of the instructions of a name; None of those that go on behind themselves."""
        if name not in self.known:
            self.known[name] = next((kind for kind, names in self.kinds.items() if names.match(name)), None)
        return self.known[name]


X86 = Isa("objdump", "i386:x86-64", r"l?call[lqw]?", r"l?jmp[lqw]?", r"j\w+|loop\w*", r"l?ret[fqlw]?|ud2|ljmp\w*", r"iret[qlw]?|sysret[ql]?")
ARM64 = Isa("aarch64-linux-gnu-objdump", "aarch64", "blr?", "br?", r"b\.\w+|cbn?z|tbn?z", "ret|udf", "eret")
RISCV = Isa("riscv64-linux-gnu-objdump", "riscv:rv64", "jalr?", "jr?", r"b\w+", "ret|unimp|c.unimp", "[msu]ret")
# What makes a stack of a register that is neither this stack nor its frame pointer, nor kept for a caller: nobody's callee goes on there.
TAKES_STACK = re.compile(r"(?:mov|and|add|sub)\s+sp,\s?x(?:[0-9]|1[0-8]|30)\b|(?:mv|add|addi|sub)\s+sp,(?!sp|s\d)|"
                         r"mov[lq]?\s+(?:\$|0x|%[re]?[acd]x,|%[re][sd]i,|\(|%r\d+d?,).*%[re]sp$")
# What a retpoline does with the return address of its call.
OVERWRITES_RETURN = re.compile(r"movq? +%r\w+,\(%rsp\)$")
# A number in a register, which the next instruction may jump to: operands, number, register.
LOADED = re.compile(r"\$0x([0-9a-f]+),(%\w+)$")
ADRP = re.compile(r"adrp\s+(x\d+), (?:0x)?([0-9a-f]+)\b")
ADD = re.compile(r"add\s+(x\d+), (x\d+), #0x([0-9a-f]+)\b")
# By name, for code that is in no file.
MODES = {"x86-64": (X86, ["-m", "i386:x86-64"], 64), "i386": (X86, ["-m", "i386"], 32), "arm64": (ARM64, [], 64), "riscv64": (RISCV, [], 64)}
# ELF's e_machine; 64-bit code of x86 is also found in files for i386.
MACHINES = {3: (X86, ["-m", "i386"]), 62: (X86, []), 183: (ARM64, []), 243: (RISCV, [])}


class Instruction:
    __slots__ = ("address", "end", "name", "operands", "target", "kind")

    def __init__(self, address, size, text, isa):
        # Numbers of Arm begin like comments of the others.
        words = PREFIXES.sub("", text.split("//" if isa is ARM64 else "#")[0].strip()).split(None, 1)
        self.address, self.end = address, address + size
        self.name, self.operands = (words + ["", ""])[:2]
        target = ADDRESS.search(self.operands)
        # Registers of RISC-V are called like numbers: a5.
        star = "*" in self.operands or "(" in self.operands or (isa is RISCV and REGISTER.search(self.operands))
        self.target = int(target[1], 16) if target and not star else None
        self.kind = isa.kind(self.name)
        # RISC-V: which register a jump leaves the return address in tells a call from a jump.
        if isa is RISCV and self.kind == "call" and self.operands.split(",")[0] in ("zero", "t0"):
            self.kind = "jump"


class Elf:
    """What is needed of an ELF file: executable bytes, data, the entry, and where Xen begins."""

    def __init__(self, path):
        data = Path(path).read_bytes()
        if data[:4] != b"\x7fELF":
            raise ValueError(f"{path} is no ELF file")
        self.path, self.data, self.bits = path, data, 64 if data[4] == 2 else 32
        self.machine, = struct.unpack_from("<H", data, 18)
        long = self.bits == 64
        self.entry, offset = struct.unpack_from("<QQ" if long else "<II", data, 24)
        size, count = struct.unpack_from("<HH", data, 54 if long else 42)
        self.segments, self.notes = [], {}
        for i in range(count):
            at = offset + i * size
            if long:
                kind, flags, start, address, _, length = struct.unpack_from("<IIQQQQ", data, at)
            else:
                kind, start, address, _, length, _, flags = struct.unpack_from("<IIIIIII", data, at)
            if kind == PT_LOAD:
                self.segments.append((address, data[start:start + length], bool(flags & 1)))
            elif kind == PT_NOTE:
                self._read_notes(data[start:start + length])
        self._read_note_sections(long)

    def _read_note_sections(self, long):
        """Not all linkers of guests make program headers for notes."""
        offset, = struct.unpack_from("<Q" if long else "<I", self.data, 40 if long else 32)
        size, count = struct.unpack_from("<HH", self.data, 58 if long else 46)
        for at in range(offset, offset + size * count, size):
            kind, = struct.unpack_from("<I", self.data, at + 4)
            start, length = struct.unpack_from("<QQ" if long else "<II", self.data, at + (24 if long else 16))
            if kind == SHT_NOTE:
                self._read_notes(self.data[start:start + length])

    def _read_notes(self, data):
        at = 0
        while at + 12 <= len(data):
            name, size, kind = struct.unpack_from("<III", data, at)
            start = at + 12 + (name + 3 & ~3)
            if data[at + 12:at + 12 + name] == b"Xen\0":
                self.notes[kind] = data[start:start + size]
            at = start + (size + 3 & ~3)


class Memory:
    """A guest's memory in place of a file: what firmware has unpacked and moved is only there."""

    entry = None

    def __init__(self, mode, segments, pointers):
        """segments: [(address, bytes)] of code; pointers: {word: where in memory it is} of those that may lead there"""
        self.isa, self.options, self.bits = MODES[mode]
        self.segments, self.pointers = [(address, data, True) for address, data in segments], pointers


def without_zeros(data, isa):
    """Bytes with no-operations in place of long runs of zeros: two zeros begin an instruction of x86, and an odd run would swallow the
    first bytes of the function behind it. The first zeros stay: the instruction before may end in them."""
    return re.sub(rb"(\0{15})(\0{17,})", lambda match: match[1] + b"\x90" * len(match[2]), data) if isa is X86 else data


def is_64_bit(elf):
    """Whether an ELF file of 32 bits holds 64-bit code: only that has prefixes of 64 bits so often."""
    code = b"".join(data for _, data, executable in elf.segments if executable)
    return len(re.findall(rb"[\x48\x4c][\x89\x8b\x8d\x83]", code)) > len(code) // 200


class Code:
    """All instructions, and where each leads."""

    def __init__(self, source):
        """source: an ELF file's path, or a Memory"""
        self.elf, self.names = source, []
        if isinstance(source, Memory):
            self.isa, options = source.isa, source.options
        else:
            self.elf, self.names = Elf(source), symbols(source)
            if self.elf.machine not in MACHINES:
                raise ValueError(f"{source}: nothing is known of machine {self.elf.machine}")
            self.isa, options = MACHINES[self.elf.machine]
            if self.elf.machine == 3 and is_64_bit(self.elf):
                options = ["-m", "i386:x86-64"]
        # Addresses that code computes, and where.
        self.at, self.by_end, self.computed = {}, {}, {}
        self._flows = {}
        self._read(options)
        self._see_through_retpolines()
        self.order = sorted(self.at)
        self.taken = self._taken()
        self._taken_flow = self._called_flow = self._entered = self._callable = self._starts = None

    def _listings(self, options):
        """objdump's lines of all code; where no section says that it is code, of what is loaded as such."""
        command = [self.isa.objdump, "-z", *options]
        listing = run([*command, "-d", self.elf.path]) if isinstance(self.elf, Elf) else []
        if any(LINE.match(line) for line in listing):
            yield from listing
            return
        raw = options or ["-m", self.isa.raw]
        for address, data, executable in self.elf.segments:
            with tempfile.NamedTemporaryFile() as file:
                file.write(without_zeros(data, self.isa) if executable else b"")
                file.flush()
                yield from run([*command, "-D", "-b", "binary", *raw, f"--adjust-vma={address:#x}", file.name])

    @staticmethod
    def _note_target(before, jump):
        """A jump to the number that the instruction before it has loaded: vectors that were copied away from their handler."""
        match = LOADED.match(before.operands) if before and before.end == jump.address and before.name.startswith("mov") else None
        if match and jump.kind == "jump" and jump.operands == f"*{match[2]}":
            jump.target = int(match[1], 16)

    def _note_computed(self, text, pages):
        """Relative to the instruction, as objdump has computed it; on Arm a page, and a number in a later instruction."""
        instruction = self.last
        for word in re.findall(r"# (?:0x)?([0-9a-f]+)", text) if "#" in text else ():
            self.computed.setdefault(int(word, 16), set()).add(instruction.address)
        if match := ADRP.match(text):
            pages[match[1]] = int(match[2], 16)
        elif (match := ADD.match(text)) and match[2] in pages:
            self.computed.setdefault(pages[match[2]] + int(match[3], 16), set()).add(instruction.address)

    def _read(self, options):
        last, pages = None, {}
        for line in self._listings(options):
            match = LINE.match(line)
            if not match:
                continue
            address, size = int(match[1], 16), len(match[2].replace(" ", "")) // 2
            if match[3] is None and last:
                # The rest of a long instruction's bytes.
                self.by_end.pop(last.end, None)
                last.end = address + size
            elif match[3]:
                self.last = self.at[address] = Instruction(address, size, match[3], self.isa)
                self._note_target(last, self.last)
                last = self.last
                self._note_computed(match[3], pages)
            if last:
                self.by_end[last.end] = last

    def _see_through_retpolines(self):
        """A call or jump to what returns to where a register points (against Spectre) leads to where that does."""
        for instruction in self.at.values():
            call = self.at.get(instruction.target) if instruction.kind in ("call", "jump") else None
            taken = self.at.get(call.target) if call and call.kind == "call" else None
            if taken and OVERWRITES_RETURN.match(f"{taken.name} {taken.operands}"):
                instruction.target = None

    def covers(self, address):
        return self.order[0] <= address <= self.order[-1]

    def call_before(self, address):
        """The call that returns to an address."""
        found = self.by_end.get(address)
        return found if found and found.kind == "call" else None

    def successors(self, instruction):
        """Where it leads without a call: addresses, and whether it may lead elsewhere, too."""
        if instruction.kind in ("end", "handler_return"):
            return [], False
        if instruction.kind == "jump":
            return ([instruction.target], False) if instruction.target is not None else ([], True)
        if instruction.kind == "branch" and instruction.target is not None:
            return [instruction.end, instruction.target], False
        return [instruction.end], False

    def takes_stack(self, instruction):
        return bool(TAKES_STACK.match(f"{instruction.name} {instruction.operands}"))

    def reach(self, starts, one_stack=False):
        """(addresses of all that may run from these on in the same frame, whether it jumps to where no code tells,
        whether it returns from an interrupt); one_stack: up to where it takes over another stack"""
        seen, work, open_end, returns = set(), list(starts), False, False
        while work:
            address = work.pop()
            instruction = self.at.get(address)
            if address in seen or not instruction:
                continue
            seen.add(address)
            if one_stack and self.takes_stack(instruction):
                continue
            to, elsewhere = self.successors(instruction)
            open_end |= elsewhere
            returns |= instruction.kind == "handler_return"
            work += to
        return seen, open_end, returns

    def flow(self, start):
        if start not in self._flows:
            self._flows[start] = self.reach([start])
        return self._flows[start]

    def leads_to(self, target, pc):
        """Whether what is called at target can have its frame stand at pc."""
        if target <= pc < target + STUB and self.is_filler(target):
            return True
        seen, open_end, _ = self.flow(target)
        # What switches stacks may push where to go on, and return there.
        by_return = self.name(target) == self.name(pc) and self.in_taken(pc)
        return pc in seen or by_return or (open_end and self.jumped_to(target, pc))

    def is_filler(self, address):
        for start, data, _ in self.elf.segments:
            if start <= address < start + len(data):
                return len(set(data[address - start:address - start + STUB])) == 1
        return True

    def jumped_to(self, target, pc):
        """By a table, within the same function; or as the last call, any function whose address is known somewhere."""
        return self.in_function(target, pc) or self.in_taken(pc)

    def in_function(self, start, pc):
        """Where there are no symbols, a function ends before the next that is called."""
        if self.names:
            return self.name(start) == self.name(pc)
        if self._starts is None:
            self._starts = sorted(self.call_targets())
        return start <= pc and bisect.bisect(self._starts, start) == bisect.bisect(self._starts, pc)

    def _taken(self):
        """Code addresses that stand in data, or as numbers in other instructions."""
        found, size, form = set(), self.elf.bits // 8, "<%dQ" if self.elf.bits == 64 else "<%dI"
        for _, data, _ in self.elf.segments:
            for shift in range(0, size, 4):
                count = (len(data) - shift) // size
                found.update(struct.unpack_from(form % count, data, shift) if count > 0 else ())
            if self.elf.bits == 32:
                found.update(struct.unpack_from("<%dQ" % (len(data) // 8), data, 0))
        for instruction in self.at.values():
            if instruction.kind is None and "0x" in instruction.operands:
                for word in re.findall(r"0x([0-9a-f]+)", instruction.operands):
                    self.computed.setdefault(int(word, 16), set()).add(instruction.address)
        # Words of the whole memory are return addresses on stacks, too.
        self.slots = {address: slots for address, slots in getattr(self.elf, "pointers", {}).items() if not self.call_before(address)}
        self.in_data = found | set(self.slots)
        return {address for address in self.in_data | set(self.computed) if address in self.at}

    def entered(self):
        """Addresses that only code which has taken over a stack computes, or takes from memory: it jumps there."""
        if self._entered is None:
            entry = self.reach([instruction.end for instruction in self.at.values() if self.takes_stack(instruction)])[0]
            computed = {address for address, by in self.computed.items() if by <= entry}
            self._entered = {address for address in self.taken if address in computed or address not in self.computed
                             if address not in self.in_data or self.slots.get(address, set()) & computed == self.slots.get(address)}
        return self._entered

    def may_be_called(self, pc):
        """How what stands at pc on its caller's stack may be called; None: it is not."""
        if self._callable is None:
            self._callable = [(how, self.reach(targets, one_stack=True)[0])
                              for how, targets in (("it is called", self.call_targets()), ("it is called through a pointer", self.taken - self.entered()))]
        return next((how for how, where in self._callable if pc in where), None)

    def in_taken(self, pc):
        """Whether what is called through a pointer can stand at pc."""
        if self._taken_flow is None:
            # Behind data in memory, the disassembly may swallow a function's first instruction.
            self._taken_flow = self.reach(self.taken)[0] | set(getattr(self.elf, "pointers", ()))
        return pc in self._taken_flow

    def call_targets(self):
        return {instruction.target for instruction in self.at.values() if instruction.kind == "call"} - {None}

    def in_called(self, pc):
        """Whether what is called by name can stand at pc."""
        if self._called_flow is None:
            self._called_flow = self.reach(self.call_targets())[0]
        return pc in self._called_flow

    def returns_from_interrupt(self, pc):
        return self.flow(pc)[2]

    def serves(self, pc):
        """Whether it returns to what firmware serves, which has another stack (RISC-V's machine mode)."""
        return any(self.at[address].name == "mret" for address in self.flow(pc)[0])

    def name(self, address):
        """The symbol at or below an address."""
        i = bisect.bisect(self.names, (address, "\x7f")) - 1
        return self.names[i][1] if i >= 0 else f"{address:#x}"


def run(command):
    """The lines that a command prints."""
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout.splitlines()


def symbols(path):
    """[(address, name)] of code, in order."""
    text = subprocess.run(["nm", "-n", str(path)], capture_output=True, text=True, check=False).stdout
    rows = (line.split() for line in text.splitlines())
    return sorted((int(row[0], 16), row[2]) for row in rows if len(row) == 3 and row[1] in "tTwW")

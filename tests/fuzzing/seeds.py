# SPDX-License-Identifier: BSD-3-Clause
"""The first inputs of each fuzz target: small, and one for each branch that no fuzzer finds by chance."""

import gzip
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPPED = ROOT / "build-sanitized/src/unwind/stepped"


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def varints(*values):
    return b"".join(varint(value) for value in values)


def damage(at, value, width=1):
    """One change, as fuzz_damage takes it (src/base/fuzz_testing.h)."""
    return struct.pack("<I", at | (width.bit_length() - 1) << 24) + value.to_bytes(width, "little")


# Unwinding


def objcopy(path, *options):
    """A copy of a file; b"": there is none such."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "copy"
        subprocess.run(["objcopy", *options, str(path), str(out)], check=False, stderr=subprocess.DEVNULL)
        return out.read_bytes() if out.exists() else b""


def sections(path, names):
    """Sections of a file."""
    for name in names:
        contents = objcopy(path, "-O", "binary", f"--only-section={name}", "--set-section-flags", f"{name}=alloc")
        if contents:
            yield name, contents


def programs(pattern):
    return [path for path in sorted(STEPPED.glob(pattern)) if path.is_file()]


def cfi():
    for path in programs("stepped-[36]*"):
        yield path.read_bytes()
        for name, contents in sections(path, (".eh_frame", ".debug_frame")):
            yield (b"\1" if name == ".eh_frame" else b"\0") + contents
    for path in programs("stepped-arm-gcc-O[02]-*") + programs("stepped-thumb-clang-O2-*"):
        yield path.read_bytes()
        for _, contents in sections(path, (".debug_frame",)):
            yield b"\6" + contents
    for path in programs("stepped-64-Os-fp"):
        for how in "zlib", "zlib-gnu":
            yield objcopy(path, f"--compress-debug-sections={how}")
        yield objcopy(path, "--strip-debug", "--remove-section=.eh_frame")
    yield from made_cfi()


def made_cfi():
    """A CIE with each of these augmentations and encodings, and a function of it."""
    def entry(body):
        body += bytes(-len(body) % 4)
        return struct.pack("<I", len(body)) + body

    program = b"\x0c\x07\x08\x90\x01"
    functions = (b"\x41\x0e\x10\x86\x02", b"\x0a\x0e\x20\x0b", b"\x0f\x03\x77\x08\x06", b"\x10\x10\x02\x77\x08", b"\x16\x06\x02\x77\x08", b"\x07\x10", b"\x08\x06", b"\x09\x06\x03", b"\x2e\x10",
                 b"\x02\x04\x03\x04\0\x04\x04\0\0\0", b"\x05\x06\x02", b"\x11\x06\x7e", b"\x12\x07\x7e", b"\x13\x7e", b"\x14\x06\x02", b"\x15\x06\x7e", b"\x0d\x06", b"\xc6", b"\x06\x06", b"\x01\0\x10\x40\0",
                 b"\x2d", b"\x2f\x06\x01", b"\x3f", b"\x0a" * 100, b"\x0b", b"\x0f\x7f", b"\x0f\x06\x77\x08\x06\x23\x08\x06")
    where = {0x00: "<QQ", 0x1b: "<ii", 0x0b: "<ii", 0x02: "<HH", 0x0a: "<hh", 0x0c: "<qq", 0x04: "<QQ", 0x03: "<II"}
    for encoding, form in where.items():
        for function in functions:
            cie = entry(struct.pack("<I", 0) + b"\1zR\0\1\x78\x10\1" + bytes([encoding]) + program)
            here = 0x500000 + len(cie) + 8
            start = 0x401000 - here if encoding == 0x1b else 0x1000 if encoding in (0x02, 0x0a) else 0x401000
            yield b"\1" + cie + entry(struct.pack("<I", len(cie) + 4) + struct.pack(form, start, 0x100) + b"\0" + function)
    for letters, data in (("zPLR", b"\3\0\0\0\0\x1b\x1b"), ("zRS", b"\x1b"), ("zB", b""), ("zPR", b"\x50\0"), ("Rz", b"\x1b"), ("zX", b""), ("zR", b"\x01"), ("zR", b"\x09"), ("", b""), ("eh", bytes(8))):
        size = bytes([len(data)]) if letters.startswith("z") else b""
        cie = entry(struct.pack("<I", 0) + b"\1" + letters.encode() + b"\0\1\x78\x10" + size + data + program)
        here = 0x500000 + len(cie) + 8
        yield b"\1" + cie + entry(struct.pack("<I", len(cie) + 4) + struct.pack("<ii", 0x401000 - here, 0x100) + b"\0" + functions[0])
    # .debug_frame of both widths and all versions.
    for version in 1, 3, 4, 5:
        for how in range(0, 8, 2):
            head = bytes([8 if how in (0, 4) else 4, 0]) if version >= 4 else b""
            word = "<Q" if how in (0, 4) else "<I"
            cie = entry(struct.pack("<I", 0xffffffff) + bytes([version]) + b"\0" + head + b"\1\x7c\x0e" + b"\x0c\x0d\x08\x8e\x01\x84\x02\x8b\x03")
            for function in functions:
                yield bytes([how]) + cie + entry(struct.pack("<I", 0) + struct.pack(word, 0x401000) + struct.pack(word, 0x100) + function)


def expression():
    operations = bytes([0x77, 8, 0x06, 0x12, 0x22, 0x23, 0x81, 1, 0x96, 0x30, 0x4f, 0x1a])
    first = bytes(8)
    for how in range(4):
        yield bytes([how]) + first + operations
    pushes = {0x08: 1, 0x09: 1, 0x0a: 2, 0x0b: 2, 0x0c: 4, 0x0d: 4, 0x0e: 8, 0x0f: 8}
    for op, size in pushes.items():
        yield b"\1" + first + bytes([op]) + bytes([0xfe]) * size
    for op in (0x10, 0x11, 0x70, 0x90, 0x92, 0x93, 0x94, 0x15, 0x23):
        yield b"\1" + first + bytes([op, 4, 8])
    for op in (*range(0x12, 0x2f), 0x06, 0x96):
        yield b"\1" + struct.pack("<Q", 7) + bytes([0x31, 0x33, 0x35, op])
    # Jumps: forwards, backwards without end, out of it.
    for target in (1, -3, 100):
        yield b"\1" + first + b"\x31\x28" + struct.pack("<h", target) + b"\x31\x31"
        yield b"\1" + first + b"\x31\x2f" + struct.pack("<h", target) + b"\x31\x31"


def orc():
    def rules(high):
        for sp in range(10):
            for bp in (0, 1, 4, 5):
                yield struct.pack("<hhBB", 16, -16, sp | bp << 4, high) + struct.pack("<H", 9)

    for how in (*range(8), 0x22):
        for high in range(8):
            yield bytes([how]) + b"".join(rules(high))
    for sp, bp in ((-40, 0), (0x7fff, 0x7fff), (-0x8000, -0x8000)):
        for high in range(5):
            yield b"\0" + struct.pack("<hhBBH", sp, bp, 0x45, high, 1) * 4
            yield b"\1" + struct.pack("<hhBBH", sp, bp, 0x48, high, 0) * 4


def exidx():
    ops = [b"\xb0", b"\x80\x08\xb0", b"\x9b\x01\xa8\xb0", b"\xb1\x0f\xb0", b"\xb2\x04\xb0", b"\xb3\x11\xb0", b"\xb4\xb5\xb8\xb0", b"\xc6\x11\xc7\x03\xc8\x11\xc9\x22\xb0",
           b"\xd0\xc0\xca", b"\x3f\x7f\xaf\xb0", b"\x8f\xff", b"\x9d", b"\x80\x00", b"\xa0\x9b", b"\xb6", b"\xb2\xff\xff\xff\xff\xff", b"\xb1\x00", b"\xc7\x10"]
    yield from (b"\0" + one for one in ops)
    plain, refer, end = b"\0\x20\xb0\xb0\xa8", b"\1\x20", b"\2\x20"
    table = [0x80a8b0b0, 0x8102a8b0, 0xb0b0b0b0, 0xb0b0b0b0, 0x820100b0, 0xb0b0b0b0, 0x12345678, 0x01a8b0b0, 0xb0b0b0b0, 0x83000000, 0x81ff0000]
    entries = [plain, refer + b"\0", end, refer + b"\1", refer + b"\4", refer + b"\6", refer + b"\x09", refer + b"\x0a", refer + b"\xff", plain, b"\0\0\0\0\0",
               b"\3\0" + b"\x11" * 8]
    yield bytes([len(entries)]) + b"".join(entries) + struct.pack(f"<{len(table)}I", *table)
    yield bytes([2]) + end + end
    yield bytes([2]) + plain + b"\x80\x10\xb0\xb0\xa8" + struct.pack("<I", 0)


# Files


def recorded(kind, payload):
    return varint(len(payload)) + bytes([kind]) + payload


INFO = (b'{"vcpus":2,"tool":"uniprof 1","command":"uniprof record","started":1700000000000000000,"rate":99.5,"unknown":[1],"images":'
        b'[{"path":"/a","build_id":"0011","start":"0x1000","end":"0x2000","slide":"0x0","checked":true,"size":4096},{"build_id":"ff","start":"0x1","end":"0x2","slide":"0x0"}]}')


def records():
    """What follows the head of a recording: each kind of record, of two vCPUs."""
    nodes = recorded(3, varints(0 | 0 << 2 | 1 << 4, 0x2000, 0 | 0 << 2 | 1 << 4, 0x80, 1 | 1 << 2 | 2 << 4, 0x40))
    entry = lambda stack, state=0, end=0: varints(1 | state << 2 | end << 4, stack)  # noqa: E731
    name = recorded(7, varints(0x1000, 0, 0x1000) + b"function")
    text = recorded(9, b"file.c") + recorded(9, b"inline")
    location = recorded(10, varints(0x1000, 0, 1, 1, 7, 2, 1, 9))
    thread = recorded(11, varints(0, 7, 8, 1000, 2) + b"sh" + b"worker") + recorded(11, varints(3, 0, 0, 0, 0) + b"swapper")
    running = recorded(12, varints(0, 1, 1, 2))
    ticks = (recorded(6, varints(1000, 50, 1000000) + entry(1) + entry(2, 2)) + recorded(4, varints(1000, 40, 0 | 2 << 2)) +
             recorded(5, varints(1000, 45, 3 | 900 << 2) + entry(3, 1) + varints(2 | 1 << 2)) + recorded(5, varints(1000, 45, 2 | 1 << 2) + entry(1, 3)))
    end = recorded(8, b'{"reason":"the guest has ended","deadlines":10,"missed":1,"ended":1700000001000000000,"unwind":{"auto":1}}')
    return nodes + thread + running + ticks + name + text + location + end


def recording():
    yield from (b"\0", b"\1", b"\3", b"\3" + records(), b"\1" + records(), b"\7" + 5 * records())
    yield from (b"\3" + recorded(14, varint(size) + zlib.compress(records())) for size in (len(records()), 1))
    for cut in range(1, 8):
        yield b"\3" + records()[:cut * len(records()) // 8]
    head = b"\x89uniprof\1\2"
    for info in INFO, b"{}", b'{"vcpus":0}', b'{"vcpus":2,"images":3}', b'{"vcpus":"2"}', b"[":
        whole = head + recorded(2, info) + records()
        yield b"\0" + whole + recorded(1, struct.pack("<I", zlib.crc32(whole)))
    yield b"\0\x89uniprof\2\0"


def message(*fields):
    """Of Protocol Buffers, of small numbers and short texts."""
    return b"".join(bytes([number << 3, value]) if isinstance(value, int) else bytes([number << 3 | 2, len(value)]) + value
                    for number, value in fields)


def pprof_profile(values=((2, b"\2\21"),)):
    texts = b"", b"cpu", b"nanoseconds", b"samples", b"count", b"main", b"/a", b"pid", b"vcpu", b"vcpu1"
    return message((1, message((1, 3), (2, 4))), (1, message((1, 1), (2, 2))), *((6, text) for text in texts),
                   (3, message((1, 1), (2, 16), (3, 64), (5, 6))), (5, message((1, 1), (2, 5))), (9, 1), (12, 5),
                   (4, message((1, 1), (2, 1), (3, 20), (4, message((1, 1), (2, 7))), (4, message((1, 1), (2, 9))))), (4, message((1, 2), (3, 20))),
                   (2, message((1, b"\1\2"), *values, (3, message((1, 7), (3, 9))), (3, message((1, 8), (2, 9))))))


def pprof_threads():
    """With all that a profile may have: labels of threads, files, build ids, lines inlined, a default value, numbers that are not packed."""
    texts = b"", b"wall", b"milliseconds", b"pid", b"tid", b"comm", b"thread_comm", b"state", b"vcpu", b"web", b"worker", b"waiting", b"vcpu2", b"/a", b"0011", b"f", b"_f", b"a.c", b"nanoseconds"
    labels = message((1, 3), (3, 7)), message((1, 4), (3, 8)), message((1, 5), (2, 9)), message((1, 6), (2, 10)), message((1, 7), (2, 11)), message((1, 8), (2, 12))
    sample = (1, 1), (1, 2), (2, 5), (2, 9)
    return message((1, message((1, 1), (2, 2))), (1, message((1, 3), (2, 2))), *((6, text) for text in texts), (14, 1), (13, b"\1\2"), (10, 9), (11, message((1, 1), (2, 18))), (12, 100),
                   (3, message((1, 1), (2, 16), (3, 64), (4, 8), (5, 13), (6, 14), (7, 1))), (3, message((1, 2), (2, 80), (3, 90))), (5, message((1, 1), (2, 15), (3, 16), (4, 17))), (5, message((1, 2), (3, 16))),
                   (4, message((1, 1), (2, 1), (3, 20), *[(4, message((1, 1 + i % 2), (2, i))) for i in range(12)])), (4, message((1, 2))),
                   (2, message(*sample, *((3, label) for label in labels))), (2, message(*sample, (3, labels[0]))), (2, message(*sample, (3, labels[3]))))


def perf_record(kind, misc, body):
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


PERF_IDS = struct.pack("<IIQII", 7, 8, 5, 0, 0)
PERF_SAMPLE = struct.pack("<QIIQIIQQ5Q", 0x1010, 7, 8, 9, 1, 0, 250, 5, (1 << 64) - 128, 0xffffffff81000010, (1 << 64) - 512, 0x1010, 0x1020)


def perf_map(pid, start, path, offset=0):
    return struct.pack("<IIQQQIIQQII", pid, pid, start, 0x1000, offset, 0, 0, 0, 0, 5, 2) + path + bytes(8 - len(path) % 8) + PERF_IDS


def perf_data():
    """As of a pipe: an attribute, a name, maps of the kernel and of a process, a fork, and samples with a kernel's and a program's frames."""
    fields = 1 | 2 | 4 | 32 | 128 | 256  # ip, tid, time, chain, cpu, period
    attr = struct.pack("<IIQQQQQ", 1, 64, 0, 1000, fields, 0, 1 << 18) + bytes(16)
    return (b"PERFILE2" + struct.pack("<Q", 16) + perf_record(64, 0, attr + struct.pack("<Q", 3)) + perf_record(3, 0, struct.pack("<II", 7, 8) + b"web\0\0\0\0\0" + PERF_IDS)
            + perf_record(10, 1, perf_map(0xffffffff, 0xffffffff81000000, b"[kernel.kallsyms]_text")) + perf_record(10, 2, perf_map(7, 0x1000, b"/bin/a"))
            + perf_record(10, 2, perf_map(9, 0x1800, b"/bin/b")) + perf_record(7, 0, struct.pack("<IIIIQ", 10, 7, 10, 7, 5) + PERF_IDS)
            + perf_record(9, 1, PERF_SAMPLE) + perf_record(9, 2, PERF_SAMPLE))


def zstd_raw(data):
    """A frame of zstd with one block that is not compressed (RFC 8878, 3.1.1)."""
    return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(data)) + (1 | len(data) << 3).to_bytes(3, "little") + data


def perf_packed():
    """As of a pipe, with all that stands between its samples: build ids, features, traces, compressed records of both forms."""
    fields = 1 | 2 | 4 | 32 | 128 | 256
    attr = struct.pack("<IIQQQQQ", 0, 64, 9, 1000, fields, 0, 1 << 10) + bytes(16)
    build_id = struct.pack("<I", 7) + bytes(range(20)) + struct.pack("<BBH", 16, 0, 0) + b"/bin/a\0\0"
    inner = perf_record(9, 1, PERF_SAMPLE) + perf_record(10, 2 | 1 << 14, perf_map(7, 0x3000, b"/bin/c"))
    length = struct.pack("<Q", len(zstd_raw(inner)))
    return (b"PERFILE2" + struct.pack("<Q", 16) + perf_record(64, 0, attr + struct.pack("<QQ", 3, 4)) + perf_record(64, 0, attr + struct.pack("<Q", 5))
            + perf_record(67, 1 << 15, build_id) + perf_record(67, 0, build_id) + perf_record(80, 0, struct.pack("<Q", 12) + event_names(attr)) + perf_record(80, 0, struct.pack("<Q", 2))
            + perf_record(1, 2, perf_map(7, 0x1000, b"/bin/a")[:32] + b"/bin/a\0\0") + perf_record(10, 2, perf_map(7, 0x1000, b"//anon")) + perf_record(10, 2, perf_map(9, 0x1000, b"//anon"))
            + perf_record(3, 1 << 13, struct.pack("<II", 7, 7) + b"exec\0\0\0\0" + PERF_IDS) + perf_record(66, 0, struct.pack("<I", 8)) + bytes(8)
            + perf_record(71, 0, struct.pack("<Q", 8)) + bytes(8) + perf_record(81, 0, zstd_raw(inner)) + perf_record(83, 0, length + zstd_raw(inner) + bytes(4)) + perf_record(99, 0, b""))


def event_names(attr):
    return struct.pack("<II", 1, len(attr)) + attr + struct.pack("<II", 1, 8) + b"cycles\0\0" + struct.pack("<Q", 3)


def perf_file(config=1, form=8 | 4, cut=False, identified=True):
    """A file: two events with ids, samples with every field before the stack, sections behind the data."""
    fields = (1 << 10) - 1 | 1 << 13 | identified << 16
    attr = struct.pack("<IIQQQQQ", 0, 64, config, 1000, fields, form, 1 << 18) + bytes(16)
    values = struct.pack("<QQQ", 1, 2, 3) if form & 8 else struct.pack("<QQ", 5, 6)

    def sample(event):
        numbers = struct.pack("<QIIQQQQIIQ", 0x1010, 7, 8, 9, 0, event, 1, 1, 0, 250)
        return perf_record(9, 2, struct.pack("<Q", event)[:8 * identified] + numbers + values + struct.pack("<3Q", 2, 0x1010, 0x1020))

    head, size = 104, len(attr) + 16
    data = perf_record(10, 2, perf_map(7, 0x1000, b"/bin/a")) + sample(3) + sample(3) + sample(4)
    ids, at = head + 2 * size, head + 2 * size + 16
    build_id = struct.pack("<IHHI", 0, 1 << 15, 44, 7) + bytes(20) + struct.pack("<Q", 20) + b"/bin/a\0\0"
    names, behind = event_names(attr), at + len(data) + 32
    return (b"PERFILE2" + struct.pack("<8Q", head, size, head, 2 * size, at, 0 if cut else len(data), 0, 0) + struct.pack("<I", 1 << 2 | 1 << 12) + bytes(28) +
            b"".join(attr + struct.pack("<QQ", ids + 8 * i, 8) for i in range(2)) + struct.pack("<QQ", 3, 4) + data +
            struct.pack("<4Q", behind, len(build_id), behind + len(build_id), len(names)) + build_id + names)


def imports():
    yield b"main;f 1\nmain;f;g 23\n"
    yield b"# comment\n\nmain;f;g_[k];[unknown] 7\nmain 99999999999999999999\n"
    yield b"web 7/8 [001] 12.000001: 1001 cycles:u: \n\t  1f f+0x1 (/a/b)\n\t  2f [unknown] (/c)\n\t  3f [unknown] ([unknown])\n\nw 7 1.5: cycles:  3 g (k)\n"
    yield (b"# ========\n# hostname : h\n# ========\na b  12 [000]  1.000000000:     250000 cpu-clock:pppH: \n\tffffffff81000000 schedule+0x10 ([kernel.kallsyms])\n"
           b"\t          401000 main+0x20 (/bin/a b)\n\n")
    yield b"swapper 0 [000] 1.0: 1 cycles: \n\t0 a (b)\n\nswapper 0 [001] 1.1: 2 instructions: \n\t0 a (b)\n\n"
    for word in b"", b"main;f\n", b"main;f -1\n", b"x [ 1.: 1 c:\n", b"a 1 99999999999.9: 1 c: \n\t1 f (x)\n\n", b"; 1\n", b"\0 1\n":
        yield word
        yield b"main;f 1\n" + word
    yield b"#unikernel stack tracer using x\n#tracing domid 7 on 2026-11-21 09:00:00 UTC (+0000)\n\nf+0x4f\nmain\n0x100041\n3\n\n[no stack]\n1\n"
    yield (b"version: 1\npositions: line\nevent: Weight : nanoseconds\nevents: Weight Samples\nob=(1) /a\nfl=(1) a.c\nfn=(1) main\n3 10 1\n"
           b"cfn=(2) leaf\ncalls=1 0\n+1 60 6\n\nfn=(2)\n5 60 6\ncfn=(1)\ncalls=1 0\n* 5 1\n")
    yield (b'{"shared":{"frames":[{"name":"f","file":"a.c","line":2},{"name":"g"}]},"profiles":[{"type":"sampled","name":"a","unit":"seconds",'
           b'"startValue":0,"samples":[[0,1],[1]],"weights":[1,0.5]},{"type":"evented","unit":"seconds","events":[{"type":"O","frame":0,"at":1},'
           b'{"type":"C","frame":0,"at":2}]}]}')
    yield (b'{"meta":{"startTime":1.5,"interval":1},"libs":[{"path":"/a","codeId":"ab"}],"shared":{"stringArray":["f","g"],"resourceTable":{"lib":[0]},'
           b'"funcTable":{"name":[0,1],"resource":[0,-1]},"frameTable":{"func":[0,1],"line":[1,null]},"stackTable":{"frame":[0,1],"prefix":[null,0]}},'
           b'"threads":[{"name":"a","pid":"1","tid":2,"samples":{"stack":[0,1,null],"time":[1,2,3],"weight":[1,2,3],"weightType":"tracing-ms"}}]}')
    yield pprof_profile()
    yield pprof_profile(())
    yield pprof_threads()
    yield gzip.compress(pprof_profile(), mtime=0)
    yield perf_data()
    yield perf_packed()
    yield b"2ELIFREP" + bytes(96)
    for fields in {}, {"config": 0, "form": 1, "identified": False}, {"config": 9, "cut": True}:
        yield perf_file(**fields)


def nm():
    yield b"0000000000001000 T first\n0000000000001010 0000000000000008 t second\n0000000000001020 W weak\n0000000000001030 i indirect\n0000000000001040 D data\n0000000000001050 T _etext\n"
    yield b"ffffffff81000000 T _text\nffffffff81000010 t function\t[module]\r\nffffffff81000010 t $x\n"
    yield b"0000000000000000 T a\n0000000000000000 T b\n"
    yield b"0000000000000000 D a\n"
    yield b"text\n"
    yield b""
    yield b"\x7fELF"
    yield b"\0binary"


def bzimage(payload, unpacked, sects=1):
    head = bytearray(1024 if sects else 5 * 512)
    head[0x1f1] = sects
    struct.pack_into("<H", head, 0x1fe, 0xaa55)
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x206, 0x20f)
    struct.pack_into("<II", head, 0x248, 0, len(payload) + 4)
    return bytes(head) + payload + struct.pack("<I", unpacked)


def symbols():
    yield from nm()
    for pattern in "stepped-thumb-gcc-O0-fp", "stepped-64-O0-nofp", "stepped-64-Os-fp", "stepped-32-O2-fp", "stepped-riscv64-gcc-O0-fp":
        for path in programs(pattern):
            whole = path.read_bytes()
            yield whole
            yield bzimage(gzip.compress(whole), len(whole))
            yield gzip.compress(whole)
    for path in programs("stepped-thumb-gcc-O2-nofp-exidx"):
        yield path.read_bytes()
    for path in programs("stepped-64-Os-fp"):
        for options in ("--strip-all",), ("--strip-debug", "--strip-unneeded"), ("-N", "main"), ("--only-keep-debug",), ("--keep-symbol=main",), ("--compress-debug-sections",), ("-W", "main"):
            yield objcopy(path, *options)
    yield kernel_elf()


def kernel_elf():
    """A kernel without a table of symbols, but for its own (kallsyms), as Linux 5.10 has it."""
    names, start, tokens = 2100, 0xffffffff81000000, b"".join(bytes([i or 1, 0]) for i in range(256))
    align = lambda data: data + bytes(-len(data) % 8)  # noqa: E731
    table = align(struct.pack(f"<{names}I", *range(0, 16 * names, 16))) + struct.pack("<QQ", start, names)
    table += align(b"".join(b"\2T" + bytes([97 + i % 26]) for i in range(names)))
    table += align(struct.pack(f"<{names // 256 + 1}I", *range(0, 3 * names, 768))) + tokens + struct.pack("<256H", *range(0, 512, 2))
    ehdr = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, start, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    size = 0x1000 + len(table)
    return ehdr + struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 4096) + bytes(0x1000 - 120) + table


def image():
    contents = bytes(range(64)) * 3
    for packer in range(6):
        yield bytes([packer | 0x80]) + contents
        yield bytes([packer]) + contents
        yield bytes([packer]) + bytes(96) + damage(10, 0x77, 8)
        yield bytes([packer | 0x40]) + bytes(96) + damage(0x24c, 0xffff, 2)
    for payload in b"\x89LZO and so on", b"\x1f\x8b" + bytes(30), b"":
        for sects in 0, 1:
            yield b"\7" + bzimage(payload, 4096, sects)
    yield b"\xa0" + contents
    yield b"\x20" + bytes(96) + damage(10, 0x77, 8)
    yield b"\7" + gzip.compress(b"\x7fELF" + bytes(60))
    yield b"\7" + bytes(0x38) + b"ARM\x64" + bytes(0x300)
    yield b"\7" + bzimage(gzip.compress(b"\x7fELF" + bytes(60)), 64)


def wire():
    yield from (bytes([how]) for how in range(0x20))
    for how in range(8):
        for at in range(0, 400, 8):
            yield bytes([how]) + damage(at, 0xffffffff, 4)
    # The message is cut, and nonsense.
    yield b"\x80" + bytes(200)
    yield b"\x80" + bytes(1000)
    yield b"\x80\7"


def snapshot():
    def record(tag, payload):
        return tag + struct.pack("<H", len(payload)) + payload

    modes = {0: (1, 3, 4), 1: (1, 2), 2: (5, 5), 3: (6, 7), 4: (8, 9)}
    for arch, allowed in modes.items():
        for mode in allowed:
            word = 8 if arch in (0, 2, 4) else 4
            arm = arch in (2, 3)
            flags = 1 | (8 if arm else 2 << 5 if arch == 4 else 0) | (16 if arch == 2 else 0) | 4
            vcpu = varints(flags, 1, word, mode, 0x1000, *((0x2000, 0x10) if arm else ()), 0x401000, 0x7000, 0x7100, 2, *((1, 2) if arch == 2 else ()), 0x30, 5, 6)
            sample = record(b"S", varints(10**9, 1000, 5, 1, 2) + vcpu + varints(0))
            frame = record(b"F", varint(1) + struct.pack("<Q", 0x1063) * 300) + record(b"F", varint(7) + bytes(range(256)))
            for how in (arch | 8, arch | 8 | 0x20):
                yield bytes([how]) + frame + sample + frame + sample + sample + record(b"E", varint(3))
    yield b"\x80uniprof-snapshot"
    yield b"\x80another file of some length"
    yield b"\x40" + record(b"H", varints(1, 2, 1, 6) + b"x86_64" + bytes(5))
    yield b"\x40" + record(b"H", varints(2, 0))
    yield b"\x40" + record(b"H", varints(1, 2, 1, 3) + b"vax" + bytes(5))
    yield b"\0" + record(b"F", varint(1) + bytes(5000))
    yield b"\0" + record(b"S", varints(1, 2))
    yield b"\0" + record(b"X", b"")


def window():
    # For each processor and way of paging: tables that lead to themselves.
    leads = {0: 0x1063, 1: 0x1063, 2: 0x1703, 3: 0x1703, 4: 0x4cf}
    kernel = 0xffff888000000000
    for arch, entry in leads.items():
        for mode in range(6):
            for how in 0, 1, 2, 4, 12:
                for missing in 0, 2:
                    control = 0x80100010 if arch == 2 else 0x80000000 if mode else 0
                    head = struct.pack("<QQQIBBBBQQQQII", 0x1000, 0x12345678, kernel + 0x1ff8 if how & 4 else 0x7ff8, 0x2100, arch, mode, how, missing, control, 0x1000, kernel + 0x10, 0x1000, 8, 0x0ffc0100)
                    yield head + struct.pack("<Q", entry) * 2048


def note(name, kind, desc):
    name += b"\0"
    return struct.pack("<III", len(name), len(desc), kind) + b"".join(part + bytes(-len(part) % 4) for part in (name, desc))


def qemu_core():
    """One vCPU, and a frame whose every entry leads to itself."""
    state = struct.pack("<II18Q240x5Q", 1, 432, *range(0x1000, 0x1012), 0x80000011, 0, 0, 0x1000, 0x20)
    notes = note(b"QEMU", 0, state)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 4, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    at = 64 + 2 * 56
    parts = struct.pack("<IIQQQQQQ", 4, 0, at, 0, 0, len(notes), 0, 0) + struct.pack("<IIQQQQQQ", 1, 0, at + len(notes), 0, 0x1000, 4096, 4096, 0)
    return head + parts + notes + struct.pack("<Q", 0x1063) * 512


def xen_core(magic, context=None):
    names = b"\0.shstrtab\0.note.Xen\0.xen_prstatus\0.xen_pages\0.xen_p2m\0.xen_pfn\0"
    if context is None:
        context = bytearray(struct.pack("<Q", 0x1000) * (5168 // 8))
        context[4984:5024] = struct.pack("<5Q", 0x80000011, 0, 0, 0x1000, 0x20)
    bodies = {b".shstrtab": names, b".note.Xen": note(b"Xen", 0x2000001, struct.pack("<4Q", magic, 1, 1, 4096)), b".xen_prstatus": bytes(context),
              b".xen_pages": struct.pack("<Q", 0x1063) * 512, b".xen_p2m": struct.pack("<2Q", 1, 1), b".xen_pfn": struct.pack("<Q", 1)}
    at = 64 + 64 * len(bodies)
    heads, data = b"", b""
    for name, body in bodies.items():
        size = 5168 if name == b".xen_prstatus" else 0
        heads += struct.pack("<IIQQQQIIQQ", names.index(name + b"\0"), 1, 0, 0, at + len(data), len(body), 0, 0, 0, size)
        data += body
    return struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 4, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, len(bodies), 0) + heads + data


def core():
    yield from (qemu_core(), xen_core(0xf00febed), xen_core(0xf00febee), xen_core(0xf00febed, bytes(5168)), xen_core(0xf00febee, b"\1" * 5168))


# Kernels in memory


def kallsyms():
    for how in range(6):
        yield bytes([how])
        # Throughout the table: numbers, names, markers, tokens.
        for at in range(0x3000, 0x10000, 0x800):
            yield bytes([how]) + damage(at, 0xffff, 2)
        for page in range(16):
            yield bytes([how | 0x80]) + struct.pack("<H", page * 4096)


def btf_type(name, kind, n, value, *rest, flag=0):
    return struct.pack("<III", name, flag << 31 | kind << 24 | n, value) + struct.pack(f"<{len(rest)}I", *rest)


def btf():
    strings = b"\0whole\0part\0x\0y\0p\0b\0w\0many\0a\0"
    at = lambda name: strings.index(b"\0" + name + b"\0") + 1  # noqa: E731
    types = b"".join((
        btf_type(at(b"a"), 1, 0, 4, 32), btf_type(at(b"part"), 4, 2, 8, at(b"a"), 1, 0, at(b"b"), 1, 32), btf_type(0, 10, 0, 2), btf_type(at(b"part"), 8, 0, 3),
        btf_type(0, 5, 1, 4, at(b"w"), 1, 0), btf_type(0, 3, 0, 0, 4, 1, 4),
        btf_type(at(b"whole"), 4, 5, 56, at(b"x"), 1, 3 << 24, at(b"y"), 1, 32, at(b"p"), 4, 64, 0, 5, 128, at(b"many"), 6, 192, flag=1),
        btf_type(0, 6, 1, 4, 1, 2), btf_type(0, 13, 1, 1, 1, 2), btf_type(0, 14, 0, 1, 1), btf_type(0, 15, 1, 1, 1, 2, 3), btf_type(0, 17, 0, 1, 1), btf_type(0, 19, 1, 1, 1, 2, 3),
        btf_type(0, 2, 0, 1), btf_type(0, 12, 0, 1)))
    whole = struct.pack("<HBBIIIII", 0xeb9f, 1, 0, 24, 0, len(types), len(types), len(strings)) + types + strings
    yield whole
    yield whole[:-1]
    # A structure in itself, and a name for itself.
    for types in (btf_type(1, 4, 1, 8, 0, 1, 0), btf_type(1, 4, 1, 8, 9, 2, 0) + btf_type(9, 8, 0, 2), btf_type(1, 31, 0, 0)):
        yield struct.pack("<HBBIIIII", 0xeb9f, 1, 0, 24, 0, len(types), len(types), len(strings)) + types + strings


def memory():
    for how in (*range(6), 0x40):
        yield bytes([how, 0])
        for at in (0x22000, 0x23000, 0x20004, 0x2000c, 0x24000):
            yield bytes([how, 8]) + damage(at, 0xffffffff, 4)
        # Of the first module: state, list, name, text, size, tables and their numbers.
        for at in (0, 8, 24, 80, 88, 96, 104, 112, 120, 0x200, 0x208, 0x210, 0x318, 0x320):
            for value in 0, 3, 0xffffffff:
                yield bytes([how, 0]) + damage(at, value, 4)


# Conversations: pieces with a 0 behind each (src/target/host/peer_testing.h)


def packet(text):
    return b"+$%s#%02x" % (text, sum(text) % 256)


def pieces(*parts):
    return b"".join(part + b"\0" for part in parts)


def register(name, bits=64):
    return f'<reg name="{name}" bitsize="{bits}"/>'


def features(kind, registers):
    return (f"l<target><architecture>{kind}</architecture><feature>{registers}</feature></target>").encode()


X86 = "".join(map(register, "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split())) + "".join(
    register(name, 32) for name in ("eflags", "cs", "ss")) + "".join(map(register, "fs_base gs_base k_gs_base cr0 cr3 cr4 efer".split()))
I386 = "".join(register(name, 32) for name in "eax ecx edx ebx esp ebp esi edi eip eflags cs ss".split())
ARM64 = "".join(register(f"x{i}") for i in range(31)) + register("sp") + register("pc") + register("cpsr", 32)
ARM32 = "".join(register(f"r{i}", 32) for i in range(13)) + "".join(register(name, 32) for name in ("sp", "lr", "pc", "cpsr"))
RISCV = "".join(map(register, "zero ra sp gp tp t0 t1 t2 fp s1 a0 a1 a2 a3 a4 a5 a6 a7 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 t3 t4 t5 t6 pc".split()))


def stub(kind, registers, process=False, length=600):
    """A stub's words to a recording of three samples."""
    ok = packet(b"OK")
    supported = b"PacketSize=1000;qXfer:features:read+" + (b";qXfer:auxv:read+;QPassSignals+" if process else b"")
    opening = [packet(b"T05thread:01;"), packet(supported), ok, *([ok] if process else []), packet(b"vCont;c;s"), packet(features(kind, registers)),
               packet(b"00" * length), packet(b"m01"), packet(b"l"), *([packet(b"l/bin/true")] if process else []), b"+"]
    sample = [packet(b"T05thread:01;"), ok + packet(b"01" * length), *([packet(b"m01") + packet(b"l")] if process else []), ok, packet(b"f4" * 128), packet(b"00" * 128) * 20, b"+"]
    read = [packet(b"T05thread:01;"), ok + packet(b"01" * length), packet(b"00" * 64) * 33, b"+"]
    return pieces(*opening, *(sample + read) * 3, packet(b"T05"), ok)


def gdb():
    said = packet(b"OK")[1:]
    for how in b"\1", b"\2":
        yield how + pieces(packet(b"T05"), packet(b"multiprocess+"), packet(b"O" + b"CPU 0".hex().encode()) + said, b"$T05#b9+")
        yield how + pieces(packet(b"T05"), packet(b""), packet(b"O41") * 100, b"\1\xff", b"+")
        yield how + pieces(packet(b"T05"), packet(b""), packet(b"E01"), b"$T05#b9", b"$T05#b9", b"$T05#b9", b"+")
    yield from (b"\0" + one for one in recorded_stubs())


def recorded_stubs():
    for kind, registers in ("i386:x86-64", X86), ("i386", I386), ("aarch64", ARM64), ("arm", ARM32), ("riscv:rv64", RISCV), ("vax", X86):
        for process in False, True:
            yield stub(kind, registers, process)
    yield stub("i386:x86-64", X86, length=4)
    yield pieces(packet(b"T05"), packet(b"T05") * 3, packet(b"E01"), b"\1\xff", b"x" * 100, packet(b"0*~"), packet(b"W00"))
    # A description without end, byte by byte; registers of their own; includes.
    yield pieces(packet(b"T05"), packet(b"PacketSize=ffff"), packet(b"OK"), packet(b"vCont;c"), *([packet(b"m<")] * 300))
    yield pieces(packet(b"T05"), packet(b""), packet(b"OK"), packet(b""), packet(b'l<target><xi:include href="a.xml"/><xi:include href="b"/>'), packet(b"l" + X86.encode()), packet(b"l"))
    yield pieces(*[b"\1\x40", b"+"] * 20)


def qmp():
    hello = b'{"QMP": {"version": {}, "capabilities": []}}\n'
    ok = b'{"return": {}}\n'
    cpus = b'{"return": [{"cpu-index": 0, "target": "x86_64", "thread-id": 7}, {"cpu-index": 1, "target": "x86_64", "thread-id": 8}]}\n'
    running, paused = b'{"return": {"running": true, "status": "running"}}\n', b'{"return": {"running": false, "status": "postmigrate"}}\n'
    registers = "".join(f"R{name}=0000000000000001 " for name in "AX BX CX DX SI DI BP SP".split()) + "".join(f"R{i}=1 " for i in range(8, 16)) + (
        "\\nRIP=00000000001019b9 RFL=00000006 [-----P-] CPL=3\\nCS =0008 0000000000000000 ffffffff 00af9b00 DPL=0\\nSS =0010 0000000000000000 ffffffff 00cf9300\\n"
        "CR0=80000011 CR2=0 CR3=0000000000104000 CR4=00000020\\nEFER=0000000000000500\\n")
    narrow = "".join(f"E{name}=00000001 " for name in "AX BX CX DX SI DI BP SP".split()) + "EIP=1 EFL=2 CPL=0\\n"
    said = lambda text: b'{"return": "%s"}\n' % text.encode()  # noqa: E731
    mtree = said('FlatView #0\\n AS \\"memory\\", root: system\\n  0000000000000000-000000000009ffff (prio 0, ram): pc.ram\\n  00000000000a0000-00000000000affff (prio 1, rom): x\\n'
                 '  0000000000100000-00000000001fffff (prio 0, i/o): y\\nFlatView #1\\n')
    hva = said("Host virtual address for 0x0 (pc.ram) is 0x7f5e5be00000")
    event = lambda name, data="{}": b'{"event": "%s", "data": %s}\n' % (name.encode(), data.encode())  # noqa: E731
    opening = [hello, ok, ok, b'{"return": {"status": "none"}}\n', cpus, b'{"return": {"enabled": false}}\n', running, cpus]
    sample = [event("STOP") + ok, said(registers), said(narrow), event("RESUME") + ok]
    life = [running, mtree, hva, hva, cpus, b'{"return": [{"label": "gdb"}]}\n']
    closing = [said("* CPU #0: thread_id=1234\\n  CPU #1: thread_id=5\\n"), said("kvm support: enabled"), mtree, hva, hva]
    yield pieces(*opening, *(sample + life) * 3, *closing)
    yield pieces(*opening, *(sample + life), b'{"error": {"desc": "no"}}\n', *closing)
    for name in "SHUTDOWN", "GUEST_PANICKED", "RESET":
        yield pieces(*opening, *sample, event(name) + running, *life[1:], *sample, *life)
    for status in "active", "completed", "failed":
        yield pieces(*opening, *sample, event("MIGRATION", '{"status": "%s"}' % status) + running, *life[1:], *sample, paused, *life[1:])
    yield pieces(*opening[:4], b'{"return": [{"cpu-index": 0, "target": "aarch64"}]}\n', *opening[5:])
    yield pieces(*opening[:4], b'{"return": []}\n', *opening[5:])
    yield pieces(*opening[:7], b'{"return": [{}, {}, {}]}\n', *sample, paused, *sample, *life)
    yield pieces(hello, event("X") * 50, b"\1\xff", b"x\n" * 100, b"{", b"\n")
    yield pieces(b"x" * 100, b"\n", hello)
    yield pieces(hello, b"\1\xff\xff")


def xenstore():
    config = b'{"c_info": {"type": "pvh"}, "b_info": {"kernel": "/boot/kernel"}}'
    answers = [b"0", *[b"web", b"/vm/11111111", config] * 4]
    for how in 0, 1, 0x80, 0xc0, 0x81:
        yield bytes([how]) + pieces(*answers)
        yield bytes([how]) + pieces(*([b""] * 12))
        yield bytes([how]) + pieces(b"3", b"db", b"web", b"x" * 300, b"{")
    yield b"\0" + pieces(b"1", b"n" * 1000, b"v" * 1000, b'{"c_info": {"type": "%s"}, "b_info": {"kernel": 3}}' % (b"t" * 100))


# Command lines


def options():
    lines = (
        "record -F 99 -T 10 -o out.uniprof --max-stack 64k --max-memory 1M --max-overhead 5% --max-pause 20ms --always-pause --no-jitter -s image -v web",
        "run -o dir --start-timeout 2m -T 500ms qemu -F 3", "top -d 1 -w 5s -b -n 3 --by process --sort total --only x --all web",
        "report -b function,line -n 10 --sort self -g=callers -f name -S only --min 1% --depth 3 --json --color always -w a.uniprof",
        "report --state running,blocked --vcpu 0,2-3 --comm sh --pid 1,2 --tid 3 --from 1 --to 2.5s --weight cpu --no-inline --addresses",
        "flamegraph --html --title T --width 1200 --icicle --reverse --by thread", "diff -n 3 --min 1 --fail-above 5% --svg a b", "export --format pprof -o x a",
        "merge -o x a b", "list --ways", "stack -a -S -n 3 -l 7 -b 16 -D -m 0x1000,64 -d 0x2000 -f --json --vcpu 1 web", "ps -t --json --via qmp web",
        "classic -F 100 -T 3 -M -s table -e elf -E elf --unwind cfi out 7")
    values = ("", "-1", "0", "1e9", "99999999999999999999", "0x10", "1.2.3", "nan", "5%", "101%", "10k", "3MiB", "7parsec", "1us", "1h", "2d", "11y", "auto", "x,y", "3-1", ",")
    for verb, line in enumerate(lines):
        words = line.split()[1:]
        # Of two lines for one verb, the second counts for it, too.
        number = verb - (verb > 4 - 1)
        yield bytes([number]) + b"".join(word.encode() + b"\0" for word in words)
        for i, word in enumerate(words):
            if not word.startswith("-"):
                continue
            for value in values:
                yield bytes([number]) + b"".join(part.encode() + b"\0" for part in (*words[:i], word, value))

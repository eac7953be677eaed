# SPDX-License-Identifier: BSD-3-Clause
"""Starts a guest and records it, until there are enough samples."""

import array
import json
import re
import socket
import subprocess
import time

from .code import ARM64, RISCV, X86, Elf, MACHINES, MODES, symbols

# The note with the entry of PVH (xen/elfnote.h); PV guests have others.
XEN_PHYS32_ENTRY = 18
# The first recording is this long, each further one twice as long.
SECONDS, TAKES, RATE = 20, 5, 997
SECONDS_TO_BOOT = 5
# At most, where it is told when a guest is ready.
SECONDS_TO_READY = 300
# Bytes of memory before and behind an address that are taken for code.
NEAR = 1 << 17
PAGE = 4096
# The first address of memory on QEMU's machines, if not 0.
RAM = {"arm64": 0x40000000, "riscv64": 0x80000000}
QEMU = {X86: ["qemu-system-x86_64", "-M", "pc", "-cpu", "max"], ARM64: ["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a57"],
        RISCV: ["qemu-system-riscv64", "-M", "virt"]}


class StartError(Exception):
    pass


def samples_of(text):
    """As `record` tells them at its end."""
    match = re.search(r": (\d+) samples in", text)
    return int(match[1]) if match else 0


def enough(take, wanted, seconds):
    """Takes recordings, each twice as long as the last, until one has as many samples."""
    said = ""
    for attempt in range(TAKES):
        said = take(seconds * 2 ** attempt)
        if samples_of(said) >= wanted:
            return
    raise StartError(f"too few samples: {said}")


def named_by(image):
    """Options that give the image, if it has names; else what the guest was started from has to do."""
    return ["-s", image.name] if symbols(image) else []


def on_xen(image, args, build, scratch, kind):
    from xenrig import Rig
    name, kernel, config = image.stem, args.boot or image, scratch / f"{image.stem}.cfg"
    config.write_text(f'name = "{name}"\ntype = "{kind}"\nkernel = "{kernel.name}"\nmemory = {args.memory}\nvcpus = 1\n'
                      f'cmdline = "{args.arguments}"\ntsc_mode = "native"\non_crash = "preserve"\n', encoding="utf-8")
    options = " ".join(named_by(image))
    with Rig() as rig:
        rig.put_stripped(build / "uniprof")
        rig.put(image, kernel, config)
        rig.run(f"xl sched-credit2 -d 0 -w 65535; xl create {config.name}; sleep {SECONDS_TO_BOOT}", check=True)
        enough(lambda seconds: rig.run(f"uniprof record -F {RATE} -T {seconds} {options} -o out/{name}.uniprof {name}", timeout=10 * seconds).text,
               args.samples, args.seconds)
        rig.get(f"out/{name}.uniprof", scratch)
    return scratch / f"{name}.uniprof"


def ask(channel, command, **arguments):
    """QEMU's answer to a command on its monitor socket."""
    channel.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
    channel.flush()
    for line in channel:
        answer = json.loads(line)
        if "return" in answer or "error" in answer:
            return answer
    raise StartError("QEMU has closed its monitor socket")


def pointers_to(pieces, base, data, size):
    """{word: where it is} of memory that begins at `base`, of words of `size` bytes that may lead to these pieces of code."""
    found, nothing = {}, bytes(PAGE)
    low, high = pieces[0][0], pieces[-1][1]
    for at in range(0, len(data) - PAGE + 1, PAGE):
        if data[at:at + PAGE] == nothing:
            continue
        for i, word in enumerate(array.array("Q" if size == 8 else "I", data[at:at + PAGE])):
            if low <= word < high:
                found.setdefault(word, set()).add(base + at + i * size)
    return found


def pieces_near(addresses):
    """[[start, end]] of the memory around addresses that is taken for code."""
    pieces = []
    for address in sorted(addresses):
        start, end = max(0, address - NEAR) & ~0xfff, (address + NEAR) & ~0xfff
        if pieces and start <= pieces[-1][1]:
            pieces[-1][1] = end
        else:
            pieces.append([start, end])
    return pieces


def memory_of(qmp, addresses, scratch, mode):
    """([(address, bytes)] of the guest's memory near these, in pieces, and all words that may lead there, as pointers_to has them).
    Virtual addresses have to be physical ones."""
    pieces, code = pieces_near(addresses), []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(qmp))
        channel = connection.makefile("rw")
        channel.readline()
        ask(channel, "qmp_capabilities")
        def read(start, size):
            answer = ask(channel, "pmemsave", val=start, size=size, filename=str(scratch / "memory"))
            if "error" in answer:
                raise StartError(f"QEMU: {answer['error']['desc']}")
            return (scratch / "memory").read_bytes()

        code = [(start, read(start, end - start)) for start, end in pieces]
        ram = ask(channel, "query-memory-size-summary")["return"]["base-memory"]
        base = RAM.get(mode, 0)
        return code, pointers_to(pieces, base, read(base, ram), MODES[mode][2] // 8)


def wait_for(guest, image, ready, scratch):
    """Until the guest runs, or says that it does what is to be recorded."""
    console, until = scratch / "console", time.monotonic() + SECONDS_TO_READY
    if ready is None:
        time.sleep(SECONDS_TO_BOOT)
    while ready and guest.poll() is None and not (console.exists() and ready in console.read_text(errors="replace")):
        if time.monotonic() > until:
            raise StartError(f"{image} does not say {ready} in {SECONDS_TO_READY} s")
        time.sleep(0.5)
    if guest.poll() is not None:
        raise StartError(f"{image} has ended: {(scratch / 'log').read_text(errors='replace')}")


def here(image, args, build, scratch):
    """Directly under QEMU, or by the command that was given."""
    qmp, recording = scratch / "qmp", scratch / f"{image.stem}.uniprof"
    named = [] if args.code_in_memory else named_by(image)
    command = args.command.format(qmp=qmp, image=image, console=scratch / "console").split() if args.command else [
        *QEMU[MACHINES[Elf(image).machine][0]], "-accel", "tcg", "-m", str(args.memory), "-display", "none", "-no-reboot", "-serial", f"file:{scratch / 'console'}",
        "-qmp", f"unix:{qmp},server=on,wait=off", "-kernel", str(args.boot or image), "-append", args.arguments]
    with (scratch / "log").open("wb") as log:
        guest = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for(guest, image, args.ready, scratch)
        target = args.target.format(qmp=qmp, pid=guest.pid)
        enough(lambda seconds: subprocess.run([build / "uniprof", "record", "-F", str(RATE), "-T", str(seconds), *named, "-o", recording, target],
                                              cwd=image.resolve().parent, capture_output=True, text=True, check=False).stderr, args.samples, args.seconds)
        if args.code_in_memory:
            args.memory_read = memory_of(qmp, args.addresses_of(recording), scratch, args.code_in_memory)
    finally:
        guest.kill()
        guest.wait()
    return recording


WAYS = {"pv": lambda *how: on_xen(*how, "pv"), "pvh": lambda *how: on_xen(*how, "pvh"), "here": here}


def way_of(image):
    notes = Elf(image).notes
    if XEN_PHYS32_ENTRY in notes:
        return "pvh"
    return "pv" if notes else "here"


def record(image, args, build, scratch):
    """The recording, in the directory `scratch`, of an image that is started, recorded and ended."""
    return WAYS["here" if args.command else args.on or way_of(image)](image, args, build, scratch)

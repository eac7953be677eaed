# SPDX-License-Identifier: BSD-3-Clause
"""Files on their way into the machine and out of it, as tar archives."""

import io
import os
import posixpath
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from . import elf, sysroot
from .errors import RigError
from .port import X86

JOB = "job"

# Takes what pack() made as its input.
UNPACK = "tar -x -f - -C /"


def list_libraries(port):
    """The command that tells which libraries a machine has."""
    return f"ls /lib/{port.triplet}"


def pack(files, present, port):
    """A tar archive, for the machine's root, of `files` ({name in the job's directory: host path}).

    The shared libraries of every program among them come along, but for those that it has
    (`present`, a set of sonames): there the release's own stay in use.
    """
    data = io.BytesIO()
    libraries = {}
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, path in files.items():
            _check_name(name)
            for inner, file in walk(Path(path)):
                _add(archive, posixpath.join(JOB, name, inner), file)
                libraries.update(needed(file, port))
        for soname, file in libraries.items():
            if soname not in present:
                # The loader looks here after the machine's own libraries.
                _add(archive, f"usr/lib/{port.triplet}/{soname}", Path(file))
    return data.getvalue()


def unpack(data, destination):
    """Writes regular files and directories of an archive below `destination`, and nothing elsewhere."""
    try:
        _unpack(data, destination)
    except (tarfile.TarError, OSError) as error:
        raise RigError(f"what the machine sent cannot be written to {destination}: {error}") from error


def _unpack(data, destination):
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            if name.startswith(("/", "../")) or name == "..":
                raise RigError(f"the machine sends a file named '{member.name}', which would leave the target directory")
            target = Path(destination, name)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            elif member.isfile():
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.extractfile(member) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file)
                target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _check_name(name):
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise RigError(f"'{name}' is no name for a file in the job directory")


def walk(path):
    """(name below path, file) of each regular file; the name of a single file is empty."""
    if path.is_dir():
        for directory, _, names in os.walk(path):
            for name in sorted(names):
                file = Path(directory, name)
                if file.is_file():
                    yield file.relative_to(path).as_posix(), file
    elif path.is_file():
        yield "", path
    elif path.exists():
        raise RigError(f"{path} is neither a file nor a directory")
    else:
        raise RigError(f"there is no file {path}")


def _add(archive, name, file):
    try:
        with open(file, "rb") as source:
            status = os.fstat(source.fileno())
            member = tarfile.TarInfo(name.rstrip("/"))
            member.size, member.mtime = status.st_size, int(status.st_mtime)
            member.mode = 0o755 if status.st_mode & 0o111 else 0o644
            archive.addfile(member, source)
    except OSError as error:
        raise RigError(f"{file} cannot be read: {error.strerror}") from error


def needed(file, port):
    """{soname: path} of all shared libraries that a program needs."""
    with open(file, "rb") as source:
        if source.read(4) != b"\x7fELF":
            return {}
        source.seek(0)
        data = source.read()
    if not elf.is_dynamic(data):
        return {}
    return _of_this_machine(file) if port is X86 else _of_sysroot(data, port)


def _of_sysroot(data, port):
    """Those of another architecture's program, from where its packages are unpacked; the machine has the rest."""
    found, pending = {}, elf.needed(data)
    places = [sysroot.directory(port) / name for name in port.library_directories()]
    while pending:
        name = pending.pop()
        path = next((place / name for place in places if (place / name).exists()), None)
        if path and name not in found:
            found[name] = path
            pending += elf.needed(path.read_bytes())
    return found


def _of_this_machine(file):
    """Going by this machine's loader."""
    listing = subprocess.run(["ldd", file], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if listing.returncode != 0 and "not a dynamic executable" not in listing.stderr:
        raise RigError(f"ldd cannot tell the shared libraries of {file}: {listing.stderr.strip()}")
    missing = re.findall(r"^\s*(\S+) => not found", listing.stdout, re.M)
    if missing:
        raise RigError(f"{file} needs {', '.join(missing)}, which this machine does not have")
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", listing.stdout, re.M))

"""A `mount.nfs` for a kernel without an NFS client: NFS 4.0 by libnfs, shown as files by FUSE, all in user space.

`python mount_nfs.py [-o OPTIONS] SERVER:/PATH DIRECTORY` returns 0 when the directory is mounted, or 32 with the
reason, as mount.nfs does. The process that serves the mount stays until the unmount. Every mount uses NFS 4.0, the only
NFS 4 of libnfs 4. Of the options, only `ro` has an effect.

`FUSE_LIBRARY_PATH` and `LIBNFS_LIBRARY_PATH` name the libraries.
"""

import argparse
import ctypes
import errno
import itertools
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mfusepy

LARGEST_WRITE_BYTES = 2000
"""Maximum size of one write of libnfs 4.0 over NFS 4."""

_FAILED = 32
_READY = b"\0"
_FIELDS = (
    *("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks"),
    *("atime", "mtime", "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec", "used"),
)


class _Status(ctypes.Structure):
    """`struct nfs_stat_64` of libnfs 4.0.0, nfsc/libnfs.h."""

    _fields_ = [(name, ctypes.c_uint64) for name in _FIELDS]


class _Entry(ctypes.Structure):
    """The beginning of `struct nfsdirent` in the same header."""

    _fields_ = [("next", ctypes.c_void_p), ("name", ctypes.c_char_p)]


class _Times(ctypes.Structure):
    """Two `struct timeval`."""

    _fields_ = [(name, ctypes.c_long) for name in ("a", "a_micro", "m", "m_micro")]


class Server:
    """One export, mounted by libnfs. Every call raises OSError with the server's error."""

    def __init__(self, address: str, path: str) -> None:
        self._library = ctypes.CDLL(os.environ["LIBNFS_LIBRARY_PATH"])
        for name in ("nfs_init_context", "nfs_readdir"):
            getattr(self._library, name).restype = ctypes.c_void_p
        self._library.nfs_get_error.restype = ctypes.c_char_p
        self._context = ctypes.c_void_p(self._library.nfs_init_context())
        self.call("set_version", 4)
        # two clients with one name are one client to the server, which forgets the open files of the first
        self._library.nfs4_set_client_name(self._context, uuid.uuid4().hex.encode())
        self.call("mount", address.encode(), path.encode())

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function of libnfs, and return its result."""
        answer: int = getattr(self._library, f"nfs_{name}")(self._context, *arguments)
        if answer < 0:
            text = (self._library.nfs_get_error(self._context) or b"").decode()
            raise OSError(-answer, text)
        return answer

    def destroy(self) -> None:
        """Close the connection."""
        self._library.nfs_destroy_context(self._context)

    def entries(self, path: str) -> Iterator[str]:
        """Return the names in a directory."""
        directory = ctypes.c_void_p()
        self.call("opendir", path.encode(), ctypes.byref(directory))
        try:
            while address := self._library.nfs_readdir(self._context, directory):
                yield _Entry.from_address(address).name.decode(errors="surrogateescape")
        finally:
            self._library.nfs_closedir(self._context, directory)


class File:
    """An open file on a connection of its own: an operation of libnfs on a path closes the open files of its client."""

    def __init__(self, address: str, export: str, path: str, flags: int) -> None:
        self._server = Server(address, export)
        self._handle = ctypes.c_void_p()
        self._server.call("open2", path.encode(), flags, 0o600, ctypes.byref(self._handle))

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function of libnfs with the open file."""
        return self._server.call(name, self._handle, *arguments)

    def close(self) -> None:
        """Close the file and its connection."""
        self.call("close")
        self._server.destroy()


class Files(mfusepy.Operations):  # type: ignore[misc] # the package has no types
    """The files of an export, in the form of FUSE. A byte is written to `ready` when they are mounted."""

    use_ns = True

    def __init__(self, address: str, export: str, ready: int) -> None:
        self._where = (address, export)
        self._server = Server(address, export)
        self._ready = ready
        self._numbers = itertools.count(1)
        self._files: dict[int, File] = {}

    def init(self, path: str) -> None:
        os.write(self._ready, _READY)
        os.close(self._ready)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        status = _Status()
        self._server.call("lstat64", path.encode(), ctypes.byref(status))
        values = {f"st_{name}": int(getattr(status, name)) for name in _FIELDS[:10]}
        for name in ("atime", "mtime", "ctime"):
            values[f"st_{name}"] = getattr(status, name) * 10**9 + getattr(status, f"{name}_nsec")
        return values

    def readdir(self, path: str, fh: int) -> list[str]:
        return list(self._server.entries(path))

    def statfs(self, path: str) -> dict[str, int]:
        buffer = (ctypes.c_ulong * 32)()  # struct statvfs begins with eleven of these
        self._server.call("statvfs", path.encode(), ctypes.byref(buffer))
        names = ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail")
        return {f"f_{name}": int(value) for name, value in zip(names, buffer, strict=False)}

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_TRUNC:
            self.truncate(path, 0)
        return self._open(path, flags & os.O_ACCMODE)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        number = self._open(path, os.O_CREAT | os.O_RDWR)
        # libnfs creates a file with a verifier in the place of its times, and with another mode
        self.chmod(path, mode)
        self.utimens(path)
        return number

    def _open(self, path: str, flags: int) -> int:
        number = next(self._numbers)
        self._files[number] = File(*self._where, path, flags)
        return number

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        place = (ctypes.c_uint64(offset), ctypes.c_uint64(size))
        length = self._files[fh].call("pread", *place, buffer)
        return buffer.raw[:length]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        written = 0
        while written < len(data):
            part = data[written : written + LARGEST_WRITE_BYTES]
            place = (ctypes.c_uint64(offset + written), ctypes.c_uint64(len(part)))
            written += self._files[fh].call("pwrite", *place, part)
        return written

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        return self._files[fh].call("fsync")

    def release(self, path: str, fh: int) -> int:
        self._files.pop(fh).close()
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        return self._server.call("truncate", path.encode(), ctypes.c_uint64(length))

    def mkdir(self, path: str, mode: int) -> int:
        return self._server.call("mkdir2", path.encode(), mode)

    def rmdir(self, path: str) -> int:
        return self._server.call("rmdir", path.encode())

    def unlink(self, path: str) -> int:
        return self._server.call("unlink", path.encode())

    def rename(self, old: str, new: str) -> int:
        return self._server.call("rename", old.encode(), new.encode())

    def chmod(self, path: str, mode: int) -> int:
        return self._server.call("chmod", path.encode(), mode & 0o7777)

    def chown(self, path: str, uid: int, gid: int) -> int:
        status = self.getattr(path)
        owners = [
            status[name] if number == 0xFFFFFFFF else number
            for name, number in (("st_uid", uid), ("st_gid", gid))
        ]
        return self._server.call("lchown", path.encode(), *owners)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        stamps = times or (time.time_ns(),) * 2
        parts = [part for stamp in stamps for part in (stamp // 10**9, stamp % 10**9 // 1000)]
        return self._server.call("utimes", path.encode(), ctypes.byref(_Times(*parts)))


def _serve(address: str, path: str, directory: str, options: list[str], ready: int) -> None:
    mfusepy.FUSE(
        Files(address, path, ready),
        directory,
        foreground=True,
        nothreads=True,
        allow_other=True,
        ro="ro" in options,
        fsname=f"{address}:{path}",
        subtype="nfs",
    )


def _child(arguments: argparse.Namespace, ready: int, said: int) -> int:
    os.setsid()
    address, _, path = arguments.export.partition(":")
    try:
        _serve(address, path, arguments.directory, arguments.options.split(","), ready)
    except (OSError, RuntimeError) as error:
        os.write(said, f"mount.nfs: {arguments.export}: {error}\n".encode())
        return _FAILED
    return 0


def main() -> int:
    """Mount the export, and return the exit code of mount.nfs."""
    parser = argparse.ArgumentParser(prog="mount.nfs", description=__doc__)
    parser.add_argument("-o", dest="options", default="")
    parser.add_argument("export", help="SERVER:/PATH")
    parser.add_argument("directory")
    arguments = parser.parse_args()
    if not Path(arguments.directory).is_dir():
        print(f"mount.nfs: mount point {arguments.directory} does not exist", file=sys.stderr)
        return _FAILED
    mounted, ready = os.pipe()
    failure, said = os.pipe()
    if os.fork() == 0:
        os.close(mounted)
        # the caller of mount.nfs waits until all processes have closed its output
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        os._exit(_child(arguments, ready, said))
    os.close(ready)
    os.close(said)
    if os.read(mounted, 1) == _READY:
        return 0
    sys.stderr.write(os.read(failure, 4096).decode() or os.strerror(errno.EIO))
    return _FAILED


if __name__ == "__main__":
    sys.exit(main())

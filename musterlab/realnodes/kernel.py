"""System calls that the standard library of Python 3.11 does not have: namespaces, mounts, interfaces.

Every function raises OSError with its purpose.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import struct
from collections.abc import Iterator

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18

_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_SIOCSIFHWADDR = 0x8924
_SIOCBRADDBR = 0x89A0
_IFF_UP = 1
_ARPHRD_ETHER = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, subject: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)


def unshare(flags: int) -> None:
    """Move the caller into new namespaces. A new process namespace begins with the caller's next child."""
    _check(_libc.unshare(flags), "unshare")


def enter(namespace: int) -> None:
    """Move the calling thread into the namespace of a file descriptor."""
    _check(_libc.setns(namespace, 0), "setns")


@contextlib.contextmanager
def inside(namespace: int, home: int) -> Iterator[None]:
    """Run the block in a network namespace. Afterwards, move the thread into the namespace `home`."""
    enter(namespace)
    try:
        yield
    finally:
        enter(home)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def can_watch(instances: int) -> bool:
    """Return whether this user can have `instances` more inotify instances: the machine limits them for each user."""
    descriptors: list[int] = []
    try:
        for _ in range(instances):
            descriptor = _libc.inotify_init1(os.O_CLOEXEC)
            if descriptor < 0:
                number = ctypes.get_errno()
                if number != errno.EMFILE:
                    raise OSError(number, os.strerror(number), "inotify_init1")
                return False
            descriptors.append(descriptor)
        return True
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def set_host_name(name: str) -> None:
    """Set the host name of the present UTS namespace."""
    encoded = name.encode()
    _check(_libc.sethostname(encoded, len(encoded)), "sethostname")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system of `kind`, or with MS_BIND show `source` also at `target`."""
    arguments = (source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags))
    _check(_libc.mount(*arguments, options.encode() or None), target)


def change_root(root: str) -> None:
    """Make the mount at `root` the root of the present mount namespace, and unmount the old root."""
    number = _PIVOT_ROOT[platform.machine()]
    os.chdir(root)
    # with the same directory for both arguments, the old root is mounted over the new one; the next call
    # unmounts it
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount2")
    os.chdir("/")


def add_bridge(name: str, hardware_address: str) -> None:
    """Make a bridge with a hardware address such as `02:00:0a:50:00:01` that it keeps.

    A bridge without an address of its own takes the lowest address of its ports. Each new port can change it. Then
    pods send to the old address, and get no answer for ten seconds or more.
    """
    address = bytes.fromhex(hardware_address.replace(":", ""))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCBRADDBR, name.encode() + b"\0")
        fcntl.ioctl(control, _SIOCSIFHWADDR, struct.pack("16sH6s8x", name.encode(), _ARPHRD_ETHER, address))


def bring_up(name: str) -> None:
    """Switch an interface on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", name.encode(), 0)
        (flags,) = struct.unpack("16xH", fcntl.ioctl(control, _SIOCGIFFLAGS, request)[:18])
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), flags | _IFF_UP))


def add_address(label: str, address: str, mask: str) -> None:
    """Give an interface an IPv4 address; a label such as `eth0:1` stands for one more address of `eth0`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, mask)):
            packed = struct.pack("16sHH4s8x", label.encode(), socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(control, request, packed)

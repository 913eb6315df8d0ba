"""The mount options of a storage class: their names and values as in nfs(5) of nfs-utils 2.6.4."""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Final

_POSITIVE: Final = "[1-9][0-9]{0,8}"
_NUMBER: Final = "[0-9]{1,9}"
_PORT: Final = "[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_FLAVORS: Final = "(none|sys|krb5|krb5i|krb5p)"
_VALUES: Final = {
    "rsize": _POSITIVE, "wsize": _POSITIVE, "timeo": _POSITIVE, "retrans": _NUMBER, "nconnect": "[1-9]|1[0-6]",
    "actimeo": _NUMBER, "acregmin": _NUMBER, "acregmax": _NUMBER, "acdirmin": _NUMBER, "acdirmax": _NUMBER,
    "minorversion": "[0-2]", "port": _PORT, "proto": "tcp|tcp6|udp|udp6|rdma|rdma6",
    "sec": f"{_FLAVORS}(:{_FLAVORS})*", "lookupcache": "all|none|pos|positive", "local_lock": "all|flock|posix|none",
    "xprtsec": "none|tls|mtls",
}  # fmt: skip
"""The options with a value, and the form of the value. Versions of NFS are compared with those of the storage."""
_OPPOSITES: Final = (
    ("hard", "soft", "softerr"), ("ro", "rw"), ("lock", "nolock"), ("ac", "noac"), ("cto", "nocto"),
    ("resvport", "noresvport"), ("sharecache", "nosharecache"), ("rdirplus", "nordirplus"),
)  # fmt: skip
_NAMES: Final = ("nfsvers", "vers", *_VALUES, *(name for names in _OPPOSITES for name in names))
_OTHERS: Final = frozenset({
    "acl", "async", "atime", "bg", "clientaddr", "defaults", "dev", "diratime", "dirsync", "exec", "fg",
    "fsc", "intr", "lazytime", "max_connect", "migration", "mountport", "mountproto", "mountvers",
    "namlen", "noacl", "noatime", "nodev", "nodiratime", "noexec", "nofsc", "nointr", "nomigration",
    "norelatime", "nosoftreval", "nosuid", "notrunkdiscovery", "relatime", "remount", "retry", "sloppy",
    "softreval", "strictatime", "suid", "sync", "tcp", "trunkdiscovery", "udp", "v2", "v3", "v4", "v4.0",
    "v4.1", "v4.2", "write", "_netdev",
})  # fmt: skip
"""Further options of nfs(5) and mount(8)."""


def problems(options: Iterable[str]) -> Iterator[str]:
    """Yield the options with an impossible value, those that are there twice, and those that exclude each other."""
    first: dict[str, str] = {}
    for option in options:
        name, mark, value = option.partition("=")
        form = _VALUES.get(name)
        if form and not re.fullmatch(form, value):
            yield f"{option}: the value has the form {form}"
        elif not form and mark and name in _NAMES and not name.endswith("vers"):
            yield f"{option}: this option has no value"
        group = next((names for names in _OPPOSITES if name in names), ())
        key = group[0] if group else "vers" if name == "nfsvers" else name
        if key in first:
            yield f"{first[key]} and {option}: leave one of them"
        first.setdefault(key, option)


def unknown(options: Iterable[str]) -> Iterator[str]:
    """Yield each option that nfs(5) and mount(8) do not have, and the nearest one."""
    for option in options:
        name = option.partition("=")[0]
        if name and name not in _NAMES and name not in _OTHERS:
            near = difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.8)
            hint = f"is {near[0]} meant?" if near else "nfs(5) and mount(8) do not have it"
            yield f"mount option {option}: {hint}"

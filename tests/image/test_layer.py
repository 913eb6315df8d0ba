"""image.build: the files of a root file system that go into the layer, which has no trace of its build time."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from image import build

ENTRIES = (
    ("./usr/bin/python3.11", b"the interpreter"),
    ("./usr/share/doc/libc6/copyright", b"a licence"),
    ("./usr/share/doc/libc6/changelog.gz", b"history"),
    ("./usr/share/man/man1/python.1", b"a manual"),
    ("./usr/bin/dpkg-deb", b"a program for the installation"),
    ("./var/lib/dpkg/status.d/libc6", b"Package: libc6"),
    ("./var/lib/dpkg/status.d/dpkg", b"Package: dpkg"),
    ("./etc/resolv.conf", b"of the machine that built it"),
    ("./usr/share/ca-certificates/mozilla/B.crt", b"authority B"),
    ("./usr/share/ca-certificates/mozilla/A.crt", b"authority A\n"),
    ("./usr/bin/openssl", b"a program for the installation"),
)


def root(path: Path, entries: Sequence[tuple[str, bytes]], *, time_seconds: int) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uid, entry.uname = len(content), time_seconds, 1000, "somebody"
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("./usr/bin/a-second-name")
        link.type, link.linkname = tarfile.LNKTYPE, "./usr/bin/python3.11"
        archive.addfile(link)
    return path


def test_order_times_and_owners_of_the_files_do_not_change_the_layer(tmp_path: Path) -> None:
    one = root(tmp_path / "one.tar", ENTRIES, time_seconds=1_000_000_000)
    other = root(tmp_path / "other.tar", ENTRIES[::-1], time_seconds=1_700_000_000)
    assert build.layer_of(one) == build.layer_of(other)


def test_only_the_needs_of_the_operator_and_the_licences_are_in_the_layer(tmp_path: Path) -> None:
    layer = build.layer_of(root(tmp_path / "root.tar", ENTRIES, time_seconds=1))
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        entries = {entry.name: entry for entry in archive}
        assert not {entry.uid for entry in entries.values()} - {0}
        assert {entry.mtime for entry in entries.values()} == {build.EPOCH}
        second_name = archive.extractfile("usr/bin/a-second-name")
        assert second_name is not None
        assert second_name.read() == b"the interpreter"
        authorities = archive.extractfile(build.AUTHORITIES)
        assert authorities is not None
        assert authorities.read() == b"authority A\nauthority B\n"
    assert entries["usr/lib/ssl/cert.pem"].linkname == f"/{build.AUTHORITIES}"
    assert entries["tmp"].mode == 0o1777
    assert entries["usr/local/bin/muster"].mode == 0o755
    assert entries["usr/bin/python3"].linkname == "python3.11"
    assert {"usr/share/doc/libc6/copyright", "var/lib/dpkg/status.d/libc6"} <= set(entries)
    left_out = {"usr/share/man", "usr/share/doc/libc6/changelog.gz", "usr/bin/dpkg-deb", "etc/resolv.conf"}
    left_out |= {"usr/bin/openssl", "usr/share/ca-certificates/mozilla/A.crt"}
    assert not (left_out | {"var/lib/dpkg/status.d/dpkg"}) & set(entries)

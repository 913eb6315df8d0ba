"""`musterlab.prebuilt`: published programs come from a server on loopback, and only with the digests in the list."""

import hashlib
import io
import re
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from musterlab import binaries, prebuilt
from musterlab.build import CONTROL_PLANE, KUBE_SCHEDULER, LOWEST_CONTROL_PLANE
from orchestrator.progress import Reporter
from tests.musterlab.conftest import World

SERVER = ("kube-apiserver", "kube-controller-manager", "kubectl")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Mirror:
    """A folder of archives that a server on loopback offers, and the list of their digests."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.list = folder / "list.yaml"
        folder.mkdir()
        monkeypatch.setattr(prebuilt, "_LIST", self.list)
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        self.archive(
            "server.tar.gz", {f"kubernetes/server/bin/{name}": name for name in (*SERVER, "kubelet")}
        )
        self.archive(
            "envtest.tar.gz",
            {"controller-tools/envtest/etcd": "etcd", "controller-tools/envtest/kubectl": "old"},
        )
        (folder / "kwok-linux-amd64").write_text("kwok")
        self.write()

    def archive(self, name: str, members: dict[str, str]) -> None:
        with tarfile.open(self.folder / name, "w:gz") as content:
            for path, text in members.items():
                member = tarfile.TarInfo(path)
                member.size = len(text)
                content.addfile(member, io.BytesIO(text.encode()))

    def write(self) -> None:
        def entry(name: str, **programs: object) -> dict[str, object]:
            digest = "sha512:" + hashlib.sha512((self.folder / name).read_bytes()).hexdigest()
            return {"url": f"https://unreachable.invalid/{name}", "digest": digest, **programs}

        entries = [
            entry("server.tar.gz", programs=[*SERVER]),
            entry("envtest.tar.gz", programs=["etcd"]),
            entry("kwok-linux-amd64", program="kwok"),
        ]
        self.list.write_text(yaml.safe_dump({"x86_64": entries}))
        prebuilt._lists.cache_clear()


@pytest.fixture
def mirror(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    made = Mirror(world.root / "mirror", monkeypatch)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(made.folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv(prebuilt.MIRROR_VARIABLE, f"http://127.0.0.1:{server.server_port}/")
    yield made
    server.shutdown()
    server.server_close()
    prebuilt._lists.cache_clear()


def find(lines: list[str]) -> binaries.Binaries:
    return binaries.find(Reporter(lines.append))


def test_published_programs_come_before_a_build_and_are_cached(world: World, mirror: Mirror) -> None:
    world.install_go()
    lines: list[str] = []
    assert not binaries.at_hand()
    found = find(lines)
    assert {name: path.read_text() for name, path in found.paths.items()} == {
        name: name for name in CONTROL_PLANE.programs
    }
    assert all(path.stat().st_mode & 0o100 for path in found.paths.values())
    assert "fetched 5 published programs" in lines[-1]
    assert world.builds() == 0
    (mirror.folder / "server.tar.gz").unlink()
    assert binaries.at_hand()
    assert find(lines).directory == found.directory


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("server.tar.gz", "other"),
        ("kwok-linux-amd64", "other"),
        ("envtest.tar.gz", "absent"),
        ("envtest.tar.gz", "empty"),
        ("server.tar.gz", "no archive"),
        ("server.tar.gz", "cut archive"),
        ("envtest.tar.gz", "without the program"),
    ],
)
def test_an_archive_that_is_not_the_published_one_is_not_used(
    world: World, mirror: Mirror, file: str, what: str
) -> None:
    """A wrong digest and a missing file, and then files with a right digest but without the program."""
    world.install_go()
    path = mirror.folder / file
    if what == "absent":
        path.unlink()
    elif what == "without the program":
        mirror.archive(file, {"controller-tools/envtest/etcd/README": "etcd"})
    else:
        data = path.read_bytes()
        path.write_bytes(
            {"other": data + b"\0", "empty": b"", "no archive": b"<html>", "cut archive": data[:60]}[what]
        )
    if what in {"no archive", "cut archive", "without the program"}:
        mirror.write()
    lines: list[str] = []
    found = find(lines)
    assert found.paths["kubectl"].read_text().startswith("#!/bin/sh")
    assert world.builds() == 1
    assert re.search(
        rf"no published programs \(.*{re.escape(file)}.*\); building the control plane", lines[0]
    )
    assert [path.name for path in (world.cache / "muster" / "lab").glob("prebuilt-*") if path.is_dir()] == []


def test_without_archives_and_go_both_are_named(world: World, mirror: Mirror) -> None:
    (mirror.folder / "server.tar.gz").unlink()
    with pytest.raises(Exception, match=r"archives: http://127.0.0.1.*404.*build: there is no 'go'"):
        find([])


def test_archives_are_used_only_for_their_programs(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prebuilt.archives(CONTROL_PLANE.programs)
    assert prebuilt.archives(("etcd",))[0].programs == ("etcd",)
    assert not prebuilt.archives(KUBE_SCHEDULER.programs)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert not prebuilt.archives(CONTROL_PLANE.programs)


def test_a_control_plane_of_a_named_release_is_always_built(world: World, mirror: Mirror) -> None:
    world.install_go()
    assert LOWEST_CONTROL_PLANE.only_built
    found = binaries.find(Reporter(lambda _line: None), LOWEST_CONTROL_PLANE)
    assert found.directory.name.startswith("lowest-")


def test_the_list_has_every_program_with_a_digest_a_source_and_a_date() -> None:
    entries = yaml.safe_load((Path(prebuilt.__file__).parent / "prebuilt.yaml").read_text())
    lengths = {"sha256": 64, "sha512": 128}
    for archives in entries.values():
        programs = [name for each in archives for name in each.get("programs") or [each["program"]]]
        assert sorted(programs) == sorted(CONTROL_PLANE.programs)
        for each in archives:
            algorithm, digest = each["digest"].split(":")
            assert re.fullmatch(rf"[0-9a-f]{{{lengths[algorithm]}}}", digest)
            assert each["url"].startswith("https://")
            assert each["source"]
            assert each["date"]

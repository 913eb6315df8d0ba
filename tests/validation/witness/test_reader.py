"""The reader on a scripted API server: the objects that it passes on, and its report when changes may be missing."""

import asyncio
import base64
import hashlib
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.certificates import Authority
from tests.cluster.fake_api_server import (
    CUT,
    END,
    Answer,
    FakeApiServer,
    Watch,
    event,
    page,
    pod,
    serving,
    status,
)
from validation.witness import reader
from validation.witness.reader import Handlers, Kind, Reader, ReadFailed, ca_sha256, connect

PODS = Kind("pods", "/api/v1/pods")
OPTIONAL = Kind("gpunodes", "/apis/muster.dev/v1alpha1/gpunodes", optional=True)


class Heard:
    """Collects the calls of the reader, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.loop = asyncio.get_running_loop()
        self.more = asyncio.Event()

    def say(self, line: str) -> None:
        def note() -> None:
            self.lines.append(line)
            self.more.set()

        self.loop.call_soon_threadsafe(note)

    async def until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        async with asyncio.timeout(10):
            while not condition(self.lines):
                self.more.clear()
                await self.more.wait()
        return self.lines


def kubeconfig(directory: Path, url: str) -> Path:
    path = directory / "kubeconfig"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def reading(server: FakeApiServer, directory: Path, kind: Kind = PODS) -> AsyncIterator[Heard]:
    heard = Heard()

    def changed(_kind: Kind, change: str, entry: dict[str, Any]) -> None:
        heard.say(f"{change} {entry['metadata']['name']}")

    handlers = Handlers(
        changed,
        lambda _kind, change, version: heard.say(f"{change} {version}".strip()),
        lambda error: heard.say(f"failed: {error}"),
    )
    one = Reader(connect(kubeconfig(directory, server.url)), kind, handlers)
    one.start()
    try:
        yield heard
    finally:
        await asyncio.to_thread(one.stop)


async def test_every_change_is_handed_on_once_with_the_user_s_access(tmp_path: Path) -> None:
    async with serving() as server:
        server.on("GET", PODS.path, page(pod("a")))
        changes = [event("ADDED", pod("b")), event("MODIFIED", pod("b")), event("DELETED", pod("a"))]
        server.on("WATCH", PODS.path, Watch(*changes, END))
        async with reading(server, tmp_path) as heard:
            lines = await heard.until(lambda lines: "deleted a" in lines)
        assert [line for line in lines if "listed" not in line] == [
            "added a",
            "added b",
            "modified b",
            "deleted a",
        ]
        assert server.requests[0].headers["Authorization"] == "Bearer secret"


async def test_a_watch_that_the_server_ends_continues_from_its_last_version_without_a_gap(
    tmp_path: Path,
) -> None:
    async with serving() as server:
        server.on("GET", PODS.path, page(pod("a")))
        server.on(
            "WATCH", PODS.path, Watch(event("ADDED", pod("b")), END), Watch(event("ADDED", pod("c")), END)
        )
        async with reading(server, tmp_path) as heard:
            lines = await heard.until(lambda lines: "added c" in lines)
        assert [line.split()[0] for line in lines] == ["added", "listed", "added", "added"]
        first, second = (r.query["resourceVersion"] for r in server.requests_of("WATCH")[:2])
        assert (first, second) == ("10", "1"), "that of the list, then that of b"


async def test_a_connection_that_is_cut_is_said_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "RETRY_SECONDS", 0.01)
    async with serving() as server:
        server.on("GET", PODS.path, page(pod("a")))
        server.on("WATCH", PODS.path, Watch(CUT), Watch(event("ADDED", pod("b"))))
        async with reading(server, tmp_path) as heard:
            lines = await heard.until(lambda lines: "added b" in lines)
        assert [line.split()[0] for line in lines] == ["added", "listed", "lost", "resumed", "added"]


async def test_an_expired_version_is_a_relist_that_finds_the_missed_changes(tmp_path: Path) -> None:
    async with serving() as server:
        server.on("GET", PODS.path, page(pod("a"), pod("b")), page(pod("b"), pod("c")))
        server.on("WATCH", PODS.path, Watch(event("ERROR", status(410, "Expired", "too old")), END))
        async with reading(server, tmp_path) as heard:
            lines = await heard.until(lambda lines: any(line.startswith("relisted") for line in lines))
        assert [line.split(" ")[0] for line in lines[:3]] == ["added", "added", "listed"]
        assert lines[3:5] == ["deleted a", "added c"]
        assert lines[5].startswith("relisted")


async def test_a_forbidden_kind_ends_the_run_and_a_missing_one_does_not(tmp_path: Path) -> None:
    async with serving() as server:
        server.on("GET", PODS.path, Answer(status(403, "Forbidden", "no"), 403))
        server.on("GET", OPTIONAL.path, Answer(status(404, "NotFound", "no"), 404))
        async with reading(server, tmp_path) as heard:
            assert await heard.until(bool) == ["failed: pods cannot be read: 403 Forbidden"]
        async with reading(server, tmp_path, OPTIONAL) as heard:
            assert await heard.until(bool) == ["absent"]


async def test_an_older_version_is_read_where_the_server_has_no_newer_one(tmp_path: Path) -> None:
    paths = [f"/apis/resource.k8s.io/{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1")]
    slices = Kind("slices", paths[0], optional=True, older=tuple(paths[1:]))
    required = Kind("slices", paths[0], older=tuple(paths[1:]))
    unknown = Answer(status(404, "NotFound", "no"), 404)
    async with serving() as server:
        for path in paths:
            server.on("GET", path, unknown)
        async with reading(server, tmp_path, slices) as heard:
            assert await heard.until(bool) == ["absent"]
        async with reading(server, tmp_path, required) as heard:
            assert await heard.until(bool) == ["failed: slices cannot be read: 404 Not Found"]
    async with serving() as server:
        server.on("GET", paths[0], unknown)
        server.on("GET", paths[1], page(pod("a")))
        server.on("WATCH", paths[1], Watch(END), Watch(event("ADDED", pod("b")), END))
        async with reading(server, tmp_path, slices) as heard:
            lines = await heard.until(lambda lines: "added b" in lines)
        assert [line for line in lines if "listed" not in line] == ["added a", "added b"]


def test_a_kubeconfig_that_is_none_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("kind: Config\n")
    with pytest.raises(ReadFailed, match="the kubeconfig cannot be used: "):
        connect(tmp_path / "kubeconfig")


def test_it_loads_nothing_of_the_orchestrator() -> None:
    program = (
        "import sys; import validation.witness.reader, validation.witness.objects; "
        "print([name for name in sys.modules if name.partition('.')[0] in {'orchestrator', 'musterlab', 'aiohttp'}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_digest_of_the_authority_is_that_of_its_certificates(tmp_path: Path) -> None:
    one, other = (Authority().pem.decode() for _ in range(2))
    digests = [hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest() for pem in (one, other)]

    def digest_of(text: str) -> str:
        cluster: dict[str, str] = {"server": "https://127.0.0.1:1"}
        if text:
            cluster["certificate-authority-data"] = base64.b64encode(text.encode()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        return ca_sha256(connect(tmp_path / "config"))

    assert digest_of(one) == digests[0]
    assert digest_of(one + other) == digest_of(other + one + one)
    assert digest_of(one + other) == hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    assert digest_of("") == ""

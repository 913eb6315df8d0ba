"""The internet of a test: one HTTP server on loopback that plays all servers from which a bundle is built."""

import functools
import gzip
import hashlib
import http.server
import io
import json
import shutil
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import yaml

TOKEN = "only-for-this-pull"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Internet:
    """Files by path, the faults of their transfers, and all received requests."""

    files: dict[str, bytes] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    cut: dict[str, int] = field(default_factory=dict)
    """By path, the number of transfers that end half-way."""
    moved: dict[str, str] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    """Prefixes of a registry that require a token."""
    pushed: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and Range header of each request."""
    url: str = ""

    def requests_for(self, text: str) -> list[tuple[str, str, str]]:
        return [each for each in self.requests if text in each[1]]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, internet: Internet, *arguments: object) -> None:
        self.internet = internet
        super().__init__(*arguments)  # type: ignore[arg-type]

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        net = self.internet
        net.requests.append((self.command, self.path, self.headers.get("Range", "")))
        if path == "/token":
            scope = parse_qs(urlsplit(self.path).query)["scope"][0]
            return self._answer(200, json.dumps({"token": f"{TOKEN} {scope}"}).encode())
        for prefix in net.private:
            if path.startswith(f"/v2/{prefix}/"):
                scope = f"repository:{prefix}:pull"
                if self.headers.get("Authorization") != f"Bearer {TOKEN} {scope}":
                    challenge = f'Bearer realm="{net.url}/token",service="registry",scope="{scope}"'
                    return self._answer(401, b"", {"WWW-Authenticate": challenge})
        if path in net.moved:
            return self._answer(307, b"", {"Location": net.moved[path]})
        content = net.files.get(path, net.pushed.get(path))
        if content is None or path in net.gone:
            return self._answer(404, b"not here")
        return self._content(path, content)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.internet.requests.append((self.command, self.path, ""))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        repository = self.path.removesuffix("/uploads/")
        self._answer(202, b"", {"Location": f"{repository}/uploads/1?state=x"})

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        parts = urlsplit(self.path)
        digest = parse_qs(parts.query).get("digest", [""])[0]
        if digest and digest != f"sha256:{sha256(content)}":
            return self._answer(400, b"DIGEST_INVALID")
        path = parts.path.replace("/uploads/1", f"/{digest}") if digest else parts.path
        self.internet.pushed[path] = content
        return self._answer(201, b"")

    def _content(self, path: str, content: bytes) -> None:
        given = self.headers.get("Range", "")
        start = int(given.removeprefix("bytes=").rstrip("-")) if given else 0
        kind = "application/json"
        if path.startswith("/v2/") and "/manifests/" in path:
            kind = json.loads(content)["mediaType"]
        headers = {"ETag": f'"{sha256(content)[:8]}"', "Content-Type": kind}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        rest = content[start:]
        if self.internet.cut.get(path, 0) > 0:
            self.internet.cut[path] -= 1
            self._head(206 if start else 200, len(rest), headers)
            self.wfile.write(rest[: len(rest) // 2])
            self.close_connection = True
            return
        self._answer(206 if start else 200, rest, headers)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self._head(status, len(content), headers or {})
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def internet() -> Iterator[Internet]:
    net = Internet()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, net))
    server.daemon_threads = True
    net.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield net
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Signer:
    """A key of a repository, which signs files as gpg does."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, mode=0o700)
        self._home = home
        words = ["--passphrase", "", "--quick-generate-key", "T <t@example.com>", "ed25519", "sign", "never"]
        self._gpg(*words)
        self.key = self._gpg("--armor", "--export")
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)

    def sign(self, text: str) -> bytes:
        signed = self._gpg("--clear-sign", "--output", "-", given=text.encode())
        subprocess.run(["gpgconf", "--homedir", self._home, "--kill", "all"], check=True)
        return signed

    def _gpg(self, *words: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            ["gpg", "--homedir", self._home, "--batch", *words], input=given, check=True, capture_output=True
        )
        return done.stdout


def apt(net: Internet, prefix: str, packages: dict[str, str], scratch: Path, signer: Signer) -> None:
    """Serve a signed repository of packages, each with its dependencies, built by dpkg-deb."""
    entries = []
    for name, depends in packages.items():
        tree = scratch / name
        (tree / "DEBIAN").mkdir(parents=True)
        needs = f"Depends: {depends}\n" if depends else ""
        # the role refuses an old toolkit
        version = "1.20.0-1" if name == "nvidia-container-toolkit" else "1.0.0-1"
        control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: T <t@example.com>\n"
        control += f"{needs}Description: x\n"
        (tree / "DEBIAN" / "control").write_text(control)
        deb = scratch / f"{name}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "--build", tree, deb], check=True, capture_output=True
        )
        content = deb.read_bytes()
        path = f"pool/{name}_{version}_amd64.deb"
        net.files[f"{prefix}/{path}"] = content
        entries.append(f"{control}Filename: {path}\nSize: {len(content)}\nSHA256: {sha256(content)}\n")
    index = gzip.compress("\n".join(entries).encode(), mtime=0)
    plain = gzip.decompress(index)
    name = "main/binary-amd64/Packages"
    release = (
        "Suite: jammy\nDate: Sat, 21 Nov 2026 12:00:00 UTC\nArchitectures: amd64\nComponents: main\nSHA256:\n"
    )
    release += f" {sha256(index)} {len(index)} {name}.gz\n {sha256(plain)} {len(plain)} {name}\n"
    net.files[f"{prefix}/dists/jammy/InRelease"] = signer.sign(release)
    net.files[f"{prefix}/dists/jammy/{name}.gz"] = index


def wheel(net: Internet, name: str, version: str) -> str:
    """Serve a wheel in a simple index; return its line of a lock."""
    output = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(output, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: MIT\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    content = output.getvalue()
    file = f"{name}-{version}-py3-none-any.whl"
    net.files[f"/files/{file}"] = content
    entry = {"filename": file, "url": f"../../files/{file}", "hashes": {"sha256": sha256(content)}}
    net.files[f"/simple/{name}/"] = json.dumps({"files": [entry]}).encode()
    return f"{name}=={version} --hash=sha256:{sha256(content)}"


def image(
    net: Internet, name: str, tag: str, layers: list[bytes], *, kind: str = "", annotation: str = ""
) -> str:
    """Serve an image for two architectures, or a chart if `kind` is the type of its layer. Returns its digest."""

    def blob(content: bytes) -> dict[str, object]:
        net.files[f"/v2/{name}/blobs/sha256:{sha256(content)}"] = content
        return {"digest": f"sha256:{sha256(content)}", "size": len(content)}

    def manifest(media: str, value: dict[str, object], tagged: str = "") -> str:
        content = json.dumps({"schemaVersion": 2, "mediaType": media, **value}).encode()
        digest = f"sha256:{sha256(content)}"
        for each in filter(None, (digest, tagged)):
            net.files[f"/v2/{name}/manifests/{each}"] = content
        return digest

    oci = "application/vnd.oci.image.manifest.v1+json"
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", **blob(b'{"architecture":"amd64"}')}
    layer = kind or "application/vnd.oci.image.layer.v1.tar+gzip"
    value: dict[str, object] = {
        "config": config,
        "layers": [{"mediaType": layer, **blob(each)} for each in layers],
    }
    if annotation:
        value["annotations"] = {"org.opencontainers.image.licenses": annotation}
    if kind:
        return manifest(oci, value, tag)
    digest = manifest(oci, value)
    other = manifest(oci, {**value, "layers": []})
    platforms = [
        {"mediaType": oci, "digest": other, "size": 1, "platform": {"os": "linux", "architecture": "arm64"}},
        {"mediaType": oci, "digest": digest, "size": 1, "platform": {"os": "linux", "architecture": "amd64"}},
    ]
    return manifest("application/vnd.oci.image.index.v1+json", {"manifests": platforms}, tag)


def packed_chart(name: str, version: str, values: dict[str, object]) -> bytes:
    output = io.BytesIO()
    about = yaml.safe_dump({"apiVersion": "v2", "name": name, "version": version, "appVersion": version})
    with tarfile.open(fileobj=output, mode="w:gz") as archive:
        for path, text in ((f"{name}/Chart.yaml", about), (f"{name}/values.yaml", yaml.safe_dump(values))):
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return output.getvalue()


def charts(net: Internet, prefix: str, name: str, version: str, content: bytes) -> None:
    net.files[f"{prefix}/{name}-{version}.tgz"] = content
    entry = {"name": name, "version": version, "urls": [f"{name}-{version}.tgz"], "digest": sha256(content)}
    net.files[f"{prefix}/index.yaml"] = yaml.safe_dump(
        {"apiVersion": "v1", "entries": {name: [entry]}}
    ).encode()


def deepops(scratch: Path) -> tuple[Path, str, str]:
    """Make a small repository of DeepOps with kubespray as its submodule. Returns repository, commit and kubespray's
    commit.
    """

    def git(directory: Path, *words: str) -> str:
        settings = ["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always"]
        done = subprocess.run(
            ["git", "-C", directory, *settings, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    for name in ("kubespray", "deepops"):
        directory = scratch / name
        directory.mkdir(parents=True)
        git(directory, "init", "-q", "-b", "master")
        (directory / "README").write_text(name)
        git(directory, "add", ".")
        git(directory, "commit", "-q", "-m", "first")
    pinned = git(scratch / "kubespray", "rev-parse", "HEAD")
    (scratch / "kubespray" / "README").write_text("after the pin")
    git(scratch / "kubespray", "commit", "-q", "-a", "-m", "second")
    git(scratch / "deepops", "submodule", "-q", "add", "../kubespray", "submodules/kubespray")
    git(scratch / "deepops" / "submodules" / "kubespray", "checkout", "-q", pinned)
    git(scratch / "deepops", "add", ".")
    git(scratch / "deepops", "commit", "-q", "-m", "with kubespray")
    git(scratch / "deepops", "tag", "26.07")
    return scratch / "deepops", git(scratch / "deepops", "rev-parse", "HEAD"), pinned


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target

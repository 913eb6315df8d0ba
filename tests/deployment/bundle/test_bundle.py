"""A bundle contains everything for a site: failures are reported, fetched files stay, and no byte can be changed."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment import content, site_file
from deployment.bundle.contents import Contents, Derivation
from deployment.matrix import tables
from tests.deployment.bundle import servers
from tests.deployment.bundle.servers import Internet
from tests.deployment.conftest import MUSTER

ROOT = Path(__file__).parents[3]
CHART_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
TRIDENT = [("netapp/trident-operator", "26.06.0"), ("netapp/trident-autosupport", "26.06")] + [
    (f"k8s/sig-storage/{name}", tag)
    for name, tag in (
        ("csi-provisioner", "v6.3.0"), ("csi-attacher", "v4.11.0"), ("csi-resizer", "v2.1.0"),
        ("csi-snapshotter", "v8.6.0"), ("csi-node-driver-registrar", "v2.17.0"), ("livenessprobe", "v2.19.0"),
    )
]  # fmt: skip
TRIDENT_ARCHIVE = b"trident installer" * 5000
ROLES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "container_toolkit": (
        {
            "container_toolkit_version": "1.20.0", "container_toolkit_package_revision": "1",
            "container_toolkit_repository": "https://nvidia.example.com/stable",
            "container_toolkit_key_url": "https://nvidia.example.com/gpgkey",
        },
        {"__container_toolkit_packages": ["nvidia-container-toolkit"]},
    ),
    "deepops": ({"deepops_repository": "https://github.com/NVIDIA/deepops", "deepops_commit": ""}, {}),
    "trident": (
        {
            "trident_archive": "https://github.com/NetApp/trident/releases/v{{ trident_version }}.tar.gz",
            "trident_checksum": "",
            "trident_version": "26.06.0",
        },
        {},
    ),
    "nfs_client": ({"nfs_client_packages": ["nfs-common"]}, {}),
    "dra": ({"dra_chart": "oci://registry.k8s.io/dra/charts/dra-driver", "dra_version": "0.5.0"}, {}),
}  # fmt: skip


@dataclass
class World:
    """A site, an internet with everything that it needs, and the roles that fetch it."""

    net: Internet
    root: Path
    site: Path
    bundle: Path
    commits: tuple[str, str]
    image: str

    def muster(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "MUSTER_INSTALLER_CONTENT": str(self.root / "content")}
        environment.pop("HTTP_PROXY", None)
        return subprocess.run(
            [*MUSTER, "bundle", *map(str, words)],
            env=environment | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HOME": str(self.root)},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    def build(self) -> subprocess.CompletedProcess[str]:
        return self.muster("build", "-i", self.site, self.bundle)

    @property
    def sha256(self) -> str:
        return servers.sha256((self.bundle / "manifest.json").read_bytes())

    @property
    def manifest(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.bundle / "manifest.json").read_text())
        return loaded

    def items(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.manifest["items"] if each["kind"] == kind]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with servers.internet() as net:
        yield _world(net, tmp_path)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return a world with its bundle, for tests that only read the bundle or copy it."""
    with servers.internet() as net:
        world = _world(net, tmp_path_factory.mktemp("origin"))
        built = world.build()
        assert built.returncode == 0, built.stderr
        yield world


@pytest.fixture
def complete(origin: World, tmp_path: Path) -> World:
    shutil.copytree(origin.bundle, tmp_path / "bundle", symlinks=True)
    return replace(origin, bundle=tmp_path / "bundle")


def _world(net: Internet, root: Path) -> World:
    scratch = root / "scratch"
    signer = servers.Signer(scratch / "gpg")
    servers.apt(net, "/ubuntu", {"nfs-common": "libtirpc3, rpcbind | portmap", "libtirpc3": "", "rpcbind": "libtirpc3",
                                 "unrelated": ""}, scratch / "ubuntu", signer)  # fmt: skip
    servers.apt(net, "/nvidia/stable/deb", {"nvidia-container-toolkit": ""}, scratch / "nvidia", signer)
    _flat(net, signer)
    net.files["/ubuntu/key.asc"] = signer.key
    lock = "\n".join(servers.wheel(net, name, "1.0") for name in ("ansible", "netaddr")) + "\n"
    servers.image(net, "netapp/trident", "26.06.0", [b"layer one", b"shared"], annotation="Apache-2.0")
    for name, tag in TRIDENT:
        servers.image(net, name, tag, [b"shared"])
    image = servers.image(net, "team/app", "v1", [b"shared", b"layer two" * 1000])
    servers.image(net, "k8s/dra/driver", "v0.5.0", [b"driver"])
    values: dict[str, object] = {"image": {"repository": "registry.k8s.io/dra/driver", "tag": ""}}
    chart = servers.packed_chart("dra-driver", "0.5.0", values)
    servers.image(net, "k8s/dra/charts/dra-driver", "0.5.0", [chart], kind=CHART_TYPE)
    servers.charts(net, "/charts", "monitor", "2.0.0", servers.packed_chart("monitor", "2.0.0", {}))
    net.files["/netapp/releases/v26.06.0.tar.gz"] = TRIDENT_ARCHIVE
    checkout, commit, pinned = servers.deepops(scratch / "git")
    key = f"http://archive.example.com/ubuntu/key.asc#sha256={servers.sha256(signer.key)}"
    site = root / "site"
    site.mkdir()
    _content(root / "content", lock, net, servers.sha256(signer.key))
    mirrors = {
        "http://archive.example.com/ubuntu": f"{net.url}/ubuntu", "https://nvidia.example.com": f"{net.url}/nvidia",
        "https://pypi.org": net.url, "https://github.com/NVIDIA": f"file://{checkout.parent}",
        "https://github.com/NetApp/trident": f"{net.url}/netapp", "oci://registry.k8s.io": f"{net.url}/k8s",
        "oci://docker.io": net.url, "oci://ghcr.io": net.url, "https://charts.example.com": f"{net.url}/charts",
    }  # fmt: skip
    host = {
        "address": "10.0.0.1",
        "os": "ubuntu-22.04",
        "model": "generic",
        "roles": ["gpu", "control_plane", "etcd"],
    }
    (site / "site.yml").write_text(yaml.safe_dump({
        "schema": 1, "name": "here", "hosts": {"gpu01": host}, "mirrors": mirrors,
        "versions": {
            "kubernetes": "1.34.2", "deepops": "26.07", "trident": "26.06.0", "container_toolkit": "1.20.0",
            "dra": "0.5.0",
        },
        "deepops": {"commit": commit, "repository": "https://github.com/NVIDIA/deepops"},
        "storage": {"trident": {"sha256": servers.sha256(TRIDENT_ARCHIVE)}},
        "bundle": {
            "images": ["ghcr.io/team/app:v1"],
            "repositories": {"ubuntu-22.04": [f"deb [signed-by={key}] http://archive.example.com/ubuntu jammy main"]},
            "charts": [{"repository": "https://charts.example.com", "name": "monitor", "version": "2.0.0"}],
        },
    }))  # fmt: skip
    return World(net, root, site, root / "bundle", (commit, pinned), image)


def _flat(net: Internet, signer: servers.Signer) -> None:
    """Serve NVIDIA's repository, which is flat: index and packages are in one directory."""
    index = net.files.pop("/nvidia/stable/deb/dists/jammy/main/binary-amd64/Packages.gz")
    del net.files["/nvidia/stable/deb/dists/jammy/InRelease"]
    net.files["/nvidia/stable/deb/amd64/Packages.gz"] = index
    net.files["/nvidia/stable/deb/amd64/pool/nvidia-container-toolkit_1.20.0-1_amd64.deb"] = net.files.pop(
        "/nvidia/stable/deb/pool/nvidia-container-toolkit_1.20.0-1_amd64.deb"
    )
    plain = gzip.decompress(index)
    release = (
        f"Date: Sat, 21 Nov 2026 12:00:00 UTC\nSHA256:\n {servers.sha256(index)} {len(index)} Packages.gz\n"
    )
    release += f" {servers.sha256(plain)} {len(plain)} Packages\n"
    net.files["/nvidia/stable/deb/amd64/InRelease"] = signer.sign(release)
    net.files["/nvidia/gpgkey"] = signer.key


def _content(root: Path, lock: str, net: Internet, key_sha256: str) -> None:
    """Write playbooks and roles from which a bundle is derived, and a lock of muster with one package."""
    (root / "playbooks").mkdir(parents=True)
    imports = []
    for name, (defaults, values) in ROLES.items():
        pinned = {"container_toolkit_key_sha256": key_sha256} if name == "container_toolkit" else {}
        for part, own in (("defaults", {**defaults, **pinned}), ("vars", values)):
            path = root / "roles" / name / part / "main.yml"
            path.parent.mkdir(parents=True)
            path.write_text(yaml.safe_dump(own))
        group = "cluster" if name == "container_toolkit" else "controller"
        (root / "playbooks" / f"{name}.yml").write_text(yaml.safe_dump([{"name": name, "hosts": group}]))
        imports.append({"name": name, "ansible.builtin.import_playbook": f"{name}.yml"})
    (root / "playbooks" / "site.yml").write_text(yaml.safe_dump(imports))
    requirements = root / "roles" / "deepops" / "files" / "requirements-26.07.txt"
    requirements.parent.mkdir()
    requirements.write_text(lock)
    line = servers.wheel(net, "click", "8.2.0")
    digest = line.rpartition("sha256:")[2]
    (root / "uv.lock").write_text(
        '[[package]]\nname = "muster-gpu"\nversion = "0.1.0"\ndependencies = [{name = "click"}, '
        '{name = "colorama", marker = "sys_platform == \'win32\'"}]\n'
        "optional-dependencies = {auth-provider = [], deployment = [], validation = []}\n"
        f'[[package]]\nname = "click"\nversion = "8.2.0"\nwheels = [{{url = "https://pypi.org/files/click-8.2.0-py3-none-any.whl",'
        f' hash = "sha256:{digest}"}}]\n[[package]]\nname = "colorama"\nversion = "1.0"\n'
    )


def test_the_bundle_holds_everything_that_follows_from_the_site(origin: World) -> None:
    world = origin
    names = {each["name"] for each in world.items("package")}
    assert names == {"nfs-common", "libtirpc3", "rpcbind", "nvidia-container-toolkit"}
    assert {each["name"]: each["licence"] for each in world.items("wheel")} == dict.fromkeys(
        ("ansible", "click", "netaddr"), "MIT"
    )
    assert {each["name"]: each["digest"] for each in world.items("git")} == {
        "deepops": world.commits[0], "deepops.kubespray": world.commits[1],
    }  # fmt: skip
    assert {each["name"] for each in world.items("chart")} == {"dra-driver", "monitor"}
    images = {each["name"]: each["digest"] for each in world.items("image")}
    assert images["ghcr.io/team/app:v1"] == world.image
    assert "registry.k8s.io/dra/driver:v0.5.0" in images
    for item in world.manifest["items"]:
        for file in item["files"]:
            content = (world.bundle / file["path"]).read_bytes()
            assert (len(content), servers.sha256(content)) == (file["size_bytes"], file["sha256"])
    sbom = json.loads((world.bundle / "sbom.cdx.json").read_text())
    assert sbom["bomFormat"] == "CycloneDX"
    purls = {each["purl"] for each in sbom["components"]}
    assert {"pkg:pypi/netaddr@1.0", "pkg:deb/ubuntu/rpcbind@1.0.0-1?arch=amd64"} <= purls


def test_a_second_run_fetches_the_files_that_the_first_one_could_not(world: World) -> None:
    deb = "/ubuntu/pool/rpcbind_1.0.0-1_amd64.deb"
    blob = f"/v2/team/app/blobs/sha256:{servers.sha256(b'layer two' * 1000)}"
    world.net.gone = {deb, "/netapp/releases/v26.06.0.tar.gz"}
    world.net.cut = {blob: 100}
    first = world.build()
    assert first.returncode == 1
    assert "v26.06.0.tar.gz" in first.stderr
    assert "404" in first.stderr
    assert "rpcbind_1.0.0-1_amd64.deb" in first.stderr
    broken = world.muster("verify", world.bundle)
    assert broken.returncode == 1
    assert "was not fetched" in broken.stdout
    paths = {each["path"] for item in world.manifest["items"] for each in item["files"]}
    assert any("libtirpc3" in path for path in paths)
    world.net.gone, world.net.cut = set(), {}
    world.net.requests.clear()
    second = world.build()
    assert second.returncode == 0, second.stderr
    assert not world.net.requests_for("libtirpc3_1.0.0-1"), "what was there is not fetched again"
    assert next(each[2] for each in world.net.requests_for(blob)).startswith("bytes="), (
        "a cut transfer goes on where it ended"
    )
    assert world.muster("verify", world.bundle).returncode == 0


def test_a_transfer_that_is_cut_continues_in_the_same_run(world: World) -> None:
    archive = "/netapp/releases/v26.06.0.tar.gz"
    world.net.cut = {archive: 2}
    assert world.build().returncode == 0
    ranges = [each[2] for each in world.net.requests_for(archive)]
    assert ranges[0] == ""
    assert all(each.startswith("bytes=") for each in ranges[1:])
    assert len(ranges) == 3


def test_a_file_with_another_digest_is_refused_and_not_kept(world: World) -> None:
    wheel = "/files/netaddr-1.0-py3-none-any.whl"
    layer = f"/v2/netapp/trident/blobs/sha256:{servers.sha256(b'layer one')}"
    true = world.net.files[wheel]
    world.net.files |= {wheel: true + b"!", layer: b"LAYER one"}
    built = world.build()
    assert built.returncode == 1
    assert servers.sha256(true) in built.stderr
    assert servers.sha256(true + b"!") in built.stderr
    assert servers.sha256(b"LAYER one") in built.stderr
    assert not list(world.bundle.rglob("netaddr*"))


def test_redirects_go_through_the_map_and_a_registry_gets_its_token(world: World) -> None:
    world.net.private = {"team/app"}
    blob = f"/v2/team/app/blobs/sha256:{servers.sha256(b'layer two' * 1000)}"
    world.net.moved = {blob: "https://nvidia.example.com/stored"}
    world.net.files["/nvidia/stored"] = b"layer two" * 1000
    built = world.build()
    assert built.returncode == 0, built.stderr
    assert world.net.requests_for("/token")
    assert world.net.requests_for("/nvidia/stored")


def test_verify_names_every_byte_that_is_not_as_it_was(complete: World) -> None:
    world = complete
    wheel = next(world.bundle.glob("wheels/netaddr*"))
    content = bytearray(wheel.read_bytes())
    before = servers.sha256(bytes(content))
    content[-1] ^= 1
    wheel.write_bytes(content)
    chart = next(world.bundle.glob("charts/monitor*"))
    chart.unlink()
    (world.bundle / "git" / "more").write_text("too much")
    (world.bundle / "git" / "link").symlink_to("/etc/passwd")
    found = world.muster("verify", world.bundle)
    assert found.returncode == 1
    lines = found.stdout.splitlines()
    assert len(lines) == 4
    assert any(
        "netaddr" in line and before in line and servers.sha256(bytes(content)) in line for line in lines
    )
    assert any("monitor" in line and "missing" in line for line in lines)
    assert any("git/more" in line and "extra" in line for line in lines)
    assert any("git/link" in line and "extra" in line for line in lines)
    manifest = world.bundle / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"site": "here"', '"site": "ther"'))
    output = world.muster("verify", world.bundle, "--sha256", "0" * 64)
    assert "this is not the built bundle" in output.stderr
    assert output.stdout == ""


def test_a_full_disk_keeps_the_fetched_files(world: World) -> None:
    limited = subprocess.run(
        [*MUSTER, "bundle", "build", "-i", world.site, world.bundle],
        env={**os.environ, "MUSTER_INSTALLER_CONTENT": str(world.root / "content"), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=_small_files, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert limited.returncode == 1
    assert "free some space and run the same command again" in limited.stderr
    assert "Traceback" not in limited.stderr
    assert world.build().returncode == 0
    assert world.muster("verify", world.bundle).returncode == 0


def _small_files() -> None:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_images_are_pushed_into_a_registry_by_their_digests(origin: World) -> None:
    world = origin
    target = f"{world.net.url}/mirror"
    nobody = world.muster("push", world.bundle, target)
    assert nobody.returncode == 1
    assert "the origin of this bundle is not proven" in nobody.stderr
    assert not world.net.pushed
    pushed = world.muster("push", world.bundle, target, "--sha256", world.sha256)
    assert pushed.returncode == 0, pushed.stderr
    assert any(line.endswith("/mirror/team/app:v1") for line in pushed.stdout.splitlines())
    manifest = json.loads(world.net.pushed["/v2/mirror/team/app/manifests/v1"])
    for each in [manifest["config"], *manifest["layers"]]:
        content = world.net.pushed[f"/v2/mirror/team/app/blobs/{each['digest']}"]
        assert f"sha256:{servers.sha256(content)}" == each["digest"]


def test_an_installation_takes_a_bundle_that_holds_and_no_other(complete: World, tmp_path: Path) -> None:
    def plan(*more: str | Path) -> subprocess.CompletedProcess[str]:
        words = [
            "plan",
            "-i",
            complete.site,
            "--state-dir",
            tmp_path,
            "--bundle",
            complete.bundle,
            "--json",
            *more,
        ]
        return subprocess.run(
            [*MUSTER, *words],
            env={**os.environ, "MUSTER_INSTALLER_CONTENT": str(complete.root / "content")},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    digest = complete.sha256
    unknown = plan()
    assert unknown.returncode == 1
    assert "--bundle-sha256" in unknown.stderr
    assert "--bundle-key" in unknown.stderr
    taken = plan("--bundle-sha256", digest)
    assert taken.returncode == 0, taken.stderr
    assert {each["stage"] for each in json.loads(taken.stdout)["stages"]} == set(ROLES)
    assert "not in the bundle: the downloads of kubespray" in taken.stderr
    next(complete.bundle.glob("charts/*")).write_bytes(b"")
    refused = plan("--bundle-sha256", digest)
    assert refused.returncode == 1
    assert "changed: sha256" in refused.stderr
    assert "run `muster bundle build` again" in refused.stderr


def test_the_sites_that_come_with_muster_name_their_needs() -> None:
    where = content.find()
    contents = Derivation(site_file.load(ROOT / "inventories" / "current"), where, where.lock).contents()
    names = {each.name: each.version for wheels in contents.wheels.values() for each in wheels}
    assert {"ansible", "ansible-runner", "paramiko", "kubernetes", "cffi"} <= set(names)
    assert not {"ruff", "colorama", "pywin32"} & set(names)
    assert {("ansible", "11.13.0"), ("ansible-core", "2.18.19")} <= set(_pins(contents))
    assert [(each.name, each.release) for each in contents.checkouts] == [("deepops", "26.07")]
    assert [each.name for each in contents.charts] == ["nvidia-device-plugin"], "before Kubernetes 1.36"
    assert any(each.url.endswith("/trident-installer-26.06.0.tar.gz") for each in contents.files)
    assert any("muster" in each for each in contents.images)
    assert "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0" in contents.images
    unknown = [each.fix for each in contents.files if not each.sha256]
    assert unknown == [
        "name its SHA-256 in storage.trident.sha256; the page of a release shows the SHA-256 beside trident-installer"
    ]
    assert {"nfs-common"} <= {
        name for package_set in contents.packages for choice in package_set.choices for name in choice
    }


@pytest.mark.parametrize("name", ["current", "dgx-b200", "dgx-h100", "example", "tr4858"])
def test_a_site_without_internet_names_every_file_and_image_of_kubespray(name: str) -> None:
    where = content.find()
    site = site_file.load(ROOT / "inventories" / name)
    contents = Derivation(site, where, where.lock).contents()
    assert contents.gaps == []
    (row,) = (row for row in tables()["downloads"] if row["kubernetes"] == site.versions["kubernetes"])
    assert {f"{each.url}#sha256={each.sha256}" for each in contents.files} >= set(row["files"])
    assert set(contents.images) >= set(row["images"])


def test_a_dgx_without_internet_has_its_packages_and_another_kubernetes_is_a_gap(tmp_path: Path) -> None:
    where = content.find()
    site = site_file.load(ROOT / "inventories" / "dgx-h100")
    contents = Derivation(site, where, where.lock).contents()
    choices = [choice for each in contents.packages if each.system == "dgx-os-7" for choice in each.choices]
    assert {"nvidia-fabricmanager", "nvidia-driver-580-open"} <= {
        name for choice in choices for name in choice
    }
    (tmp_path / "site.yml").write_text(site.document.path.read_text().replace('"1.35.4"', '"1.34.7"'))
    older = Derivation(site_file.load(tmp_path), where, where.lock).contents()
    assert any("the matrix lists them for Kubernetes 1.35.4" in gap for gap in older.gaps)


def _pins(contents: Contents) -> Iterator[tuple[str, str]]:
    return ((each.name, each.version) for wheels in contents.wheels.values() for each in wheels)


def test_the_bundle_is_all_that_apt_pip_and_git_need_without_a_network(
    complete: World, tmp_path: Path
) -> None:
    world = complete
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no network namespaces to users")
    world.net.requests.clear()
    moved = tmp_path / "carried"
    shutil.move(world.bundle, moved)
    script = Path(__file__).with_name("offline.py")
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, script, ROOT, moved, tmp_path / "away", world.net.url],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    output = json.loads(done.stdout.splitlines()[-1])
    assert output["debs"] == ["libtirpc3", "nfs-common", "nvidia-container-toolkit", "rpcbind"]
    assert output["pip"] == ["ansible", "click", "netaddr"]
    assert (output["commit"], output["submodule"]) == world.commits
    assert Path(output["variables"]["dra_chart"]).name == "dra-driver-0.5.0.tgz"
    assert Path(output["variables"]["trident_archive"]).is_relative_to(moved)
    assert world.net.requests == []

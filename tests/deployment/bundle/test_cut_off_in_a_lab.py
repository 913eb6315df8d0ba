"""An installation with --bundle on a real control plane without another network: it does not even try to connect."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deployment.matrix import tables
from tests.deployment.bundle import servers
from tests.deployment.conftest import MUSTER
from tests.deployment.test_storage_in_a_lab import SITE
from tests.deployment.trident_double import archive

pytestmark = [pytest.mark.lab, pytest.mark.rare]

ROOT = Path(__file__).parents[3]
IMAGES = [
    name.format(release="26.06.0", minor="26.06")
    for row in tables()["images"]
    if row["of"] == "trident" and ">=26.6" in row["release"]
    for name in row["images"]
]


def prepare(directory: Path, url: str, archive_sha256: str) -> None:
    """Write a site with storage and orchestrator, and a copy of muster's playbooks and roles with a short lock."""
    text = SITE.format(release="26.06.0", port=8443, archive="", directory=directory / "unpacked")
    text = text.replace("  orchestrator: this test is about storage\n", "")
    text = "\n".join(line for line in text.splitlines() if "trident_archive" not in line)
    own = f"  trident_checksum: sha256:{archive_sha256}\n"
    own += "  verify_mount_seconds: 0\n"  # on the simulated nodes no container runs to its end
    text = text.replace("vars:\n", f"vars:\n{own}")
    (directory / "site").mkdir()
    (directory / "site" / "site.yml").write_text(
        f"{text}\norchestrator: {{replicas: 0}}\nmirrors: {{'https://github.com': '{url}', "
        f"'oci://docker.io': '{url}', 'oci://registry.k8s.io': '{url}/registry.k8s.io'}}\n"
    )
    for name in ("playbooks", "roles"):
        (directory / "content").mkdir(exist_ok=True)
        (directory / "content" / name).symlink_to(ROOT / name)
    (directory / "content" / "uv.lock").write_text(
        '[[package]]\nname = "muster-gpu"\nversion = "0.1.0"\ndependencies = []\n'
        "optional-dependencies = {auth-provider = [], deployment = [], validation = []}\n"
    )


def bundle(*words: str | Path, content: Path) -> subprocess.CompletedProcess[str]:
    environment = {"MUSTER_INSTALLER_CONTENT": str(content), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return subprocess.run(
        [*MUSTER, "bundle", *map(str, words)], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_an_installation_from_a_bundle_asks_no_other_host(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no network namespaces to users")
    with servers.internet() as net:
        path = "/NetApp/trident/releases/download/v26.06.0/trident-installer-26.06.0.tar.gz"
        net.files[path] = archive(tmp_path / "archive.tar.gz").read_bytes()
        for image in IMAGES:
            name, _, tag = image.rpartition(":")
            servers.image(net, name, tag, [b"layer"])
        prepare(tmp_path, net.url, servers.sha256(net.files[path]))
        built = bundle("build", "-i", tmp_path / "site", tmp_path / "bundle", content=tmp_path / "content")
        assert built.returncode == 0, built.stderr
        assert net.requests_for(path)
    shutil.copytree(tmp_path / "bundle", tmp_path / "tampered")
    (changed,) = (tmp_path / "tampered").rglob("trident-installer-26.06.0.tar.gz")
    changed.write_bytes(changed.read_bytes()[:-1] + b"x")
    refused = bundle("verify", tmp_path / "tampered", content=tmp_path / "content")
    assert refused.returncode == 1
    assert "trident-installer-26.06.0.tar.gz" in refused.stdout + refused.stderr

    done = subprocess.run(
        ["unshare", "-rn", sys.executable, Path(__file__).with_name("cut_off.py"), ROOT, tmp_path],
        capture_output=True, text=True, timeout=2400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["tampered"]["code"] == 1
    assert "trident-installer-26.06.0.tar.gz" in found["tampered"]["output"]
    assert "trident" not in found["tampered"]["output"].partition("verifying")[0]
    assert found["whole"]["code"] == 0, found["whole"]["output"]
    assert "trident: verified" in found["whole"]["output"]
    assert "orchestrator: verified" in found["whole"]["output"]
    assert (found["elsewhere"], found["counted"]) == (0, 1), (
        "nobody wanted to go elsewhere, and who does is counted"
    )

"""Packages come only from repositories with a named key: apt checks the key, and no option skips the check."""

from pathlib import Path

import pytest

from deployment.bundle import packages
from deployment.bundle.fetch import Fetcher
from deployment.bundle.manifest import Item
from deployment.bundle.mirrors import Mirrors
from deployment.bundle.packages import PackageSet, source
from deployment.errors import BundleError, FetchFailed
from orchestrator.progress import Reporter
from tests.deployment.bundle import servers


async def _fetch(root: Path, key: str, shown: bytes | None = None) -> tuple[list[Item], list[FetchFailed]]:
    """Fetch a package of a signed repository; `{sha256}` in the key stands for the digest of the true key."""
    with servers.internet() as net:
        signer = servers.Signer(root / "gpg")
        servers.apt(net, "/ubuntu", {"nfs-common": ""}, root / "scratch", signer)
        net.files["/ubuntu/key.asc"] = shown or signer.key
        line = f"deb [signed-by={key.format(sha256=servers.sha256(signer.key))}] http://a.example.com/ubuntu jammy main"
        mirrors = Mirrors({"http://a.example.com": net.url})
        package_set = PackageSet("ubuntu-22.04", (source(line),), (("nfs-common",),))
        async with Fetcher(root / "bundle", mirrors, Reporter(lambda text: None)) as fetcher:
            return await packages.fetch(fetcher, package_set, "amd64")


async def test_a_keyring_of_the_hosts_need_not_be_on_the_machine_that_builds(tmp_path: Path) -> None:
    items, failures = await _fetch(tmp_path, "/usr/share/keyrings/of-another-system.gpg")
    assert failures == []
    assert [item.name for item in items if item.kind == "package"] == ["nfs-common"]


async def test_a_package_signed_with_another_key_is_not_taken(tmp_path: Path) -> None:
    other = servers.Signer(tmp_path / "other")
    keyring = tmp_path / "other.asc"
    keyring.write_bytes(other.key)
    items, failures = await _fetch(tmp_path, str(keyring))
    assert "NO_PUBKEY" in str(failures[0])
    assert not [item for item in items if item.kind == "package"]


async def test_a_key_that_is_not_the_one_of_the_digest_is_not_taken(tmp_path: Path) -> None:
    url = "http://a.example.com/ubuntu/key.asc#sha256={sha256}"
    with pytest.raises(FetchFailed, match="it should be"):
        await _fetch(tmp_path, url, b"another key")


@pytest.mark.parametrize(
    "options", ["", "[trusted=yes]", "[signed-by=https://x/k.asc]", "[signed-by=relative.gpg]"]
)
def test_a_repository_without_its_key_is_refused(options: str) -> None:
    with pytest.raises(BundleError, match="does not name its key"):
        source(f"deb {options} http://a.example.com/ubuntu jammy main")

"""A bundle is used only with the expected digest or signature; otherwise it is refused before
any other file is read.
"""

import subprocess
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from deployment.bundle import trust, use
from deployment.bundle.manifest import MANIFEST, SIGNATURE, File, Item, Manifest, file_entry
from deployment.bundle.trust import Trust
from deployment.errors import BundleError
from orchestrator.progress import Reporter

PRIVATE = (
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption(),
)  # fmt: skip
PUBLIC = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo


class Keys:
    """A key pair in two files."""

    def __init__(self, directory: Path, name: str) -> None:
        key = Ed25519PrivateKey.generate()
        self.private, self.public = directory / f"{name}.key", directory / f"{name}.pub"
        self.private.write_bytes(key.private_bytes(*PRIVATE))
        self.public.write_bytes(key.public_key().public_bytes(*PUBLIC))


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path, "ours")


def bundle(root: Path, **changes: str) -> str:
    """Write a bundle with one chart; return the digest of its manifest."""
    file = root / "charts" / "dra.tgz"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"chart")
    values = {"kind": "chart", "name": "dra", "version": "1", "variable": "dra_chart"} | changes
    return Manifest("here", "amd64", (Item(**values, files=(file_entry(root, file),)),)).write(root)


def opened(root: Path, expected: Trust) -> use.Bundle:
    return use.open_bundle(root, "here", expected, Reporter(lambda text: None))


def test_an_unsigned_bundle_is_refused(tmp_path: Path) -> None:
    bundle(tmp_path / "b")
    with pytest.raises(BundleError, match=r"is not proven.*--bundle-sha256.*--bundle-key"):
        opened(tmp_path / "b", Trust())


def test_the_digest_that_build_printed_is_enough(tmp_path: Path) -> None:
    digest = bundle(tmp_path / "b")
    for text in (digest, f"sha256:{digest}"):
        assert opened(tmp_path / "b", Trust(text)).variables()["dra_chart"].endswith("charts/dra.tgz")
    for text, message in (("0" * 64, "not the built bundle"), (digest[:-1], "is no SHA-256")):
        with pytest.raises(BundleError, match=message):
            opened(tmp_path / "b", Trust(text))


def test_a_changed_manifest_is_refused_before_it_is_read(tmp_path: Path) -> None:
    digest = bundle(tmp_path / "b")
    (tmp_path / "b" / MANIFEST).write_bytes(b"[" * 100_000)
    with pytest.raises(BundleError, match="not the built bundle"):
        opened(tmp_path / "b", Trust(digest))


def test_a_signature_by_the_key_is_enough_and_openssl_agrees(tmp_path: Path, keys: Keys) -> None:
    root = tmp_path / "b"
    bundle(root)
    signature = trust.sign(root, keys.private)
    assert opened(root, Trust(key=keys.public)).root == root
    words = f"openssl pkeyutl -verify -pubin -inkey {keys.public} -rawin -in {root / MANIFEST} -sigfile {signature}"
    said = subprocess.run(words.split(), check=True, capture_output=True, text=True)
    assert "Verified Successfully" in said.stdout


def test_a_bundle_changed_after_its_signature_is_refused(tmp_path: Path, keys: Keys) -> None:
    root = tmp_path / "b"
    bundle(root)
    trust.sign(root, keys.private)
    manifest = root / MANIFEST
    manifest.write_bytes(manifest.read_bytes().replace(b'"dra"', b'"DRA"'))
    with pytest.raises(BundleError, match="or signed by another key"):
        opened(root, Trust(key=keys.public))


def test_another_key_is_refused_and_so_is_no_signature(tmp_path: Path, keys: Keys) -> None:
    root = tmp_path / "b"
    digest = bundle(root)
    with pytest.raises(BundleError, match="this bundle is not signed: build it with `--sign KEY`"):
        opened(root, Trust(digest, keys.public))
    trust.sign(root, keys.private)
    with pytest.raises(BundleError, match="signed by another key"):
        opened(root, Trust(key=Keys(tmp_path, "theirs").public))
    bundle(root)
    assert not (root / SIGNATURE).exists(), "a bundle that is built anew has no signature of before"


def test_a_file_that_holds_no_such_key_is_named(tmp_path: Path, keys: Keys) -> None:
    root = tmp_path / "b"
    bundle(root)
    trust.sign(root, keys.private)
    other = tmp_path / "ec.pub"
    curve = generate_private_key(SECP256R1())
    other.write_bytes(curve.public_key().public_bytes(*PUBLIC))
    for file, message in (
        (keys.private, "is no public key"), (other, "of another kind than Ed25519"), (tmp_path / "no", "No such file"),
    ):  # fmt: skip
        with pytest.raises(BundleError, match=message):
            opened(root, Trust(key=file))
    (tmp_path / "ec.key").write_bytes(curve.private_bytes(*PRIVATE))
    for file, message in ((keys.public, "is no private key"), (tmp_path / "ec.key", "of another kind")):
        with pytest.raises(BundleError, match=message):
            trust.sign(root, file)


@pytest.mark.parametrize(
    "changes",
    [
        {"variable": "deepops_python"},
        {"variable": "ansible_ssh_common_args"},
        {"variable": "trident_archive"},
        {"kind": "wheel"},
    ],
)
def test_a_bundle_sets_no_other_variable_than_those_of_the_list(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    digest = bundle(tmp_path / "b", **changes)
    with pytest.raises(BundleError, match="no bundle may"):
        opened(tmp_path / "b", Trust(digest))


def test_a_manifest_cannot_name_a_file_outside_of_the_bundle(tmp_path: Path) -> None:
    root = tmp_path / "b"
    bundle(root)
    (tmp_path / "outside").write_bytes(b"x")
    file = file_entry(tmp_path, tmp_path / "outside")
    item = Item(
        "chart", "dra", "1", (File("../outside", file.sha256, file.size_bytes),), variable="dra_chart"
    )
    digest = msgspec.structs.replace(Manifest("here", "amd64"), items=(item,)).write(root)
    with pytest.raises(BundleError, match=r"\.\./outside: missing"):
        opened(root, Trust(digest))


def test_hosts_get_no_repository_without_its_key(tmp_path: Path) -> None:
    root = tmp_path / "b"
    file = root / "packages" / "ubuntu-22.04" / "x"
    file.parent.mkdir(parents=True)
    file.touch()
    for options in ("", "[trusted=yes] ", "[signed-by=https://example.com/key.asc] "):
        item = Item(
            "apt-repository",
            f"deb {options}http://example.com/x jammy main",
            "jammy",
            (file_entry(root, file),),
        )
        digest = Manifest("here", "amd64", (item,)).write(root)
        with pytest.raises(BundleError, match=r"does not name its key.*#sha256=DIGEST"):
            opened(root, Trust(digest)).of_host("ubuntu-22.04")
    key = f"https://example.com/key.asc#sha256={'0' * 64}"
    for name, line in (
        (f"[signed-by={key}] ", "/var/b/keys/example.com-key.asc"),
        ("[signed-by=/k.gpg] ", "/k.gpg"),
    ):
        item = Item(
            "apt-repository", f"deb {name}http://example.com/x jammy main", "jammy", (file_entry(root, file),)
        )
        digest = Manifest("here", "amd64", (item,)).write(root)
        sources = opened(root, Trust(digest)).sources("ubuntu-22.04", "/var/b")
        assert sources == f"deb [signed-by={line}] file:/var/b/example.com/x jammy main\n"

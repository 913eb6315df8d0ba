"""The proof that a bundle is the one that was built: the digest of its manifest, or a signature beside the manifest.

The manifest has the digest of every file of a bundle, but a changed bundle could have a changed manifest. So its proof
is transported separately: the digest that `muster bundle build` printed, or the signer's public key. The signature is
the plain 64 bytes of Ed25519 over the manifest, so openssl can verify it too.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from deployment.bundle import manifest
from deployment.bundle.manifest import MANIFEST, SIGNATURE, Manifest
from deployment.errors import BundleError
from orchestrator import signing_keys
from orchestrator.signing_keys import MAKE_KEY, KeyFileError

_DIGEST: Final = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


@dataclass(frozen=True)
class Trust:
    """The proof that a bundle must match: the SHA-256 of its manifest, a public key, or both."""

    sha256: str = ""
    key: Path | None = None

    def read(self, root: Path) -> Manifest:
        """Read the manifest at `root` once, and return it if it is the trusted one. Raises BundleError."""
        path = root / MANIFEST
        content = manifest.content(root)
        if not self.sha256 and self.key is None:
            raise BundleError(
                f"{root}: the origin of this bundle is not proven: give the digest that `muster bundle build` printed "
                "(--bundle-sha256), or the public key of its signature (--bundle-key)"
            )
        if self.sha256:
            expected = _DIGEST.fullmatch(self.sha256)
            if expected is None:
                raise BundleError(f"`{self.sha256}` is no SHA-256: it has 64 hexadecimal digits")
            digest = hashlib.sha256(content).hexdigest()
            if digest != expected[1]:
                raise BundleError(
                    f"{path}: sha256 is {digest}, it should be {expected[1]}: this is not the built bundle. "
                    "Nothing of it was used; copy it again, or get the digest from its builder"
                )
        if self.key is not None:
            _check_signature(root, content, _public_key(self.key), self.key)
        return manifest.decode(path, content)


def sign(root: Path, key: Path) -> Path:
    """Sign the manifest at `root` with a private key and return the signature's file. Raises BundleError."""
    path = root / SIGNATURE
    manifest.replace(path, read_private_key(key).sign(manifest.content(root)))
    return path


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a file. Raises BundleError."""
    try:
        return signing_keys.read_private_key(path)
    except KeyFileError as error:
        raise BundleError(f"{error}: {MAKE_KEY}") from error


def _public_key(path: Path) -> Ed25519PublicKey:
    try:
        return signing_keys.read_public_key(path)
    except KeyFileError as error:
        raise BundleError(f"{error}: {MAKE_KEY}") from error


def _check_signature(root: Path, content: bytes, key: Ed25519PublicKey, name: Path) -> None:
    path = root / SIGNATURE
    try:
        signature = path.read_bytes()
    except OSError as error:
        raise BundleError(
            f"{path}: {error.strerror}: this bundle is not signed: build it with `--sign KEY`, or give --bundle-sha256"
        ) from error
    try:
        key.verify(signature, content)
    except InvalidSignature:
        raise BundleError(
            f"{path}: it is no signature of {MANIFEST} by the key of {name}. The bundle was changed, or signed by "
            "another key; nothing of it was used"
        ) from None

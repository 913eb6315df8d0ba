"""Ed25519 keys in PEM files, with which people sign bundles and reports.

The module needs the package `cryptography`, which an extra installs.
"""

from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orchestrator.errors import MusterError

MAKE_KEY: Final = (
    "make one: openssl genpkey -algorithm ed25519 -out KEY; its public half: openssl pkey -in KEY -pubout"
)


class KeyFileError(MusterError):
    """A file does not have a key of the needed kind."""


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a file. Raises KeyFileError."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path}: it is no private key in PEM without a passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: it is a key of another kind than Ed25519")
    return key


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Return the public key in a file. Raises KeyFileError."""
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path}: it is no public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path}: it is a key of another kind than Ed25519")
    return key

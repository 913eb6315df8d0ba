"""Certificates of one lab: a CA for the API server and its clients, another for etcd, a key for service accounts.

etcd has an authority of its own. Without that, each client certificate for the API server would give full access to
etcd, which has no RBAC.
"""

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

KWOK_USER = "muster-lab:kwok"
VALID_DAYS = 365

_SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_SERVER_ADDRESSES = ("127.0.0.1", "10.96.0.1")
_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that is created with mode 0600, so that no other user can ever read it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _usage(*key_usages: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in key_usages for name in _KEY_USAGES})


@dataclass(frozen=True)
class Authority:
    """A certificate authority whose files lie in `directory` as `<name>.crt` and `<name>.key`."""

    directory: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    subject: x509.Name

    @classmethod
    def create(cls, directory: Path, name: str) -> "Authority":
        """Make the authority and write its files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"muster-lab-{name}")])
        authority = cls(directory, name, key, subject)
        builder = authority._builder(subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(
            _usage("digital_signature", "key_cert_sign", "crl_sign"), critical=True
        )
        authority._write(name, builder, key)
        return authority

    @classmethod
    def load(cls, directory: Path, name: str) -> "Authority":
        """Read an authority that was created."""
        key = serialization.load_pem_private_key((directory / f"{name}.key").read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{name}.key is no elliptic curve key")
        certificate = x509.load_pem_x509_certificate((directory / f"{name}.crt").read_bytes())
        return cls(directory, name, key, certificate.subject)

    def issue(
        self,
        name: str,
        *,
        user: str,
        groups: tuple[str, ...] = (),
        server: bool = False,
        names: tuple[str, ...] = _SERVER_NAMES,
        addresses: tuple[str, ...] = _SERVER_ADDRESSES,
    ) -> None:
        """Write `<name>.crt` and `<name>.key` for a client, or for a server that is a client as well.

        `names` and `addresses` are those under which the server is reached.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage("digital_signature"), critical=True)
        if server:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            alternatives: list[x509.GeneralName] = [x509.DNSName(dns_name) for dns_name in names]
            alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        self._write(name, builder, key)

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        signer = self.key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
        )

    def _write(self, name: str, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> None:
        certificate = builder.sign(self.key, hashes.SHA256())
        write_private(self.directory / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        write_private(self.directory / f"{name}.key", _private_pem(key))


def create(directory: Path) -> None:
    """Write all keys and certificates of a lab into `directory`, which must exist."""
    kubernetes = Authority.create(directory, "ca")
    kubernetes.issue("apiserver", user="kube-apiserver", server=True)
    kubernetes.issue("admin", user="muster-lab-admin", groups=("system:masters",))
    kubernetes.issue("controller-manager", user="system:kube-controller-manager")
    kubernetes.issue("kwok", user=KWOK_USER)
    etcd = Authority.create(directory, "etcd-ca")
    etcd.issue("etcd", user="etcd", server=True)
    etcd.issue("etcd-client", user="kube-apiserver")
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(directory / "service-account.key", _private_pem(key))
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_private(directory / "service-account.pub", public)

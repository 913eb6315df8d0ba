"""Images in the layout of the Open Container Initiative: a directory of blobs with an index. Standard library only.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

INDEX: Final = "index.json"
MARKER: Final = "oci-layout"
BLOBS: Final = "blobs/sha256"
NAME: Final = "io.containerd.image.name"
"""Annotation of the index with the full name of an image: containerd imports the image under it."""

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"


def sha256(content: bytes) -> str:
    """Return the digest of content in the form of the layout: `sha256:HEX`."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Layout:
    """A directory that becomes an image layout; the index is written last."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / BLOBS).mkdir(parents=True, exist_ok=True)

    def add_image(
        self, config: Mapping[str, Any], layers: Sequence[tuple[str, bytes]], *, compressed: bool = False
    ) -> dict[str, Any]:
        """Store layers, configuration and manifest of an image; return the manifest's descriptor.

        A layer is a pair: the digest of its tar archive, and the archive, which is gzipped if `compressed` is set.
        """
        whole = {
            **config,
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [digest for digest, _ in layers]},
        }
        layer_type = _LAYER + "+gzip" * compressed
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._add(_CONFIG, _json(whole)),
            "layers": [self._add(layer_type, content) for _, content in layers],
        }
        return self._add(_MANIFEST, _json(manifest))

    def add_archive(self, archive: Path) -> dict[str, dict[str, Any]]:
        """Store the blobs of an OCI archive; return the descriptors of its images by name.

        Raises:
            ValueError: it is not such an archive, or an image in it has no full name.
        """
        images = read_index(archive)
        with tarfile.open(archive) as source:
            for entry in source:
                file = source.extractfile(entry) if entry.isreg() else None
                if file is not None and entry.name.removeprefix("./").startswith(f"{BLOBS}/"):
                    content = file.read()
                    (self._directory / BLOBS / hashlib.sha256(content).hexdigest()).write_bytes(content)
        return images

    def write_index(self, images: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the index: the full name of each image with its descriptor."""
        manifests = [
            {
                **descriptor,
                "annotations": {NAME: name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]},
            }
            for name, descriptor in images.items()
        ]
        (self._directory / MARKER).write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
        (self._directory / INDEX).write_bytes(_json({"schemaVersion": 2, "manifests": manifests}))

    def _add(self, media_type: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (self._directory / BLOBS / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def read_index(archive: Path) -> dict[str, dict[str, Any]]:
    """Return the descriptors of the images in an OCI archive by their full names.

    Raises:
        ValueError: it is not such an archive, or an image in it has no full name.
    """
    try:
        with tarfile.open(archive) as source:
            members = {entry.name.removeprefix("./"): entry for entry in source if entry.isreg()}
            file = source.extractfile(members[INDEX])
            described = json.loads(file.read())["manifests"] if file else []
        return {entry["annotations"][NAME]: entry for entry in described}
    except (tarfile.TarError, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{archive}: no OCI archive with names of images: {error!r}") from error


def write_archive(directory: Path, target: Path, time_seconds: int) -> None:
    """Write a layout as one tar archive. The same layout and time give the same bytes."""
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                entry = tarfile.TarInfo(str(path.relative_to(directory)))
                entry.size, entry.mtime = path.stat().st_size, time_seconds
                archive.addfile(entry, io.BytesIO(path.read_bytes()))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

"""Checks the container images of a site file: invalid references, and tags that can change."""

import re
from collections.abc import Iterator
from typing import Final

from deployment.addresses import is_loopback
from deployment.site import Finding, Place, Site

_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])"
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH: Final = rf"{_COMPONENT}(?:/{_COMPONENT})*"
_NAME: Final = re.compile(rf"(?:{_DOMAIN}(?::[0-9]+)?/)?{_PATH}")
_REFERENCE: Final = re.compile(
    rf"(?P<name>(?:{_DOMAIN}(?::(?P<port>[0-9]{{1,9}}))?/)?{_PATH})(?::(?P<tag>\w[\w.-]{{0,127}}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?",
    re.ASCII,
)
"""A reference as the projects docker and distribution define it."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MAX_NAME: Final = 255
_MAX_PORT: Final = 65535
_MOVING: Final = frozenset(
    {
        "latest",
        "stable",
        "edge",
        "nightly",
        "main",
        "master",
        "dev",
        "devel",
        "develop",
        "head",
        "current",
        "canary",
    }
)
"""Tags that by custom follow a branch or the newest release."""


def problems(site: Site) -> Iterator[Finding]:
    """Yield images that are not valid references."""
    for place, text in named(site):
        why = _why_none(text)
        if why:
            where = ".".join(map(str, place))
            yield Finding(
                place,
                f"{where}: `{text}` is no image: {why}; write REGISTRY/NAME:TAG, as registry.example.com/muster:0.1.0",
            )


def notes(site: Site) -> Iterator[str]:
    """Yield the images whose content can change in the registry: no digest, and a moving tag or no tag.

    Also yield an image of the operator without a registry, and images in a registry of each host.
    """
    own = site.get("orchestrator", "image", default="/")
    if "/" not in own and "{{" not in own:
        yield (
            f"orchestrator.image: {own} names no registry, so nodes pull docker.io/library/{own}, which is not there: "
            "write REGISTRY/NAME:TAG"
        )
    remote = any(host.get("connection", "ssh") == "ssh" for host in site.hosts.values())
    for place, text in named(site):
        registry = text.partition("/")[0]
        if "/" in text and remote and is_loopback(registry.rpartition(":")[0] or registry):
            yield (
                f"{'.'.join(map(str, place))}: {text}: {registry} is another machine on each host: each needs a "
                "registry of its own there"
            )
        match = _REFERENCE.fullmatch(text)
        if match is None or match["digest"] or (match["tag"] or "latest").lower() not in _MOVING:
            continue
        tag = f"the tag {match['tag']} moves" if match["tag"] else "without a tag it is latest, which moves"
        yield (
            f"{'.'.join(map(str, place))}: {text}: {tag}, so two hosts or two runs may get different images: name the "
            "tag of a release or a digest"
        )


def named(site: Site) -> Iterator[tuple[Place, str]]:
    """Yield each image that the file names. A variable of vault.yml (`{{ name }}`) is not an image."""
    orchestrator = site.get("orchestrator", "image")
    if orchestrator is not None:
        yield ("orchestrator", "image"), orchestrator
    for index, image in enumerate(site.get("bundle", "images", default=[])):
        yield ("bundle", "images", index), image.removeprefix("oci://")
    for name, image in site.get("validation", "images", default={}).items():
        yield ("validation", "images", name), image
    for name, value in site.get("vars", default={}).items():
        if name.endswith("_image") and isinstance(value, str) and value and "{{" not in value:
            yield ("vars", name), value


def _why_none(text: str) -> str:
    """Return the fault of a reference; empty for a valid one.

    Example: `_why_none("Registry.example.com/Team/app:1")` returns `'the name of a repository has no upper case'`.
    """
    match = _REFERENCE.fullmatch(text)
    port = int(match["port"] or 1) if match else 1
    if match and not _DIGEST.fullmatch(text) and len(match["name"]) <= _MAX_NAME and 0 < port <= _MAX_PORT:
        return ""
    rest = text.partition("@")[0]
    name = rest.rpartition(":")[0] if ":" in rest.rpartition("/")[2] else rest
    if "://" in text:
        return "a reference has no scheme"
    if name != name.lower() and _NAME.fullmatch(name.lower()):
        return "the name of a repository has no upper case"
    if not 0 < port <= _MAX_PORT:
        return f"a port is between 1 and {_MAX_PORT}"
    if match:
        return f"it is a digest without a name, or its name is longer than {_MAX_NAME} characters"
    return "it has not the form of a reference"

"""Parses the notations of ports, volumes, PVCs and Git repositories. See `parsing`."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from orchestrator.cluster.quantity import memory_bytes
from orchestrator.errors import InvalidField
from orchestrator.submit.name_rules import is_object_name
from orchestrator.submit.parsing import parse_parts
from orchestrator.submit.values import GIT_TARGET, GitSource, Mount, NewClaim, Port, is_image

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([EPTGMk]i?)?B?")
_GIT_WORD = re.compile(r"[^\s-]\S*")
_ACCESS_MODES: Final = {
    "accessmode-rwo": "ReadWriteOnce",
    "accessmode-rom": "ReadOnlyMany",
    "accessmode-rwm": "ReadWriteMany",
}
_CLAIM_USAGE: Final = (
    "CLAIM-NAME:/CONTAINER/PATH[:ro|rw] for a claim that exists, "
    "or [STORAGE-CLASS]:SIZE:/CONTAINER/PATH[:ro|rw] for a new one"
)
_EXISTING_CLAIM_USAGE: Final = "claimname=NAME,path=/CONTAINER/PATH[,readonly]"
_NEW_CLAIM_USAGE: Final = (
    "size=SIZE,path=/CONTAINER/PATH[,storageclass=NAME][,accessmode-rwo|accessmode-rom|accessmode-rwm]"
    "[,ro][,ephemeral]"
)
_GIT_USAGE: Final = (
    "source=URL[,branch=NAME][,rev=REVISION][,target=/PATH][,secret=NAME]"
    "[,username=NAME,password=TEXT][,image=IMAGE]"
)
_GIT_FIELDS: Final = ("source", "branch", "rev", "username", "password", "target", "secret", "image")


def parse_port(text: str) -> Port:
    """Return the port of `8888` or `30080:8888` (external:internal).

    Example: `parse_port("30080:8888")` returns `Port(external=30080, internal=8888)`.
    """
    external, separator, internal = text.partition(":")
    numbers = [external, internal] if separator else [external, external]
    if all(re.fullmatch(r"[0-9]{1,5}", number) and 0 < int(number) < 65536 for number in numbers):
        return Port(external=int(numbers[0]), internal=int(numbers[1]))
    raise InvalidField(
        "{ports} {text} is not possible: give PORT or EXTERNAL:INTERNAL, each from 1 to 65535", text=text
    )


def parse_volume(text: str, nfs_server: str | None = None) -> Mount:
    """Parse the mount `/host/directory:/container/directory[:ro|rw][:nfs-server]`."""
    parts = text.split(":", 3)
    server = parts.pop() if len(parts) == 4 else nfs_server or ""
    mount = _mount(":".join(parts))
    if mount is None or not mount.source.startswith("/") or any(character.isspace() for character in server):
        raise InvalidField(
            "{volumes} {text!r} is not possible: give /HOST/PATH:/CONTAINER/PATH[:ro|rw][:NFS-SERVER]",
            text=text,
        )
    return replace(mount, nfs_server=server)


def parse_claim(text: str) -> Mount | NewClaim:
    """Parse the existing PVC `NAME:/path[:ro|rw]` or the new PVC `[CLASS]:SIZE:/path[:ro|rw]`.

    Four parts are a new PVC, two parts an existing PVC. Three parts are a new PVC if the first is empty or the second
    is a size.
    """
    parts = text.split(":")
    if len(parts) == 4 or (len(parts) == 3 and (not parts[0] or _SIZE.fullmatch(parts[1]))):
        claim: Mount | NewClaim | None = _new_claim(parts)
    else:
        claim = _mount(text)
    if claim is None or (isinstance(claim, Mount) and not is_object_name(claim.source)):
        raise InvalidField("{claims} {text!r} is not possible: give {usage}", text=text, usage=_CLAIM_USAGE)
    return claim


def parse_existing_claim(text: str) -> Mount:
    """Parse the existing PVC `claimname=NAME,path=/path[,readonly]`."""
    field, usage = "existing_claims", _EXISTING_CLAIM_USAGE
    parts = parse_parts(field, text, ("claimname", "path", "readonly", "ro"), usage=usage)
    name, path = parts.get("claimname", ""), parts.get("path", "")
    if not is_object_name(name) or not _is_path(path):
        raise InvalidField("{existing_claims} {text!r} is not possible: give {usage}", text=text, usage=usage)
    return Mount(name, _normal(path), read_only=_is_set(parts, "readonly", "ro"))


def parse_clone(text: str) -> NewClaim:
    """Parse `VOLUME:/path[:ro|rw]` to a new PVC that is a clone of this volume of the project."""
    mount = _mount(text)
    if mount is None or not is_object_name(mount.source):
        raise InvalidField(
            "{clones} {text!r} is not possible: give VOLUME:/CONTAINER/PATH[:ro|rw], a volume of the project",
            text=text,
        )
    return NewClaim(0, mount.path, read_only=mount.read_only, clone_of=mount.source)


def parse_new_claim(text: str) -> NewClaim:
    """Parse the new PVC `size=SIZE,path=/path[,storageclass=NAME][,accessmode-rwm][,ro]`."""
    allowed = ("claimname", "size", "path", "storageclass", *_ACCESS_MODES, "ro", "readonly", "ephemeral")
    parts = parse_parts("new_claims", text, allowed, usage=_NEW_CLAIM_USAGE)
    if "claimname" in parts:
        raise InvalidField(
            "{new_claims} claimname= is not possible: a new claim belongs to its job and is named after it"
        )
    mode = "ro" if _is_set(parts, "readonly", "ro") else ""
    claim = _new_claim([parts.get("storageclass", ""), parts.get("size", ""), parts.get("path", ""), mode])
    modes = [mode for part, mode in _ACCESS_MODES.items() if part in parts]
    if claim is None or len(modes) > 1:
        raise InvalidField(
            "{new_claims} {text!r} is not possible: give {usage}", text=text, usage=_NEW_CLAIM_USAGE
        )
    return replace(claim, access_mode=modes[0]) if modes else claim


def _new_claim(parts: list[str]) -> NewClaim | None:
    storage_class, size, path, mode = [*parts, ""][:4]
    amount = _SIZE.fullmatch(size)
    if amount is None or not _is_path(path) or mode not in ("", "ro", "rw"):
        return None
    try:
        size_bytes = memory_bytes("".join(part or "" for part in amount.groups()))
    except ValueError:  # larger than any quantity
        return None
    if size_bytes <= 0 or (storage_class and not is_object_name(storage_class)):
        return None
    return NewClaim(size_bytes, _normal(path), storage_class, read_only=mode == "ro")


def _mount(text: str) -> Mount | None:
    source, separator, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not separator or not source or not _is_path(path) or mode not in ("", "ro", "rw"):
        return None
    return Mount(source, _normal(path), read_only=mode == "ro")


def _is_path(text: str) -> bool:
    return text.startswith("/") and ":" not in text


def _normal(path: str) -> str:
    return path.rstrip("/") or "/"


def parse_git_source(text: str | None) -> GitSource | None:
    """Parse the repository `source=URL,branch=…,rev=…,target=…,secret=…`. Errors never contain a password."""
    if text is None:
        return None
    try:
        parts = parse_parts("git", text, _GIT_FIELDS, usage=_GIT_USAGE)
    except InvalidField:
        if "password=" not in text:
            raise
        raise InvalidField("{git} is not possible: give {usage}", usage=_GIT_USAGE) from None
    target = parts.get("target", GIT_TARGET).rstrip("/")
    problems = {
        "source": not _GIT_WORD.fullmatch(parts.get("source", "")),
        "branch": "branch" in parts and not _GIT_WORD.fullmatch(parts["branch"]),
        "rev": "rev" in parts and not _GIT_WORD.fullmatch(parts["rev"]),
        "target": not target.startswith("/") or ":" in target,
        "secret": "secret" in parts and not is_object_name(parts["secret"]),
        "image": "image" in parts and not is_image(parts["image"]),
        "password": "username" in parts and "password" not in parts,
        "secret and password": "secret" in parts and "password" in parts,
    }
    wrong = next((part for part, is_wrong in problems.items() if is_wrong), None)
    if wrong is not None:
        raise InvalidField(
            "{git}: {part} is missing or not possible: give {usage}", part=wrong, usage=_GIT_USAGE
        )
    return GitSource(**{**parts, "target": target})


def redacted(argument: str) -> str:
    """Return the argument of a command line; a password of a repository in it is replaced by `***`.

    Example: `redacted("source=git,password=abc,branch=main")` returns `'source=git,password=***,branch=main'`.
    """
    return (
        re.sub(r"(?<![a-z])password=[^,]*", "password=***", argument) if "source=" in argument else argument
    )


def _is_set(parts: Mapping[str, str], *names: str) -> bool:
    return any(parts.get(name, "false") != "false" for name in names)

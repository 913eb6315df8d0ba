"""A Git repository inside the container: an init container clones it before the workload starts.

`git clone` and `git checkout` do the work, so that branches, tags and revisions mean what Git says. Everything
that the user gives is handed over in variables and never becomes part of the script. The image needs git and a
POSIX shell.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cluster.resources import SECRETS
from orchestrator.errors import UsageError
from orchestrator.workloads.environment import escaped
from orchestrator.workloads.values import is_object_name, parse_fields, parse_image

if TYPE_CHECKING:
    from orchestrator.workloads.submission import Submission

Manifest = dict[str, Any]

DEFAULT_TARGET: Final = "/code"
DEFAULT_IMAGE: Final = "docker.io/alpine/git:v2.49.1"
CONTAINER: Final = "git-sync"

_VOLUME: Final = "git-sync"
_FOLDER: Final = "/git-sync"
_CHECKOUT: Final = "code"
_USAGE: Final = (
    "source=URL[,branch=NAME][,rev=REVISION][,target=/PATH][,secret=NAME]"
    "[,username=NAME,password=TEXT][,image=IMAGE]"
)
_FIELDS: Final = ("source", "branch", "rev", "username", "password", "target", "secret", "image")
_SOURCE = re.compile(r"[^\s-]\S*")
_REFERENCE = re.compile(r"[^\s-]\S*")
_CREDENTIALS: Final = ("username", "password")

SCRIPT: Final = r"""
set -eu
export GIT_TERMINAL_PROMPT=0
cd "$GIT_SYNC_FOLDER"
rm -rf code
if [ -n "${GIT_SYNC_PASSWORD:-}" ]; then
  askpass=$(mktemp)
  printf '%s\n' '#!/bin/sh' \
    'case "$1" in Username*) printf "%s\n" "${GIT_SYNC_USERNAME:-git}";; *) printf "%s\n" "$GIT_SYNC_PASSWORD";; esac' \
    > "$askpass"
  chmod 700 "$askpass"
  export GIT_ASKPASS="$askpass"
fi
if [ -n "$GIT_SYNC_BRANCH" ]; then
  git clone --branch "$GIT_SYNC_BRANCH" -- "$GIT_SYNC_SOURCE" code
else
  git clone -- "$GIT_SYNC_SOURCE" code
fi
cd code
if [ -n "$GIT_SYNC_REV" ]; then
  commit=$(git rev-parse --verify --quiet "$GIT_SYNC_REV^{commit}") ||
    commit=$(git rev-parse --verify --quiet "refs/remotes/origin/$GIT_SYNC_REV^{commit}") ||
    { git fetch --quiet origin "$GIT_SYNC_REV" && commit=$(git rev-parse --verify FETCH_HEAD); }
  git checkout --quiet --detach "$commit" --
fi
git submodule update --init --recursive
git --no-pager log -1 --format='%H %s'
""".strip()
"""Starts from nothing every time: Kubernetes may run an init container twice."""


@dataclass(frozen=True, slots=True)
class GitSource:
    """What to clone, and where it appears in the container. No branch: the default branch of the repository.

    `secret` is an existing secret with the keys `username` and `password`; a password that was given as text
    becomes a secret that belongs to the workload.
    """

    source: str
    branch: str = ""
    rev: str = ""
    target: str = DEFAULT_TARGET
    secret: str = ""
    username: str = ""
    password: str = ""
    image: str = DEFAULT_IMAGE


def parse_git_source(text: str | None) -> GitSource | None:
    """Return the source of `source=URL,branch=…,rev=…,target=…,secret=…`. Raises UsageError."""
    if text is None:
        return None
    try:
        fields = parse_fields("--git-sync", text, _FIELDS, _USAGE)
        image = parse_image(fields["image"]) if "image" in fields else DEFAULT_IMAGE
    except UsageError as error:
        raise UsageError(_without_password(str(error), text)) from None
    target = fields.get("target", DEFAULT_TARGET).rstrip("/")
    problems = {
        "source": not _SOURCE.fullmatch(fields.get("source", "")),
        "branch": "branch" in fields and not _REFERENCE.fullmatch(fields["branch"]),
        "rev": "rev" in fields and not _REFERENCE.fullmatch(fields["rev"]),
        "target": not target.startswith("/") or ":" in target,
        "secret": "secret" in fields and not is_object_name(fields["secret"]),
        "password": "username" in fields and "password" not in fields,
        "secret and password": "secret" in fields and "password" in fields,
    }
    wrong = [name for name, is_wrong in problems.items() if is_wrong]
    if wrong:
        raise UsageError(f"--git-sync: {wrong[0]} is missing or not possible: give {_USAGE}")
    return GitSource(
        source=fields["source"],
        branch=fields.get("branch", ""),
        rev=fields.get("rev", ""),
        target=target,
        secret=fields.get("secret", ""),
        username=fields.get("username", ""),
        password=fields.get("password", ""),
        image=image,
    )


def _without_password(message: str, text: str) -> str:
    return "--git-sync is not possible: give " + _USAGE if "password=" in text else message


def redacted(argument: str) -> str:
    """Return a word of a command line without the password that it may contain."""
    return (
        re.sub(r"(?<![a-z])password=[^,]*", "password=***", argument) if "source=" in argument else argument
    )


def secret_name(asked: "Submission") -> str:
    """Return the name of the secret that is made with the workload."""
    return f"{asked.name}-git"


def secret_manifest(asked: "Submission", metadata: Manifest) -> Manifest | None:
    """Return the secret that is made with the workload, or None; `metadata` is its own but for the name."""
    git = asked.git
    if git is None or not git.password:
        return None
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": metadata | {"name": secret_name(asked)},
        "type": "Opaque",
        "stringData": {"username": git.username or "git", "password": git.password},
    }


def init_container(asked: "Submission") -> Manifest | None:
    """Return the container that clones, or None when nothing is to be cloned."""
    git = asked.git
    if git is None:
        return None
    given = {
        "GIT_SYNC_SOURCE": git.source,
        "GIT_SYNC_BRANCH": git.branch,
        "GIT_SYNC_REV": git.rev,
        "GIT_SYNC_FOLDER": _FOLDER,
        "HOME": "/tmp",  # noqa: S108 - the container's, not ours
    }
    variables: list[Manifest] = [{"name": name, "value": escaped(value)} for name, value in given.items()]
    secret = git.secret or (secret_name(asked) if git.password else "")
    if secret:
        variables += [
            {
                "name": f"GIT_SYNC_{key.upper()}",
                "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": key == "username"}},
            }
            for key in _CREDENTIALS
        ]
    return {
        "name": CONTAINER,
        "image": git.image,
        "command": ["/bin/sh", "-c", escaped(SCRIPT)],
        "env": variables,
        "volumeMounts": [{"name": _VOLUME, "mountPath": _FOLDER}],
    }


def volume_and_mount(asked: "Submission") -> tuple[list[Manifest], list[Manifest]]:
    """Return the volume that is cloned into, and where the container sees the checkout."""
    if asked.git is None:
        return [], []
    # The checkout is a folder of its own in the volume, so that it belongs to the user who runs Git.
    mount = {"name": _VOLUME, "mountPath": asked.git.target, "subPath": _CHECKOUT}
    return [{"name": _VOLUME, "emptyDir": {}}], [mount]

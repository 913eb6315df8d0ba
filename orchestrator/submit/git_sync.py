"""A Git repository inside the container: an init container clones it before the workload starts.

`git clone` and `git checkout` do the work, so that branches, tags and revisions mean the same as in Git. Values of
the user are passed in variables and never become part of the script. The image needs git and a POSIX shell.
"""

from typing import Any, Final

from orchestrator.cluster.resources import SECRETS
from orchestrator.submit.environment import escaped
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import DEVICES_VARIABLE

Manifest = dict[str, Any]

CONTAINER: Final = "git-sync"

_VOLUME: Final = "git-sync"
_FOLDER: Final = "/git-sync"
_CHECKOUT: Final = "code"
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
"""The script first deletes an earlier checkout, because Kubernetes may run an init container twice."""


def secret_name(submission: Submission) -> str:
    """Return the name of the secret that is created with the workload."""
    return f"{submission.name}-git"


def secret_manifest(submission: Submission, metadata: Manifest) -> Manifest | None:
    """Return the secret that is created with the workload, or None. `metadata` is its metadata without the name."""
    git = submission.git
    if git is None or not git.password:
        return None
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": metadata | {"name": secret_name(submission)},
        "type": "Opaque",
        "stringData": {"username": git.username or "git", "password": git.password},
    }


def init_container(submission: Submission) -> Manifest | None:
    """Return the init container that clones the repository, or None without a repository."""
    git = submission.git
    if git is None:
        return None
    settings = {
        "GIT_SYNC_SOURCE": git.source,
        "GIT_SYNC_BRANCH": git.branch,
        "GIT_SYNC_REV": git.rev,
        "GIT_SYNC_FOLDER": _FOLDER,
        "HOME": "/tmp",  # noqa: S108 - the container's, not ours
        DEVICES_VARIABLE: "void",
    }
    variables: list[Manifest] = [{"name": name, "value": escaped(value)} for name, value in settings.items()]
    secret = git.secret or (secret_name(submission) if git.password else "")
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


def volume_and_mount(submission: Submission) -> tuple[list[Manifest], list[Manifest]]:
    """Return the volume for the clone, and the container's mount of the checkout; both lists can be empty."""
    if submission.git is None:
        return [], []
    # The checkout is a folder that Git creates inside the volume, so that it belongs to the user that runs
    # Git.
    mount = {"name": _VOLUME, "mountPath": submission.git.target, "subPath": _CHECKOUT}
    return [{"name": _VOLUME, "emptyDir": {}}], [mount]

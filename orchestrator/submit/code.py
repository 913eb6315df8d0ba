"""A working tree inside the container: an init container unpacks it from a Secret of the job before the start.

The archive is a Secret, because members of a project may create Secrets. They may not create ConfigMaps, because
templates are ConfigMaps and change the jobs of other members. The init container runs `tar` of the job's own image.
"""

from base64 import b64encode
from typing import Any, Final

from orchestrator.cluster.resources import SECRETS
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import CODE_PATH, DEVICES_VARIABLE, FUNCTION_FILE, FUNCTION_PATH

Manifest = dict[str, Any]

_KEY: Final = "code.tar.gz"
_ARCHIVE_PATH: Final = "/muster-code"
_FOLDER: Final = "code"
_ARCHIVE: Final = "code-archive"
_FUNCTION: Final = "function"


def code_name(name: str) -> str:
    """Return the name of the Secret and of the init container of the job `name`. A job has another name than these."""
    return f"{name}-code"


def secret_manifest(submission: Submission, metadata: Manifest) -> Manifest | None:
    """Return the Secret of code and function, or None without them. `metadata` is its metadata without the name."""
    contents = {_KEY: submission.code, FUNCTION_FILE: submission.function}
    data = {key: b64encode(content).decode() for key, content in contents.items() if content is not None}
    if not data:
        return None
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": metadata | {"name": code_name(submission.name)},
        "type": "Opaque",
        "immutable": True,  # the pods of a sweep start at different times, and all get the same files
        "data": data,
    }


def init_container(submission: Submission, security_context: Manifest) -> Manifest | None:
    """Return the init container that unpacks the archive, or None without code."""
    if submission.code is None:
        return None
    optional: Manifest = {
        "imagePullPolicy": submission.image_pull_policy,
        "securityContext": security_context,
    }
    return {
        "name": code_name(submission.name),
        "image": submission.image,
        # -o: root must not restore owners; the root of a user namespace cannot
        "command": ["tar", "-x", "-z", "-o", "-f", f"{_ARCHIVE_PATH}/{_KEY}", "-C", CODE_PATH],
        "env": [{"name": DEVICES_VARIABLE, "value": "void"}],
        "volumeMounts": [
            {"name": _FOLDER, "mountPath": CODE_PATH},
            {"name": _ARCHIVE, "mountPath": _ARCHIVE_PATH, "readOnly": True},
        ],
    } | {key: value for key, value in optional.items() if value}


def volumes_and_mounts(submission: Submission) -> tuple[list[Manifest], list[Manifest]]:
    """Return the volumes of the pod, and the container's mounts of the files and of a function."""
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []
    if submission.code is not None:
        volumes += [{"name": _FOLDER, "emptyDir": {}}, _secret_volume(submission, _ARCHIVE, _KEY)]
        mounts.append({"name": _FOLDER, "mountPath": CODE_PATH})
    if submission.function is not None:
        volumes.append(_secret_volume(submission, _FUNCTION, FUNCTION_FILE))
        mounts.append({"name": _FUNCTION, "mountPath": FUNCTION_PATH, "readOnly": True})
    return volumes, mounts


def _secret_volume(submission: Submission, volume: str, key: str) -> Manifest:
    items = [{"key": key, "path": key}]
    return {"name": volume, "secret": {"secretName": code_name(submission.name), "items": items}}

"""The optional audit log of the API server: each request with its user, and the role that allowed it.

`MUSTER_LAB_AUDIT` names a directory in which each lab writes a log. The log stays after the lab has ended.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Final

from musterlab import pki

DIRECTORY_VARIABLE: Final = "MUSTER_LAB_AUDIT"
POLICY: Final = "audit-policy.json"
_MAX_MEGABYTES: Final = 4096

_CONTROL_PLANE: Final = {
    "users": ["system:apiserver", "system:kube-controller-manager", pki.KWOK_USER],
    "userGroups": ["system:serviceaccounts:kube-system", "system:nodes"],
}


def flags(state_directory: Path) -> list[str]:
    """Return the API server's flags for a log, and write the policy file that they name.

    Without `MUSTER_LAB_AUDIT` there are no flags. The log has no requests of the control plane itself, and no bodies.
    """
    logs = os.environ.get(DIRECTORY_VARIABLE)
    if not logs:
        return []
    Path(logs).mkdir(parents=True, exist_ok=True)
    rules = [{"level": "None", key: names} for key, names in _CONTROL_PLANE.items()]
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        # keep ResponseStarted: an interrupted watch has no later stage
        "omitStages": ["RequestReceived"],
        "rules": [*rules, {"level": "Metadata"}],
    }
    path = state_directory / POLICY
    path.write_text(json.dumps(policy))
    return [
        f"--audit-policy-file={path}",
        f"--audit-log-path={Path(logs).absolute() / f'{state_directory.name}-{secrets.token_hex(4)}.log'}",
        f"--audit-log-maxsize={_MAX_MEGABYTES}",
    ]

"""The roles of muster, with the verbs and resources that each allows.

The manifests and the messages use these rules.

A role contains all roles before it. `RESEARCHER` is bound in a project's namespace to its members; administrators bind
the others. `CLUSTER_ADMIN`, bound in the whole cluster, can read every secret and make any user a member of any
project. It excludes only the nodes' own rights and changes of the roles.
"""

from dataclasses import dataclass
from typing import Final

from orchestrator.names import LEASE_NAME

USER: Final = "muster-user"
VIEWER: Final = "muster-viewer"
RESEARCHER: Final = "muster-researcher"
PROJECT_ADMIN: Final = "muster-project-admin"
CLUSTER_ADMIN: Final = "muster-cluster-admin"

_SEE: Final = ("get", "list", "watch")
_CHANGE: Final = ("create", "update", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Rule:
    """These verbs on these resources of one API group; with `names`, only on objects of these names."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


CONTROLLERS: Final = (
    Rule("jobset.x-k8s.io", ("jobsets",), _SEE),
    Rule("leaderworkerset.x-k8s.io", ("leaderworkersets",), _SEE),
    Rule("ray.io", ("rayclusters", "rayjobs"), _SEE),
    Rule(
        "kubeflow.org",
        ("pytorchjobs", "tfjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs"),
        _SEE,
    ),
    Rule("trainer.kubeflow.org", ("trainjobs",), _SEE),
)
"""Kinds of controllers of other projects. Their objects determine the size of a gang."""

_ALL_USERS: Final = (
    Rule("muster.dev", ("projects",), _SEE),
    Rule("", ("namespaces",), _SEE),
)
_VIEWING: Final = (
    Rule("", ("nodes", "pods", "services", "events", "configmaps", "persistentvolumeclaims"), _SEE),
    Rule("batch", ("jobs",), _SEE),
    Rule("apps", ("statefulsets", "deployments", "replicasets"), _SEE),
    Rule("networking.k8s.io", ("ingresses",), _SEE),
    Rule("policy", ("poddisruptionbudgets",), _SEE),
    Rule("snapshot.storage.k8s.io", ("volumesnapshots",), _SEE),
    Rule("muster.dev", ("evictionrecords", "gpunodes"), _SEE),
    Rule(
        "resource.k8s.io",
        ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"),
        _SEE,
    ),
    *CONTROLLERS,
)
_RESEARCHING: Final = (
    Rule("batch", ("jobs",), _CHANGE),
    Rule("apps", ("statefulsets",), _CHANGE),
    Rule("", ("services",), _CHANGE),
    Rule("networking.k8s.io", ("ingresses",), _CHANGE),
    Rule("", ("persistentvolumeclaims",), ("create", "delete")),
    Rule("snapshot.storage.k8s.io", ("volumesnapshots",), ("create", "delete")),
    Rule("resource.k8s.io", ("resourceclaims", "resourceclaimtemplates"), ("create", "delete")),
    # users with the right to create pods in a namespace can read its secrets through them
    Rule("", ("secrets",), ("get", "create", "delete")),
    Rule("", ("pods",), ("delete",)),
    Rule("", ("pods/log",), ("get",)),
    # a WebSocket begins with a GET
    Rule("", ("pods/exec", "pods/attach", "pods/portforward"), ("get", "create")),
)
_LEADING: Final = (
    Rule("", ("configmaps",), _CHANGE),
    Rule("", ("secrets",), ("list", "watch", "update", "patch")),
    Rule("", ("persistentvolumeclaims",), ("update", "patch")),
    Rule("rbac.authorization.k8s.io", ("rolebindings",), (*_SEE, *_CHANGE)),
    Rule("rbac.authorization.k8s.io", ("clusterroles",), ("bind",), (VIEWER, RESEARCHER)),
)
_ADMINISTERING: Final = (
    Rule("muster.dev", ("projects",), _CHANGE),
    Rule("", ("namespaces",), _CHANGE),
    Rule("", ("nodes",), ("patch", "update")),
    # This accepts an examined Xid: after the GpuNode is deleted, a restarted agent does not know the Xid.
    Rule("muster.dev", ("gpunodes",), ("delete",)),
    # `muster cluster status` checks that the policies are in force.
    Rule(
        "admissionregistration.k8s.io",
        ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        ("get", "list"),
    ),
    # `muster doctor` checks that an operator leads.
    Rule("coordination.k8s.io", ("leases",), ("get",), (LEASE_NAME,)),
    # Members of projects do not have this right, because a budget can protect borrowed GPUs from reclaim.
    Rule("policy", ("poddisruptionbudgets",), _CHANGE),
    Rule("rbac.authorization.k8s.io", ("clusterroles",), ("bind",), (PROJECT_ADMIN,)),
)

ROLES: Final[dict[str, tuple[Rule, ...]]] = {
    USER: _ALL_USERS,
    VIEWER: (*_ALL_USERS, *_VIEWING),
    RESEARCHER: (*_ALL_USERS, *_VIEWING, *_RESEARCHING),
    PROJECT_ADMIN: (*_ALL_USERS, *_VIEWING, *_RESEARCHING, *_LEADING),
    CLUSTER_ADMIN: (*_ALL_USERS, *_VIEWING, *_RESEARCHING, *_LEADING, *_ADMINISTERING),
}
"""The rules of each role, from the least rights to the most."""


def role_for(verb: str, resource: str) -> str | None:
    """Return the role with the fewest rights that allows a verb on a resource (`jobs`, `pods/exec`).

    None if no role does.
    """
    return next(
        (
            role
            for role, rules in ROLES.items()
            if any(verb in rule.verbs and resource in rule.resources and not rule.names for rule in rules)
        ),
        None,
    )

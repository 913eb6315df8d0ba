"""The user for the cluster, and the user's rights.

Nothing is stored. The API server names the user (SelfSubjectReview). For each right that distinguishes two of muster's
roles, it answers whether the user has it (SelfSubjectAccessReview).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import msgspec

from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.resources import (
    CONFIG_MAPS,
    JOBS,
    PROJECTS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
    Resource,
)
from orchestrator.cluster.transport import Transport  # noqa: TC001  (the class is part of the signature)
from orchestrator.roles import PROJECT_ADMIN, RESEARCHER, VIEWER

_TELLING: Final = (
    (PROJECT_ADMIN, "create", CONFIG_MAPS),
    (RESEARCHER, "create", JOBS),
    (VIEWER, "list", JOBS),
)
"""A right of each role of a project that lesser roles do not have. The role with the most rights is first."""


class UserInfo(msgspec.Struct, frozen=True):
    """A user, with the name and groups that the API server knows."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []


class _ReviewStatus(msgspec.Struct, rename="camel", frozen=True):
    user_info: UserInfo = UserInfo()
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus = _ReviewStatus()


@dataclass(frozen=True, slots=True)
class Identity:
    """The user, with the name and groups that the API server knows. `roles` has the role in each project where the user
    has one.

    `is_known` is False if the server is too old to name the user; then `user` is the name in the kubeconfig.
    """

    user: str
    uid: str
    groups: tuple[str, ...]
    is_known: bool
    is_cluster_admin: bool
    roles: dict[str, str]


class IdentityClient:
    """The user's own identity and rights. Every method raises MusterError."""

    def __init__(self, transport: Transport, kubeconfig_user: str) -> None:
        self._transport = transport
        self._kubeconfig_user = kubeconfig_user

    async def identity(self, namespaces: dict[str, str]) -> Identity:
        """Return the user, and the user's role in each project; `namespaces` maps the namespaces of projects to their
        names.
        """
        user_info, is_admin, roles = await asyncio.gather(
            self.user_info(),
            self.may("create", PROJECTS, None),
            asyncio.gather(*map(self._role, namespaces)),
        )
        by_project = dict(zip(namespaces.values(), roles, strict=True))
        return Identity(
            user=user_info.username if user_info else self._kubeconfig_user,
            uid=user_info.uid if user_info else "",
            groups=tuple(user_info.groups) if user_info else (),
            is_known=user_info is not None,
            is_cluster_admin=is_admin,
            roles={project: role for project, role in sorted(by_project.items()) if role},
        )

    async def may(self, verb: str, resource: Resource, namespace: str | None) -> bool:
        """Return whether the user has a right in a namespace (None: in the whole cluster)."""
        attributes = {"verb": verb, "group": resource.group, "resource": resource.plural}
        if namespace is not None:
            attributes["namespace"] = namespace
        body = _body(SELF_SUBJECT_ACCESS_REVIEWS, {"resourceAttributes": attributes})
        review = await self._transport.create(SELF_SUBJECT_ACCESS_REVIEWS.path(), body, _Review)
        return review.status.allowed

    async def user_info(self) -> UserInfo | None:
        """Return the user that the server names. None if the server is too old or refuses the request."""
        body = _body(SELF_SUBJECT_REVIEWS, {})
        try:
            review = await self._transport.create(SELF_SUBJECT_REVIEWS.path(), body, _Review)
        except (NotFound, Forbidden):
            return None
        return review.status.user_info

    async def _role(self, namespace: str) -> str:
        for role, verb, resource in _TELLING:
            if await self.may(verb, resource, namespace):
                return role
        return ""


def _body(resource: Resource, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, "spec": spec}

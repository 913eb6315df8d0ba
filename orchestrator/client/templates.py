"""The templates behind one API server; `orchestrator.submit.templates` has their meaning.

TemplateRefused      the namespace has a ConfigMap of that name already
"""

import asyncio
import logging
from typing import Final

from orchestrator import names
from orchestrator.client.jobs import Scope
from orchestrator.cluster.errors import AlreadyExists, Forbidden, NotFound
from orchestrator.cluster.objects import ConfigMap
from orchestrator.cluster.resources import CONFIG_MAPS
from orchestrator.cluster.transport import Transport
from orchestrator.errors import MusterError
from orchestrator.submit.templates import Template, config_map_of, no_such_template, template_of

logger = logging.getLogger(__name__)

_ARE_TEMPLATES: Final = {"labelSelector": f"{names.TEMPLATE_LABEL}=true"}


class TemplateRefused(MusterError):
    """The namespace has a ConfigMap of that name already."""


class TemplateClient:
    """The templates of projects and of the cluster. Every method raises MusterError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def templates(self, scope: Scope) -> list[Template]:
        """Return the templates of a project by name, then those of the cluster."""
        own, clusters = await asyncio.gather(self._in(scope.namespace), self._of_cluster())
        return [*own, *clusters]

    async def get(self, scope: Scope, name: str) -> Template:
        """Return one template; a project's template hides the cluster's template of the same name.

        Raises NoSuchTemplate.
        """
        known = await self.templates(scope)
        template = next((other for other in known if other.name == name), None)
        if template is None:
            raise no_such_template(name, known)
        return template

    async def create(self, template: Template) -> None:
        """Create a template. Raises TemplateRefused."""
        template.fields()
        try:
            await self._transport.create(CONFIG_MAPS.path(template.namespace), config_map_of(template))
        except AlreadyExists as error:
            raise TemplateRefused(
                f"there is a ConfigMap {template.name} in {template.namespace} already: "
                f"delete it first, or choose another name"
            ) from error

    async def delete(self, namespace: str, name: str) -> None:
        """Delete a template of a namespace. Raises NoSuchTemplate."""
        known = await self._in(namespace)
        if name not in {template.name for template in known}:
            raise no_such_template(name, known)
        await self._transport.delete(CONFIG_MAPS.path(namespace, name))

    async def _of_cluster(self) -> list[Template]:
        try:
            return await self._in(names.TEMPLATES_NAMESPACE)
        except (Forbidden, NotFound) as error:
            logger.debug("no templates of the cluster: %s", error)
            return []

    async def _in(self, namespace: str) -> list[Template]:
        page = await self._transport.list(CONFIG_MAPS.path(namespace), ConfigMap, params=_ARE_TEMPLATES)
        return sorted(map(template_of, page.items), key=lambda template: template.name)

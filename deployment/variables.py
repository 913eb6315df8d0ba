"""The values of the site file as variables of the roles.

A variable begins with the name of its role. A value that is left out here has its default in the role.
"""

from typing import Any

from deployment.site import Site
from deployment.stages import STAGES

Variables = dict[str, Any]


def of_roles(site: Site) -> Variables:
    """Return the variables of all roles for a site."""
    # The role drain belongs to no stage. Stages that take hosts out of service one by one use it.
    values: Variables = {"drain_seconds": site.get("upgrade", "drain_seconds")}
    for stage in STAGES:
        values |= stage.variables(site)
    return _set(values)


def of_host(host: dict[str, Any]) -> Variables:
    """Return the variables of one host."""
    values: Variables = {}
    for stage in STAGES:
        values |= stage.host_variables(host)
    return _set(values)


def _set(values: Variables) -> Variables:
    return {name: value for name, value in values.items() if value is not None}

"""Resolves collisions between the settings of projects: domains, and directories in which one project could redirect
another's mounts. Pure.

A user of a writable directory can replace any path below it by a symbolic link. A pod that mounts a path through that
link mounts the link's target, anywhere on the node. So no project mounts a path below a directory that another project
writes.

If the settings of two projects collide, the settings of the older project take effect. Below the site's domain, a
project can only have the domain with its own name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from orchestrator.cluster.objects import Directory, Project, ProjectSpec


@dataclass(frozen=True, slots=True)
class Granted:
    """The settings of a project that take effect, and its domain below the site's domain.

    The project's pods mount nothing below the `closed` directories, in which other projects write. `problems` has a
    sentence for each setting that collides with an older project or with the site's domain.
    """

    spec: ProjectSpec
    closed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def granted(project: Project, projects: Iterable[Project], site_domain: str = "") -> Granted:
    """Return the settings of `project` that take effect. `projects` may include it. A `site_domain` of "": no
    domain.
    """
    security = project.spec.security
    if not (security.directories or security.ingress_domain or site_domain):
        return Granted(project.spec)
    others = [other for other in projects if other.metadata.name != project.metadata.name]
    older = [other for other in others if _age(other) < _age(project)]
    directories, problems = [], []
    for directory in security.directories:
        problem = next(_directory_problems(directory, older), None)
        if problem is None:
            directories.append(directory)
        else:
            problems.append(problem)
    domain = own_domain = f"{project.metadata.name}.{site_domain}" if site_domain else None
    if security.ingress_domain:
        domain = security.ingress_domain
        problem = next(_domain_problems(domain, own_domain, older, site_domain), None)
        if problem is not None:
            domain = own_domain
            problems.append(problem)
    readable = [directory for directory in directories if not directory.writable]
    closed = {
        theirs.source
        for other in others
        for theirs in other.spec.security.directories
        if theirs.writable
        and any(theirs.source == mine.source or is_below(theirs.source, mine.source) for mine in readable)
    }
    changed = msgspec.structs.replace(security, directories=directories, ingress_domain=domain)
    spec = msgspec.structs.replace(project.spec, security=changed)
    return Granted(spec, tuple(sorted(closed)), tuple(problems))


def is_below(source: str, directory: str) -> bool:
    """Return whether the source (`/path` of nodes or `server:/path`) is below the directory and not equal to it.

    Example: `is_below("/data/a", "/data")` returns `True`.
    """
    return source != directory and source.startswith(directory.rstrip("/") + "/")


def _directory_problems(mine: Directory, older: Iterable[Project]) -> Iterator[str]:
    for other in older:
        for theirs in other.spec.security.directories:
            name = other.metadata.name
            if theirs.writable and is_below(mine.source, theirs.source):
                yield f"the directory {mine.source} is below {theirs.source}, where project {name} writes"
            if mine.writable and is_below(theirs.source, mine.source):
                yield f"the directory {mine.source}, to be written, is above {theirs.source} of project {name}"


def _domain_problems(
    mine: str, own_domain: str | None, older: Iterable[Project], site_domain: str
) -> Iterator[str]:
    if own_domain is not None and _is_within(mine, own_domain):
        return
    if site_domain and (_is_within(mine, site_domain) or _is_within(site_domain, mine)):
        yield f"the domain {mine} collides with {site_domain}, where each project has that of its name"
    for other in older:
        theirs = other.spec.security.ingress_domain
        if theirs and (_is_within(mine, theirs) or _is_within(theirs, mine)):
            yield f"the domain {mine} collides with {theirs} of project {other.metadata.name}"


def _is_within(domain: str, other: str) -> bool:
    return domain == other or domain.endswith(f".{other}")


def _age(project: Project) -> tuple[str, str]:
    return project.metadata.creation_timestamp, project.metadata.name

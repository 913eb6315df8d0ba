"""The images that scenarios name, and their names at a site."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from validation.scenario.commands import Submit, parse
from validation.scenario.loaded import LoadedScenario

_IMAGE_OF_CONTAINER = re.compile(r'"image":"([^"\\]+)"')
_IMAGE = re.compile(r"(?<=\s)(-i|--image)(\s+|=)(\S+)")


@dataclass(frozen=True, slots=True)
class ImageMap:
    """The names of images at the site, by `whole_name`. An image without an entry keeps its name."""

    names: Mapping[str, str] = field(default_factory=dict)

    def image(self, name: str) -> str:
        """Return the name of the image at the site."""
        return self.names.get(whole_name(name), name)

    def body(self, body: str) -> str:
        """Return the JSON of an object with the site's names of the images of its containers."""
        for name in dict.fromkeys(_IMAGE_OF_CONTAINER.findall(body)):
            body = body.replace(f'"image":"{name}"', f'"image":{json.dumps(self.image(name))}')
        return body

    def line(self, line: str) -> str:
        """Return the command line with the site's name of its image."""
        action = parse(line) if line.startswith("muster submit ") else None
        name = action.image if isinstance(action, Submit) else ""
        if self.image(name) == name:
            return line
        return _IMAGE.sub(lambda match: self._option(match, name), line)

    def _option(self, match: re.Match[str], name: str) -> str:
        return f"{match[1]}{match[2]}{self.image(name)}" if match[3] == name else match[0]


NO_MAP = ImageMap()
OF_SITE: Final = "site/"
"""Begin of the name of an image that only the site file can name. Without that name, its scenario does not run."""


def unnamed_image(scenario: LoadedScenario, images: ImageMap) -> str:
    """Return the first image of the scenario that only the site could name, and did not; empty if there is none."""
    names = images_of([scenario])
    return next((name for name in names if name.startswith(OF_SITE) and images.image(name) == name), "")


def whole_name(name: str) -> str:
    """Return the name of an image with the default registry and tag, if it has none.

    Example: `whole_name("busybox")` returns `'docker.io/library/busybox:latest'`.
    """
    path, at, digest = name.partition("@")
    host, slash, _ = path.partition("/")
    if not slash:
        path = f"docker.io/library/{path}"
    elif "." not in host and ":" not in host and host != "localhost":
        path = f"docker.io/{path}"
    if not at and ":" not in path.rpartition("/")[2]:
        path += ":latest"
    return path + at + digest


def images_of(scenarios: Iterable[LoadedScenario]) -> list[str]:
    """Return the images that the scenarios name, in order, each once."""
    actions = (
        command.action for scenario in scenarios for step in scenario.steps for command in step.commands
    )
    names = (action.image for action in actions if isinstance(action, Submit))
    return [name for name in dict.fromkeys(names) if name]

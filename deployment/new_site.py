"""Makes the site file of a new site from a site that comes with muster."""

import re
from pathlib import Path
from typing import Final

from deployment.site import SITE_FILE
from orchestrator.errors import UsageError

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A valid name of a site, as in the schema. Names of directories and of objects in the cluster contain it."""


def create(inventories: Path, like: str, directory: Path) -> Path:
    """Write a site file into `directory`, made from the site `like` that comes with muster. Returns the new file.

    Raises UsageError if `directory` has a site file, if its name is not valid for a site, or if `like` is unknown.
    """
    source, file = inventories / like / SITE_FILE, directory / SITE_FILE
    name = directory.absolute().name
    if not source.is_file():
        known = ", ".join(sorted(site.name for site in inventories.glob("*")))
        raise UsageError(f"--like {like}: there is no such site; there are {known}")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{directory}: a site cannot be called {name}: small letters, digits and - are its name"
        )
    if file.exists():
        raise UsageError(f"{file} is there already; nothing was written")
    text = re.sub(r"(?m)^name: .*$", f"name: {name}", source.read_text(), count=1)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    return file

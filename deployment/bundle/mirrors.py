"""The mirrors from which URLs of the internet are fetched: one map, which every fetch uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deployment.site import SiteDocument


@dataclass(frozen=True)
class Mirrors:
    """A map from URL prefixes to URL prefixes. The longest prefix that matches whole parts of the path wins."""

    table: Mapping[str, str] = field(default_factory=dict)

    def map(self, url: str) -> str:
        """Return the URL to ask instead of `url`."""
        for origin in sorted(self.table, key=len, reverse=True):
            prefix = origin.rstrip("/")
            if url == prefix or url.startswith((f"{prefix}/", f"{prefix}?")):
                return self.table[origin].rstrip("/") + url[len(prefix) :]
        return url


def read(path: Path) -> Mirrors:
    """Return the map of a YAML file. Raises SiteError with the line of an invalid URL."""
    document = SiteDocument(path)
    return Mirrors(_checked(document))


def _checked(document: SiteDocument) -> dict[str, str]:
    if not isinstance(document.data, dict):
        raise document.error((), "a map of mirrors is `URL: URL`, one a line")
    for origin, mirror in document.data.items():
        for url in (origin, mirror):
            if not isinstance(url, str) or "://" not in url:
                raise document.error((origin,), f"{url} is no URL")
    return dict(document.data)

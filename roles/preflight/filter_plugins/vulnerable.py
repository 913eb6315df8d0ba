"""Compares the releases that run with the rows of the matrix that name published vulnerabilities."""

import re
from typing import Any

from packaging.version import Version

_RELEASE = re.compile(r"[0-9]+(?:[.][0-9]+)+(?:[-~](?:alpha|beta|rc)[.]?[0-9]+)?")


def releases_of(answers: list[dict[str, Any]]) -> dict[str, str]:
    """Return the first release in the output of each program, by software. Programs that failed are left out."""
    found = {}
    for answer in answers:
        match = _RELEASE.search(answer.get("stdout", "")) if answer.get("rc") == 0 else None
        if match is not None:
            found[answer["item"]["software"]] = match[0].replace("~", "-")
    return found


def unread(answers: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each program whose output has no release, such as an own build with the version `dev`."""
    return [
        f"`{' '.join(answer['item']['argv'])}` has no release in its answer {answer['stdout'].strip()!r}: "
        "compare it with `muster matrix`"
        for answer in answers
        if answer.get("rc") == 0 and _RELEASE.search(answer["stdout"]) is None
    ]


def vulnerable(releases: dict[str, str], rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each release in the range of a row. The candidate 2.2.5-rc.1 is older than 2.2.5."""
    sentences = []
    for software, release in releases.items():
        version = Version(release)
        naming = [
            row
            for row in rows
            if row["software"] == software
            and Version(row["from"]) <= Version(version.base_version)
            and version < Version(row["below"])
        ]
        if naming:
            cves = ", ".join(dict.fromkeys(cve for row in naming for cve in row["cve"]))
            sources = "; ".join(dict.fromkeys(row["source"] for row in naming))
            newest = max(naming, key=lambda row: Version(row["below"]))
            sentences.append(f"{newest['name']} {release} has {cves}: take {newest['take']} ({sources})")
    return sentences


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"releases_of": releases_of, "unread": unread, "vulnerable": vulnerable}

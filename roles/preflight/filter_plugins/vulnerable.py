"""Compares the releases that run with the rows of the matrix that name published vulnerabilities."""

import re
from typing import Any

_RELEASE = re.compile(r"[0-9]+(?:[.][0-9]+)+")


def _numbers(release: str) -> list[int]:
    """Return a release as numbers without zeros at the end, so that 2.2 is 2.2.0."""
    numbers = [int(number) for number in release.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def releases_of(answers: list[dict[str, Any]]) -> dict[str, str]:
    """Return the first release in the answer of each program, by software; a program that fails has none."""
    found = {}
    for answer in answers:
        match = _RELEASE.search(answer.get("stdout", "")) if answer.get("rc") == 0 else None
        if match is not None:
            found[answer["item"]["software"]] = match[0]
    return found


def vulnerable(releases: dict[str, str], rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each release that a row names."""
    sentences = []
    for software, release in releases.items():
        naming = [
            row
            for row in rows
            if row["software"] == software
            and _numbers(row["from"]) <= _numbers(release) < _numbers(row["below"])
        ]
        if naming:
            cves = ", ".join(dict.fromkeys(cve for row in naming for cve in row["cve"]))
            sources = "; ".join(dict.fromkeys(row["source"] for row in naming))
            newest = max(naming, key=lambda row: _numbers(row["below"]))
            sentences.append(f"{newest['name']} {release} has {cves}: take {newest['take']} ({sources})")
    return sentences


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Any]:
        """By the name that tasks call them."""
        return {"releases_of": releases_of, "vulnerable": vulnerable}

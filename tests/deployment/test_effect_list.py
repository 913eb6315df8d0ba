"""One list has the changes that the installation of Kubernetes makes on hosts: for the plan, a page and a test on
hosts.
"""

from pathlib import Path

from deployment.effects import effects

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "host-changes.md"


def test_the_document_says_every_effect() -> None:
    document = " ".join(DOCUMENT.read_text().split())
    assert [effect.summary for effect in effects() if " ".join(effect.text.split()) not in document] == []


def test_the_files_of_an_effect_are_those_below_a_directory_and_those_that_fit_a_pattern() -> None:
    names = next(effect for effect in effects() if effect.summary == "DNS is set")
    assert names.covers("/etc/resolv.conf")
    assert names.covers("/etc/resolv.conf.42.2026-11-23@10:00:00~")
    assert names.covers("/etc/systemd/resolved.conf.d")
    assert names.covers("/etc/systemd/resolved.conf.d/kubespray.conf")
    assert not names.covers("/etc/systemd/resolved.conf")
    assert not names.covers("/etc/hosts")

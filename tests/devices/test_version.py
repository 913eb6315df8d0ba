"""`orchestrator.devices.version`."""

import pytest

from orchestrator.devices.version import NotAVersion, normalized, version_key


def test_versions_are_in_the_order_of_semver() -> None:
    ordered = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0",
        "1.10.0",
    ]
    assert sorted(ordered, key=version_key) == ordered


def test_the_build_does_not_count() -> None:
    assert version_key("1.2.3+one") == version_key("1.2.3+two.3")


@pytest.mark.parametrize("text", ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3 "])
def test_a_text_that_is_no_version_says_so(text: str) -> None:
    with pytest.raises(NotAVersion, match="is not a semantic version"):
        version_key(text)


@pytest.mark.parametrize(
    ("text", "full"), [("v1.2", "1.2.0"), ("1", "1.0.0"), ("01.002.3", "1.2.3"), ("1.2.3-rc.1", "1.2.3-rc.1")]
)
def test_a_loose_version_is_made_a_full_one(text: str, full: str) -> None:
    assert version_key(normalized(text)) == version_key(full)


def test_a_short_version_has_no_pre_release() -> None:
    with pytest.raises(NotAVersion, match="too short"):
        normalized("1.2-rc1")

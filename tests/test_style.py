"""The prose follows the style in CONTRIBUTING.md: each count of tests/style/counts.txt may only fall."""

import pytest

from tests.style import counts
from tests.style.patterns import WORDS, Finding


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    return counts.all_findings()


@pytest.fixture(scope="module")
def stored() -> counts.Counts:
    return counts.load(counts.STORED.read_text(encoding="utf-8"))


def test_no_count_rises(findings: list[Finding], stored: counts.Counts) -> None:
    risen = counts.risen(stored, counts.counted(findings))
    hint = "write it anew; if the file was only moved, run `python -m tests.style --moved`"
    assert not risen, f"{counts.report(findings, stored, risen)}\n{hint}"


def test_a_count_that_fell_is_stored(findings: list[Finding], stored: counts.Counts) -> None:
    fallen = counts.fallen(stored, counts.counted(findings))
    assert not fallen, (
        f"run `python -m tests.style --lower`; {len(fallen)} counts fell, among them {fallen[:5]}"
    )


def test_the_stored_counts_are_sorted(stored: counts.Counts) -> None:
    assert counts.STORED.read_text(encoding="utf-8") == counts.dump(stored), (
        "run `python -m tests.style --lower`"
    )


def test_the_glossary_lists_the_words_that_are_counted() -> None:
    glossary = counts.GLOSSARY.read_text(encoding="utf-8")
    assert [row[3] for row in counts.unused_words(glossary)] == [each.name for each in WORDS]
    assert len(counts.words_not_in_names(glossary)) > 30

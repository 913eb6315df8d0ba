"""Facts and checkouts agree, and a missing source is named."""

from pathlib import Path
from typing import Any

import pytest

from tests.upstream import facts
from tests.upstream.facts import PROJECTS
from tests.upstream.names import product


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    """Return the facts without the folders of submodules, which only some checkouts have."""
    if "submodules" not in found:
        return found
    paths = found["paths"]
    directories = [path for path in paths["directories"] if path not in found["submodules"]]
    return found | {"paths": paths | {"directories": directories}}


@pytest.mark.parametrize("source", ["trees"], indirect=True, scope="session")
@pytest.mark.parametrize("project", PROJECTS)
def test_checkout_and_facts_agree(project: str, source: str) -> None:
    assert comparable(facts.read(source, project)) == comparable(facts.read("facts", project))


def test_an_absent_source_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(facts.FACTS_VARIABLE, raising=False)
    monkeypatch.delenv(facts.TREES_VARIABLE, raising=False)
    assert facts.missing("facts", ["jobset"]) == ["MUSTER_FACTS"]
    assert facts.missing("trees", ["jobset"]) == ["MUSTER_FACTS", "MUSTER_UPSTREAM"]
    monkeypatch.setenv(facts.FACTS_VARIABLE, str(tmp_path))
    monkeypatch.setenv(facts.TREES_VARIABLE, str(tmp_path))
    assert facts.missing("facts", ["jobset"]) == [str(tmp_path / "jobset.json")]
    assert facts.missing("trees", ["jobset"]) == [str(tmp_path / "extract"), str(tmp_path / "jobset-08dfbdf")]
    (tmp_path / "jobset.json").touch()
    assert facts.missing("facts", ["jobset"]) == []


def test_no_program_of_muster_reads_the_facts() -> None:
    """The product has its own data files with the facts that it needs, each with source and date."""
    for words in (facts.FACTS_VARIABLE, facts.TREES_VARIABLE, "shared/facts"):
        assert [
            path for path, text in product().items() if words in text and not path.startswith("docs/")
        ] == []

"""`muster operator-yaml --helm`: the written files, without running Helm; tests/chart runs Helm."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.main import muster
from orchestrator.errors import ConfigurationError, UsageError
from orchestrator.manifests.render import CONSTANTS
from orchestrator.manifests.templating import Expression, fill_in


def write(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(muster, ["operator-yaml", "--cluster", "c", "--helm", str(directory), *options])


def test_a_directory_with_something_in_it_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    result = write(tmp_path)
    assert isinstance(result.exception, UsageError)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = write(tmp_path / "file" / "chart")
    assert isinstance(result.exception, ConfigurationError)
    assert "cannot be written" in str(result.exception)


def test_a_refused_value_writes_nothing(tmp_path: Path) -> None:
    result = write(tmp_path / "chart", "--web-history")
    assert isinstance(result.exception, UsageError)
    assert not (tmp_path / "chart").exists()


def test_two_charts_of_the_same_choices_are_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert write(tmp_path / name, "--web", "--stale-grace=1.5m").exit_code == 0
    one, two = (
        {file.relative_to(tmp_path / name): file.read_text() for file in (tmp_path / name).rglob("*.*")}
        for name in ("one", "two")
    )
    assert one == two
    assert 'staleGrace: "90s"' in one[Path("values.yaml")]


def test_a_template_that_decides_by_values_that_only_helm_knows_is_noticed() -> None:
    with pytest.raises(TypeError, match="only known to Helm"):
        bool(Expression(".Values.web"))
    with pytest.raises(TypeError):
        fill_in({**CONSTANTS, "actions": Expression(".Values.policies", ".Values.policies")})


@pytest.mark.parametrize(
    ("options", "is_warned"),
    [((), True), (("--image", "registry/muster:1"), False), (("--replicas", "0"), False)],
)
def test_an_image_without_a_registry_is_noted_beside_the_manifests(
    options: tuple[str, ...], *, is_warned: bool
) -> None:
    result = CliRunner().invoke(muster, ["operator-yaml", "--cluster", "c", *options])
    assert result.exit_code == 0
    assert ("without a registry" in result.stderr) is is_warned
    assert "Warning" not in result.stdout

"""The steps that an upgrade would take, and those that it refuses, as tables."""

from pathlib import Path

import pytest

from deployment import site_file
from deployment.stages import STAGES
from deployment.stages.definition import Installed
from deployment.stages.steps import Step

SITE = """schema: 1
name: here
versions:
  kubernetes: "{kubernetes}"
  trident: "26.06.0"
  ontap: "9.16.1P2"
  dra: "0.4.1"
not_applicable:
  ontap: it is there already
"""


def found(tmp_path: Path, present: Installed, kubernetes: str = "1.35.4") -> list[Step]:
    (tmp_path / "site.yml").write_text(SITE.format(kubernetes=kubernetes))
    site = site_file.load(tmp_path)
    return [step for stage in STAGES for step in stage.steps(site, present.of(stage.name))]


@pytest.mark.parametrize(
    ("kubelets", "irreversible", "problem"),
    [
        ({"a": "1.35.4"}, None, ""),
        ({"a": "1.35.1"}, False, ""),
        ({"a": "1.35.9"}, False, ""),
        ({"a": "1.34.9", "b": "1.35.4"}, True, ""),
        ({"a": "1.33.9", "b": "1.35.4"}, True, "name 1.34 in versions.kubernetes first"),
        ({"a": "1.17.3"}, True, "no DeepOps of the matrix installs 1.18: install this site anew"),
        ({"a": "1.36.0", "b": "1.35.4"}, False, "never back to 1.35.4"),
        ({}, None, ""),
    ],
)
def test_kubernetes_is_upgraded_by_one_minor_release_and_never_back(
    tmp_path: Path, kubelets: dict[str, str], irreversible: bool | None, problem: str
) -> None:
    steps = [each for each in found(tmp_path, Installed({"deepops": kubelets})) if each.stage == "deepops"]
    assert [bool(each.irreversible) for each in steps] == ([] if irreversible is None else [irreversible])
    assert all(problem in each.problem and bool(problem) == bool(each.problem) for each in steps)


@pytest.mark.parametrize(
    ("present", "subject", "irreversible", "refused"),
    [
        (Installed({"trident": {"trident": "26.02.1"}}), "Trident", True, False),
        (Installed({"trident": {"trident": "26.06.1"}}), "Trident", False, False),
        (Installed({"trident": {"trident": "26.10.0"}}), "Trident", False, True),
        (Installed({"dra": {"dra": "0.4.0"}}), "DRA driver", True, False),
        (Installed({"dra": {"dra": "0.5.0"}}), "DRA driver", False, True),
        (Installed({"ontap": {"ontap": "9.12.1"}}), "ONTAP", True, False),
        (Installed({"ontap": {"ontap": "9.16.1P1"}}), "ONTAP", None, None),
    ],
)
def test_storage_and_devices_have_no_way_back_to_an_older_release(
    tmp_path: Path, present: Installed, subject: str, irreversible: bool | None, refused: bool | None
) -> None:
    steps = [(each.subject, bool(each.irreversible), bool(each.problem)) for each in found(tmp_path, present)]
    assert steps == ([] if irreversible is None else [(subject, irreversible, refused)])

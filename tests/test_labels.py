"""`Gt` and `Lt` compare as Kubernetes does: strconv.ParseInt(text, 10, 64) of the label and of the value."""

import pytest

from orchestrator.labels import LabelRequirement, Operator, matches_requirement

LARGEST = str(2**63 - 1)


@pytest.mark.parametrize(
    ("label", "operator", "value", "matches"),
    [
        ("6", "Gt", "5", True),
        ("5", "Gt", "5", False),
        ("4", "Lt", "5", True),
        ("-6", "Lt", "-5", True),
        ("+6", "Gt", "5", True),
        ("0006", "Gt", "0" * 5000 + "5", True),
        ("6", "Gt", "--5", False),
        ("6", "Gt", "-", False),
        ("6", "Gt", "", False),
        ("", "Gt", "5", False),
        ("6", "Gt", "1_0", False),
        ("6", "Gt", "\u0661", False),
        ("6", "Lt", "9" * 5000, False),
        ("9" * 63, "Gt", "5", False),
        (LARGEST, "Gt", "5", True),
        (str(2**63), "Gt", "5", False),
        (f"-{2**63}", "Lt", "5", True),
        (f"-{2**63 + 1}", "Lt", "5", False),
    ],
)
def test_only_64_bit_integers_are_compared(
    label: str, operator: Operator, value: str, *, matches: bool
) -> None:
    assert matches_requirement({"slot": label}, LabelRequirement("slot", operator, (value,))) is matches


@pytest.mark.parametrize("values", [(), ("1", "2")])
def test_a_comparison_has_one_value(values: tuple[str, ...]) -> None:
    assert not matches_requirement({"slot": "6"}, LabelRequirement("slot", "Gt", values))
    assert not matches_requirement({}, LabelRequirement("slot", "Gt", ("1",)))

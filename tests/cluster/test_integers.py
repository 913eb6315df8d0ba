import pytest

from orchestrator.cluster.integers import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1_000", None),
        (" 1", None),
        ("1\n", None),
        ("\u0661", None),
        ("²", None),
    ],
)
def test_a_whole_number_is_up_to_18_ascii_digits(text: str, number: int | None) -> None:
    assert whole_number(text) == number

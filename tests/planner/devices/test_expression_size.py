"""`orchestrator.planner.devices.expression_size`."""

import pytest

from orchestrator.planner.devices.expression_size import MAX_SIZE, largest_size


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        'device.attributes["gpu.example.com"].model == "V100"',
        'cel.bind(own, device.attributes["a"], own.x in [1, 2, 3] && own.y in [1, 2]) || cel.bind(b, 1, b + 1 > 1)',
        '"a, b + c, d" == "+" + "," * 2',
    ],
)
def test_an_ordinary_expression_is_small(expression: str) -> None:
    assert largest_size(expression) < 100_000


def test_what_stands_in_a_string_is_no_operator() -> None:
    assert largest_size(f'"{"+," * 1000}" == ""') == 2002


def test_every_name_multiplies() -> None:
    sizes = [
        largest_size("".join(f"cel.bind(x{n}, x{n - 1} + x{n - 1}, " for n in range(depth)) + ")" * depth)
        for depth in (1, 2, 4, 8)
    ]
    assert sizes == [64 * 2, 64 * 2**2, 64 * 2**4, 64 * 2**8]
    assert largest_size("".join(f"cel.bind(x{n}, [1, 2], " for n in range(500))) > MAX_SIZE

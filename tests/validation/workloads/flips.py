"""Libraries of matrices for the program `validation.workloads.digests`: one that flips bits, and one that adds in any
order.
"""

import random
import struct
from typing import Any, Final

from validation.workloads.digests import Plain, Sizes

TINY: Final = Sizes((6, 6, 6), (4, 4, 4, 2))
PRODUCTS: Final = 2 + 3 * 5
"""Number of products of the computations in one repeat."""


def float32(value: float) -> float:
    """Return the nearest number in float32."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def flip(matrix: list[list[float]], element: int, bit: int) -> None:
    """Flip a bit of an element in float32."""
    row, column = divmod(element % (len(matrix) * len(matrix[0])), len(matrix[0]))
    (bits,) = struct.unpack("<I", struct.pack("<f", matrix[row][column]))
    (matrix[row][column],) = struct.unpack("<f", struct.pack("<I", bits ^ (1 << bit)))


class FlipsABit(Plain):
    """Flips a bit in the result of one product of all repeats, and keeps the bytes of the results that users get.

    With `always`, it flips the bit in every product.
    """

    def __init__(self, product: int = -1, element: int = 0, bit: int = 0, *, always: bool = False) -> None:
        super().__init__()
        self.place = product, element, bit
        self.always = always
        self.products = 0
        self.results: list[bytes] = []

    def product(self, left: Any, right: Any) -> Any:
        product, element, bit = self.place
        result = super().product(left, right)
        if self.always or self.products == product:
            flip(result, element, bit)
        self.products += 1
        return result

    def content(self, matrix: Any) -> bytes:
        self.results.append(super().content(matrix))
        return self.results[-1]


class AddsInAnyOrder(Plain):
    """Adds in a random order, and rounds each sum to float32, as processors with float32 do."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)  # noqa: S311 - no secret

    def product(self, left: Any, right: Any) -> Any:
        columns = list(zip(*right, strict=True))
        return [[self.sum_of(row, column) for column in columns] for row in left]

    def sum_of(self, row: list[float], column: tuple[float, ...]) -> float:
        """Return the sum of the products of the elements at each place."""
        products = [one * other for one, other in zip(row, column, strict=True)]
        self.random.shuffle(products)
        total = 0.0
        for value in products:
            total = float32(total + value)
        return total

"""Libraries of matrices for the program `validation.workloads.digests`: one that flips bits, one that adds in any
order, and one that adds integers.
"""

import random
import struct
from array import array
from collections.abc import Callable, Iterable
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


class AddsWholeRows:
    """Adds integers without floating point: a row of a matrix is one large integer with a lane for each element.

    A lane has 32 bits, and all its sums are below 2**31. `largest_half` is the largest sum of products of one sign of
    an element in float16: no sum of some of its products is larger, in any order.
    """

    version = model = uuid = ""

    def __init__(self) -> None:
        self.largest_half = 0

    def matrix(self, rows: int, columns: int, content: bytes, *, half: bool) -> Any:
        values = array("b", content)
        return half, [values[row * columns : (row + 1) * columns] for row in range(rows)]

    def product(self, left: Any, right: Any) -> Any:
        (half, rows), (_, factors) = left, right
        signs = [[packed([max(sign * value, 0) for value in row]) for row in factors] for sign in (1, -1)]
        columns = len(factors[0])
        result = []
        for row in rows:
            plus = minus = 0
            for value, positive, negative in zip(row, *signs, strict=True):
                if value > 0:
                    plus, minus = plus + value * positive, minus + value * negative
                elif value < 0:
                    plus, minus = plus - value * negative, minus - value * positive
            lanes = [array("i", total.to_bytes(4 * columns, "little")) for total in (plus, minus)]
            if half:
                self.largest_half = max(self.largest_half, *map(max, lanes))
            result.append(array("i", map(int.__sub__, *lanes)))
        return half, result

    def transposed(self, matrix: Any) -> Any:
        return matrix[0], [array("i", column) for column in zip(*matrix[1], strict=True)]

    def minus(self, left: Any, right: Any) -> Any:
        return self._each(int.__sub__, left, right)

    def times(self, left: Any, right: Any) -> Any:
        return self._each(int.__mul__, left, right)

    def sign(self, matrix: Any) -> Any:
        return self._each(lambda value: (value > 0) - (value < 0), matrix)

    def positive(self, matrix: Any) -> Any:
        return self._each(lambda value: max(value, 0), matrix)

    def content(self, matrix: Any) -> bytes:
        return b"".join(array("f", row).tobytes() for row in matrix[1])

    @staticmethod
    def _each(operation: Callable[..., int], *matrices: Any) -> Any:
        rows = zip(*(rows for _, rows in matrices), strict=True)
        return matrices[0][0], [array("i", map(operation, *some)) for some in rows]


def packed(values: Iterable[int]) -> int:
    """Return an integer with a lane of 32 bits for each value."""
    return int.from_bytes(array("I", values).tobytes(), "little")

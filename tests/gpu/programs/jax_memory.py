"""JAX with its preallocation of 75 % of the total that it sees, filled until an allocation fails."""

import jax
import jax.numpy as jnp

from tests.gpu.programs.steps import MIB, fill, step

PIECE_BYTES = 64 * MIB


def main() -> None:
    """Report the memory that JAX took at the start, a full fraction, and that it still computes."""
    device = jax.devices("gpu")[0]
    ones = jnp.ones((1024, 1024))
    right = float((ones @ ones)[0, 0]) == 1024
    limit = device.memory_stats()["bytes_limit"]
    step("start", is_right=right, preallocated_bytes=limit, version=jax.__version__)
    blocks, error = fill(
        lambda: jax.block_until_ready(jnp.zeros((PIECE_BYTES,), jnp.uint8)),
        (jax.errors.JaxRuntimeError,),
        4 * limit // PIECE_BYTES,
    )
    step("full", allocated_bytes=len(blocks) * PIECE_BYTES, error=error)
    blocks.clear()
    step("worked", is_right=float((ones @ ones)[0, 0]) == 1024)


if __name__ == "__main__":
    main()

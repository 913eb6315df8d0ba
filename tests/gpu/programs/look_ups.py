"""The addresses of the functions in gpumemory/hooks.h in the driver, for lines `NAME REQUEST VERSION PER_THREAD` of its
input.
"""

import ctypes
import json
import sys
from ctypes import c_int, c_void_p

from tests.gpumemory.cuda import PER_THREAD, Cuda
from tests.gpumemory.symbols import address_in


def main() -> None:
    """Print for each name: absent, the same by both ways, or another by cuGetProcAddress; and the result of dlsym."""
    cuda = Cuda()
    found = {}
    for line in sys.stdin:
        name, request, version, per_thread = line.split()
        try:
            address = address_in("libcuda.so", name)
        except LookupError:
            found[name] = "absent"
            continue
        function, status = c_void_p(), c_int()
        flags = PER_THREAD if per_thread == "1" else 0
        answer = cuda.call(
            "cuGetProcAddress_v2", request.encode(), ctypes.byref(function), c_int(int(version)), flags,
            ctypes.byref(status),
        )  # fmt: skip
        by_symbol = ctypes.cast(getattr(cuda.driver, name), c_void_p).value
        preloaded = getattr(ctypes.CDLL(None), name, None)
        ours = ctypes.cast(preloaded, c_void_p).value if preloaded is not None else None
        words: dict[int | None, str] = {ours: "library", address: "driver"}
        by_request = f"error {answer}" if answer else words.get(function.value, "elsewhere")
        found[name] = f"{words.get(by_symbol, 'elsewhere')} {by_request}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Create a context of CUDA on every idle GPU of the host, one after the other, and print the results as JSON.

The standard library and the driver's libcuda.so.1 are enough. Arguments: the addresses on the PCI bus of the GPUs that
programs use; these are left alone.
"""

import ctypes
import json
import sys

NAME_BYTES = 64


def main(busy):
    """Return the reason why CUDA does not work on the host, or a list with the result of each GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"absent": str(error)}
    code = cuda.cuInit(0)
    if code:
        return {"code": code, "name": name_of(cuda, code)}
    count = ctypes.c_int()
    code = cuda.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return {"code": code, "name": name_of(cuda, code)}
    return {"gpus": [gpu(cuda, ordinal, busy) for ordinal in range(count.value)]}


def gpu(cuda, ordinal, busy):
    """Create and destroy a context on a GPU. Return its address, and the error code of CUDA; 0 if it worked."""
    device, address = ctypes.c_int(), ctypes.create_string_buffer(NAME_BYTES)
    code = cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    code = code or cuda.cuDeviceGetPCIBusId(address, NAME_BYTES, device)
    if code:
        return {"address": f"number {ordinal}", "busy": False, "code": code, "name": name_of(cuda, code)}
    found = address.value.decode().lower()
    if found in busy:
        return {"address": found, "busy": True, "code": 0, "name": ""}
    context = ctypes.c_void_p()
    code = cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)
    if not code:
        code = cuda.cuCtxDestroy_v2(context)
    return {"address": found, "busy": False, "code": code, "name": name_of(cuda, code)}


def name_of(cuda, code):
    """Return the name of an error code in cuda.h."""
    name = ctypes.c_char_p()
    known = cuda.cuGetErrorName(code, ctypes.byref(name)) == 0 and name.value
    return name.value.decode() if known else f"error {code}"


if __name__ == "__main__":
    print(json.dumps(main({argument.lower() for argument in sys.argv[1:]})))

"""Slices, class and claims of the benchmarks, as NVIDIA's DRA driver and its users write them."""

from typing import Any, Final

from orchestrator.cluster.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES

DRIVER: Final = "gpu.nvidia.com"
_ATTRIBUTES: Final = f'device.attributes["{DRIVER}"]'

CLASS: Final[dict[str, Any]] = {
    "apiVersion": DEVICE_CLASSES.api_version,
    "kind": DEVICE_CLASSES.kind,
    "metadata": {"name": DRIVER},
    "spec": {
        "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}' && {_ATTRIBUTES}.type == 'gpu'"}}]
    },
}


def slice_of(node: str, gpus: int) -> dict[str, Any]:
    """Return what the driver publishes for a node of so many V100."""
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"name": f"{node}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(node, gpu) for gpu in range(gpus)],
        },
    }


def claim_of_one(name: str) -> dict[str, Any]:
    """Return a claim of one GPU with at least 16 GiB."""
    memory = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("16Gi")) >= 0'
    exactly = {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": memory}}],
    }
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def allocation_of(node: str, gpu: int) -> dict[str, Any]:
    """Return the `status.allocation` that gives such a claim this GPU of the node."""
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": f"gpu-{gpu}"}
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
    }


def _device(node: str, gpu: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{gpu}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{node}-{gpu}"},
            "productName": {"string": "Tesla V100-SXM2-32GB"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Volta"},
            "cudaComputeCapability": {"version": "7.0.0"},
            "driverVersion": {"version": "550.163.1"},
            "cudaDriverVersion": {"version": "12.4.0"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{gpu:02x}:00.0"},
        },
        "capacity": {"memory": {"value": "32Gi"}},
    }

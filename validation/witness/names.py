"""The documented names of muster's labels and annotations, deliberately repeated.

If a name changes by mistake, the recorder and a test detect it: the test compares these names with
`orchestrator.names`.
"""

from typing import Final

PROJECT_LABEL: Final = "muster.dev/project"
WORKLOAD_LABEL: Final = "muster.dev/workload"
TYPE_LABEL: Final = "muster.dev/type"
INTERACTIVE: Final = "interactive"
GPU_RESOURCE: Final = "nvidia.com/gpu"
NODE_TYPE_LABEL: Final = "run.ai/type"
"""On a node: its group. Projects can be limited to groups of nodes."""
GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
GPU_DEVICES_ANNOTATION: Final = "muster.dev/gpu-devices"
GPU_FRACTION_ANNOTATION: Final = "muster.dev/gpu-fraction"
MIN_MEMBER_ANNOTATION: Final = "muster.dev/min-member"
PREEMPTIBLE_ANNOTATION: Final = "muster.dev/preemptible"
SUBMITTED_AT_ANNOTATION: Final = "muster.dev/submitted-at"
EVICTION_REASON_ANNOTATION: Final = "muster.dev/eviction-reason"
DEFAULT_CONTAINER_ANNOTATION: Final = "kubectl.kubernetes.io/default-container"
"""The default container of a pod for kubectl; https://kubernetes.io/docs/reference/labels-annotations-taints."""
KUBE_SYSTEM: Final = "kube-system"
"""The namespace whose uid identifies the cluster."""
SYSTEM_NAMESPACE: Final = "muster-system"
RESERVATION_LABEL: Final = "muster.dev/gpu-reservation"
"""On the pod by which the operator reserves a shared GPU."""
AGENT_NAMESPACE: Final = "muster-system-agent"
AGENT_ACCOUNT: Final = "muster-agent"
"""The label `app.kubernetes.io/name` of the agents' pods."""
EVICTION_REASON: Final = "EvictionByEvictionAPI"
GPU_NODES_PATH: Final = "/apis/muster.dev/v1alpha1/gpunodes"
GPU_DRIVER: Final = "gpu.nvidia.com"
RESOURCE_SLICES_PATHS: Final = tuple(
    f"/apis/resource.k8s.io/{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1")
)

"""Messages of the kubelet's plugin registration and of CSI: the fields that muster uses, as protobuf classes.

Numbers and types are those of `k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto` (Kubernetes 1.36) and
`csi.proto` (container-storage-interface/spec v1.12.0).
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fields = Mapping[str, tuple[int, str]]
"""Number and type of each field. A star marks a repeated field. A map is a repeated entry, an enum an int32."""

_KIND: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _KIND.TYPE_STRING,
    "int64": _KIND.TYPE_INT64,
    "int32": _KIND.TYPE_INT32,
    "bool": _KIND.TYPE_BOOL,
}

REGISTRATION: Final[Mapping[str, Fields]] = {
    "InfoRequest": {},
    "PluginInfo": {
        "type": (1, "string"),
        "name": (2, "string"),
        "endpoint": (3, "string"),
        "supported_versions": (4, "string*"),
    },
    "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
    "RegistrationStatusResponse": {},
}

CSI: Final[Mapping[str, Fields]] = {
    "Empty": {},
    "Enum": {"type": (1, "int32")},
    "True": {"value": (1, "bool")},
    "Time": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "PluginCapability": {"service": (1, "Enum")},
    "GetPluginInfoResponse": {"name": (1, "string"), "vendor_version": (2, "string")},
    "GetPluginCapabilitiesResponse": {"capabilities": (1, "PluginCapability*")},
    "ProbeResponse": {"ready": (1, "True")},
    "CapacityRange": {"required_bytes": (1, "int64"), "limit_bytes": (2, "int64")},
    "MountVolume": {"fs_type": (1, "string"), "mount_flags": (2, "string*")},
    "AccessMode": {"mode": (1, "int32")},
    "VolumeCapability": {
        "block": (1, "Empty"),
        "mount": (2, "MountVolume"),
        "access_mode": (3, "AccessMode"),
    },
    "SnapshotSource": {"snapshot_id": (1, "string")},
    "VolumeSource": {"volume_id": (1, "string")},
    "VolumeContentSource": {"snapshot": (1, "SnapshotSource"), "volume": (2, "VolumeSource")},
    "StringEntry": {"key": (1, "string"), "value": (2, "string")},
    "Volume": {
        "capacity_bytes": (1, "int64"),
        "volume_id": (2, "string"),
        "content_source": (4, "VolumeContentSource"),
    },
    "Snapshot": {
        "size_bytes": (1, "int64"),
        "snapshot_id": (2, "string"),
        "source_volume_id": (3, "string"),
        "creation_time": (4, "Time"),
        "ready_to_use": (5, "bool"),
    },
    "ControllerCapability": {"rpc": (1, "Enum")},
    "ControllerGetCapabilitiesResponse": {"capabilities": (1, "ControllerCapability*")},
    "CreateVolumeRequest": {
        "name": (1, "string"),
        "capacity_range": (2, "CapacityRange"),
        "volume_capabilities": (3, "VolumeCapability*"),
        "parameters": (4, "StringEntry*"),
        "volume_content_source": (6, "VolumeContentSource"),
    },
    "CreateVolumeResponse": {"volume": (1, "Volume")},
    "DeleteVolumeRequest": {"volume_id": (1, "string")},
    "ValidateVolumeCapabilitiesRequest": {
        "volume_id": (1, "string"),
        "volume_capabilities": (3, "VolumeCapability*"),
    },
    "Confirmed": {"volume_capabilities": (2, "VolumeCapability*")},
    "ValidateVolumeCapabilitiesResponse": {"confirmed": (1, "Confirmed"), "message": (2, "string")},
    "CreateSnapshotRequest": {
        "source_volume_id": (1, "string"),
        "name": (2, "string"),
        "parameters": (4, "StringEntry*"),
    },
    "CreateSnapshotResponse": {"snapshot": (1, "Snapshot")},
    "DeleteSnapshotRequest": {"snapshot_id": (1, "string")},
    "NodeGetInfoResponse": {"node_id": (1, "string")},
    "NodePublishVolumeRequest": {
        "volume_id": (1, "string"),
        "target_path": (4, "string"),
        "volume_capability": (5, "VolumeCapability"),
        "readonly": (6, "bool"),
    },
    "NodeUnpublishVolumeRequest": {"volume_id": (1, "string"), "target_path": (2, "string")},
}


def message_classes(package: str, messages: Mapping[str, Fields]) -> dict[str, Any]:
    """Return a class for each message of a protobuf package."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for name, (number, written) in fields.items():
            kind = written.removesuffix("*")
            entry = described.field.add(name=name, number=number)
            entry.label = _KIND.LABEL_OPTIONAL if kind == written else _KIND.LABEL_REPEATED
            entry.type = _SCALARS.get(kind, _KIND.TYPE_MESSAGE)
            if kind not in _SCALARS:
                entry.type_name = f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }

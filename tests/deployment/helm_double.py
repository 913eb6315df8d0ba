#!/usr/bin/env python3
"""A `helm` for machines without one: it knows one chart, and stores releases in Secrets as the real Helm does.

The chart's templates are for the real Helm. This program reads `objects.json` beside them, and refuses the values that
they refuse. It imports the client of Kubernetes only when it needs it, because that takes most of a second.
"""

import asyncio
import base64
import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import SECRETS
from orchestrator.cluster.transport import Transport

NAMESPACE = os.environ.get("HELM_NAMESPACE", "default")


def api() -> Any:
    from kubernetes import client, config

    config.load_kube_config(os.environ["KUBECONFIG"])  # type: ignore[no-untyped-call]
    return client.ApiClient()


def releases() -> dict[str, dict[str, Any]]:
    """Return the newest record of each release."""

    async def call() -> Any:
        async with Transport(load_access(Path(os.environ["KUBECONFIG"]))) as transport:
            return await transport.get(SECRETS.path(NAMESPACE), params={"labelSelector": "owner=helm"})

    found: dict[str, dict[str, Any]] = {}
    for each in sorted(
        asyncio.run(call())["items"], key=lambda one: int(one["metadata"]["labels"]["version"])
    ):
        packed = base64.b64decode(base64.b64decode(each["data"]["release"]))
        found[each["metadata"]["labels"]["name"]] = json.loads(gzip.decompress(packed))
    return found


def write(release: dict[str, Any]) -> None:
    from kubernetes import client

    core, name, version = client.CoreV1Api(api()), release["name"], release["version"]
    packed = base64.b64encode(gzip.compress(json.dumps(release).encode()))
    labels: dict[str, Any] = {"owner": "helm", "name": name, "status": "deployed", "version": str(version)}
    metadata = client.V1ObjectMeta(name=f"sh.helm.release.v1.{name}.v{version}", labels=labels)
    data: dict[str, Any] = {"release": base64.b64encode(packed).decode()}
    core.create_namespaced_secret(NAMESPACE, client.V1Secret(metadata=metadata, data=data))


def objects(release: dict[str, Any], verb: str) -> None:
    from kubernetes import dynamic

    cluster: Any = dynamic.DynamicClient(api())  # type: ignore[no-untyped-call]
    for each in release["objects"]:
        resource = cluster.resources.get(api_version=each["apiVersion"], kind=each["kind"])
        place = {"namespace": NAMESPACE} if resource.namespaced else {}
        if verb == "apply":
            resource.server_side_apply(
                body=each, name=each["metadata"]["name"], field_manager="helm", **place
            )
        else:
            resource.delete(name=each["metadata"]["name"], **place)


def upgrade(words: list[str]) -> None:
    from kubernetes import client

    files = [word.partition("=")[2] for word in words if word.startswith(("--values=", "-f="))]
    files += [words[at + 1] for at, word in enumerate(words) if word in {"-f", "--values"}]
    values = yaml.safe_load(Path(files[0]).read_text()) if files else {}
    name, chart = [word.strip("'") for word in words if not word.startswith("-") and word not in files][-2:]
    if not values.get("gpuResourcesEnabledOverride"):
        sys.exit("Error: execution error at (all.yaml:2:3): gpuResourcesEnabledOverride must be set")
    core = client.CoreV1Api(api())
    if not core.list_namespace(field_selector=f"metadata.name={NAMESPACE}").items:
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    found = releases().get(name)
    release = {
        "name": name, "version": (found["version"] if found else 0) + 1, "config": values,
        "chart": {"metadata": yaml.safe_load((Path(chart) / "Chart.yaml").read_text())},
        "objects": json.loads((Path(chart) / "objects.json").read_text()),
    }  # fmt: skip
    objects(release, "apply")
    write(release)


def main() -> None:
    words = sys.argv[1:]
    if words[0] == "version":
        text = "v3.19.0" if "--short" in words else 'version.BuildInfo{Version:"v3.19.0", GitCommit:""}'
        sys.stdout.write(text + "\n")
    elif words[0] == "list":
        rows = [
            {
                "name": name, "namespace": NAMESPACE, "revision": str(each["version"]), "status": "deployed",
                "chart": f"{each['chart']['metadata']['name']}-{each['chart']['metadata']['version']}",
                "app_version": "",
            }
            for name, each in releases().items()
        ]  # fmt: skip
        sys.stdout.write(json.dumps(rows))
    elif words[:2] == ["get", "values"]:
        sys.stdout.write(yaml.safe_dump(releases()[words[-1]]["config"]))
    elif words[:2] == ["show", "chart"]:
        sys.stdout.write((Path(words[2].strip("'")) / "Chart.yaml").read_text())
    elif words[:2] == ["plugin", "list"]:
        sys.stdout.write("NAME\tVERSION\tDESCRIPTION\n")
    elif words[0] == "upgrade":
        upgrade(words[1:])
    elif words[0] == "uninstall":
        from kubernetes import client

        (name,) = (word for word in words[1:] if not word.startswith("-"))
        objects(releases()[name], "delete")
        client.CoreV1Api(api()).delete_collection_namespaced_secret(
            NAMESPACE, label_selector=f"owner=helm,name={name}"
        )
    else:
        sys.exit(f"Error: unknown command {words}")


if __name__ == "__main__":
    main()

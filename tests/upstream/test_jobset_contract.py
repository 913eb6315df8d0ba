"""The names of JobSet that muster uses exist there."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from orchestrator.cluster import controller_objects
from orchestrator.observe import controllers
from tests.upstream.names import ROOT, found

Facts = dict[str, Any]
(KIND,) = (kind for kind in controllers.KINDS if kind.kind == "JobSet")


def _definition(jobset: Facts) -> Facts:
    (found,) = jobset["objects"]["crd/bases/jobset.x-k8s.io_jobsets.yaml"]
    return dict(found["definition"])


def _fields(struct: msgspec.inspect.Type, before: str) -> Iterator[str]:
    """Yield the fields of a structure that muster reads, written as in the facts, which leave out pod templates."""
    assert isinstance(struct, msgspec.inspect.StructType)
    for each in struct.fields:
        kind = each.type.types[0] if isinstance(each.type, msgspec.inspect.UnionType) else each.type
        inner = kind.item_type if isinstance(kind, msgspec.inspect.ListType) else kind
        name = f"{before}{each.encode_name}{'[]' if inner is not kind else ''}"
        yield name
        if isinstance(inner, msgspec.inspect.StructType) and each.encode_name != "template":
            yield from _fields(inner, f"{name}.")


FIELDS = sorted(_fields(msgspec.inspect.type_info(controller_objects.JobSetSpec), "spec."))


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_muster_reads_of_a_jobset_exists(jobset: Facts, field: str) -> None:
    (version,) = _definition(jobset)["versions"]
    assert field in {each.partition(":")[0] for each in version["fields"]}


def test_the_kind_of_a_jobset_is_its_own(jobset: Facts) -> None:
    definition = _definition(jobset)
    assert (KIND.group, KIND.plural, KIND.kind) == (
        definition["group"],
        definition["names"]["plural"],
        definition["names"]["kind"],
    )


@pytest.mark.parametrize(
    "name", sorted(found(r"(?<![\w.])(?:alpha\.)?jobset\.(?:sigs\.k8s|x-k8s)\.io/[\w-]+"))
)
def test_a_name_under_the_domain_of_jobset_is_one_of_its_names(jobset: Facts, name: str) -> None:
    definition = _definition(jobset)
    versions = {f"{definition['group']}/{version['name']}" for version in definition["versions"]}
    assert name in versions | set(jobset["constants"].values())


@pytest.mark.parametrize("policy", ["AnyOrder", "InOrder"])
def test_an_order_of_starting_that_muster_knows_exists(jobset: Facts, policy: str) -> None:
    assert policy in jobset["constants"].values()
    assert (
        f'"{policy}"'
        in (ROOT / "orchestrator" / "observe" / "controllers.py").read_text()
        + (ROOT / "orchestrator" / "cluster" / "controller_objects.py").read_text()
    )

"""`orchestrator.client` exports every type in a signature or a field of its exports."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import subprocess
import sys
import types
import typing
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import orchestrator.client
from orchestrator.submit.submission import Submission

if TYPE_CHECKING:
    from collections.abc import Iterator

PUBLIC: list[str] = orchestrator.client.__getattr__("__all__")
NOT_FOR_USERS = {
    "Operations",  # a field of `AsyncJob`: the operations of AsyncClient
    "Access",  # an argument of AsyncClient(), made by `of_kubeconfig`
    "Target",  # an argument of `AsyncClient.streams`, for conversations with a container
    "Pod",
    "Surroundings",  # a field of `WorkloadView`, whose `waits_because` has the result
}


def annotations_of(public: Any) -> Iterator[Any]:
    """Yield the types of the fields, and of the parameters and results of the methods."""
    scope = {
        **vars(typing),
        **vars(collections.abc),
        **{name: getattr(orchestrator.client, name) for name in PUBLIC},
        "AbstractAsyncContextManager": AbstractAsyncContextManager,
        "Path": Path,
        "Resource": type(None),  # the kind of an object, used only inside the client
        "TracebackType": types.TracebackType,
        "Where": str | orchestrator.client.Scope | None,
    }
    members = [public, *(member for name, member in inspect.getmembers(public) if not name.startswith("_"))]
    for member in members:
        function = inspect.unwrap(getattr(member, "__func__", member))
        if isinstance(function, type) or inspect.isfunction(function):
            module = vars(sys.modules[function.__module__])
            yield from typing.get_type_hints(function, module, {**module, **scope}).values()


def classes_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        yield annotation
    for part in typing.get_args(annotation):
        yield from classes_in(part)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_types_of_public_names_are_public(name: str) -> None:
    needed = {
        each.__name__
        for annotation in annotations_of(getattr(orchestrator.client, name))
        for each in classes_in(annotation)
        if each.__module__.startswith("orchestrator.")
    }
    assert sorted(needed - set(PUBLIC) - NOT_FOR_USERS) == []


def test_every_field_of_a_submission_has_its_meaning_and_its_unit() -> None:
    (definition,) = ast.parse(inspect.getsource(Submission)).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            texts[statement.target.id] = str(following.value.value) if documented else ""  # type: ignore[attr-defined]
    assert list(texts) == list(Submission.__dataclass_fields__)
    assert [name for name, text in texts.items() if not text] == []
    for ending, unit in (("_milli", "thousandths"), ("_bytes", "bytes"), ("_seconds", "Seconds")):
        assert [name for name, text in texts.items() if name.endswith(ending) and unit not in text] == []


def test_importing_the_package_costs_nothing_and_a_name_only_its_needs() -> None:
    script = (
        "import sys, orchestrator.client; print(*sys.modules)\n"
        "from orchestrator.client import Submission; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    package, submission = (line.split() for line in done.stdout.splitlines())
    heavy = ("aiohttp", "asyncio", "msgspec", "yaml", "click")
    assert [name for name in heavy if name in package] == []
    assert [name for name in heavy if name in submission] == []


def test_a_name_that_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'ast'"):
        orchestrator.client.__getattr__("ast")
    namespace: dict[str, Any] = {}
    exec("from orchestrator.client import *", namespace)  # noqa: S102
    assert namespace.keys() - {"__builtins__"} == set(PUBLIC) == set(dir(orchestrator.client))

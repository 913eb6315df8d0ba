"""Reads YAML with bounds on its depth and its expanded size.

Nested aliases in a small file can expand to billions of entries. The composer of libyaml recurses in C, so that 30,000
brackets end the process.
"""

from typing import Any, Final

import yaml

MAX_NODES: Final = 200_000
"""Maximum number of entries in a document. An alias counts as all entries of its target."""

MAX_DEPTH: Final = 100
"""Maximum depth of entries in entries."""

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def fast_yaml(text: str) -> Any:
    """Return the data of the one YAML document in a file of our own. Raises YAMLError.

    `yaml.safe_load` reads by Python alone, which takes ten times as long as libyaml.
    """
    return yaml.load(text, LOADER)  # noqa: S506 - it is a safe loader


class TooLarge(yaml.YAMLError):
    """A document is deeper or larger than the bounds. `line` is the line at which it exceeds a bound."""

    def __init__(self, place: yaml.Node | yaml.Event, message: str) -> None:
        super().__init__(message)
        self.line = place.start_mark.line + 1 if place.start_mark else 1


def small_yaml(text: str | bytes, max_nodes: int = MAX_NODES) -> Any:
    """Return the data of the one YAML document in the text. Raises ValueError if it is not YAML, or too large."""
    try:
        node = small_node(text, max_nodes)
        return None if node is None else LOADER("").construct_document(node)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ValueError("there are entries in entries without an end") from error


def small_node(text: str | bytes, max_nodes: int = MAX_NODES) -> yaml.Node | None:
    """Return the root of the one YAML document in the text. Raises YAMLError if it is not YAML, or too large."""
    check_depth(text)
    loader = LOADER(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
    finally:
        loader.dispose()
    if node is not None:
        check_size(node, {}, max_nodes)
    return node


def check_depth(text: str | bytes) -> None:
    """Raise TooLarge for entries deeper than the bound, and YAMLError if the text is not YAML."""
    depth = 0
    for event in yaml.parse(text, LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise TooLarge(event, f"there are entries in entries more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def check_size(node: yaml.Node, sizes: dict[int, int], limit: int) -> int:
    """Return the number of nodes to which a node expands. Each alias is followed only once. Raises TooLarge."""
    known = sizes.get(id(node))
    if known == 0:
        raise TooLarge(node, "there are entries in entries without an end: does an alias (*) hold itself?")
    if known:
        return known
    sizes[id(node)] = 0
    size = 1
    if isinstance(node, yaml.MappingNode):
        size += sum(check_size(child, sizes, limit) for pair in node.value for child in pair)
    elif isinstance(node, yaml.SequenceNode):
        size += sum(check_size(child, sizes, limit) for child in node.value)
    if size > limit:
        raise TooLarge(
            node, f"it stands for more than {limit} entries: do aliases (*) repeat what aliases repeat?"
        )
    sizes[id(node)] = size
    return size

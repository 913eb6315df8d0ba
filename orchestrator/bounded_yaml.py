"""Reads YAML with a bound on its expanded size, because nested aliases in a small file can expand to billions of
entries.
"""

from typing import Any, Final

import yaml

MAX_NODES: Final = 200_000
"""Maximum number of entries in a document. An alias counts as all entries of its target."""

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooLarge(yaml.YAMLError):
    """A document expands to more entries than the bound. `line` is the line at which it exceeds the bound."""

    def __init__(self, node: yaml.Node, message: str) -> None:
        super().__init__(message)
        self.line = node.start_mark.line + 1


def small_yaml(text: str | bytes, max_nodes: int = MAX_NODES) -> Any:
    """Return the data of the one YAML document in the text. Raises ValueError if it is not YAML, or too large."""
    try:
        loader = LOADER(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            check_size(node, {}, max_nodes)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ValueError("there are entries in entries without an end") from error


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

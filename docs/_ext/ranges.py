"""The directive `ranges`: the numbers that signatures name, such as `BeamWidth`."""

from typing import Annotated, get_args, get_origin

from annotated_types import Interval
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from captioning import numbers

from .configuration_keys import type_name


def ranges_text() -> str:
    """Every range of `captioning.numbers` as Markdown, a target of the role `py:data`."""
    lines = []
    for name, value in vars(numbers).items():
        if get_origin(value) is Annotated and isinstance(get_args(value)[1], Interval):
            lines += [f":::{{py:data}} captioning.numbers.{name}", type_name(value), ":::", ""]
    return "\n".join(lines)


class Ranges(SphinxDirective):
    """All ranges."""

    def run(self) -> list[nodes.Node]:
        """Name, type, least and most of each."""
        return self.parse_text_to_nodes(ranges_text())


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the directive."""
    app.add_directive("ranges", Ranges)
    return {"parallel_read_safe": True}

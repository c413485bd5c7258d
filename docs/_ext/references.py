"""Links by a name's last part, and to files of the repository beside these pages.

Docstrings and signatures say `Captioner` and not `captioning.captioner.Captioner`: where exactly
one documented object is called so, that is what they mean. Pages that are also read in the
repository link to its files; here the files' paths stand in their place.
"""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

OUTSIDE = re.compile(r"\[[^\[\]]+\]\((?:\.\./)+(?P<path>[^)#\s]+)(?:#[^)\s]*)?\)")
"""A Markdown link to something that lies above its page."""


KINDS = ("class", "exception", "function", "data", "module")
"""What is linked by its last part. Methods of one name are many."""


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contents: nodes.TextElement
) -> nodes.reference | None:
    """The one object of ours whose name ends so; none where there are several, or none."""
    if node.get("refdomain") != "py":
        return None
    wanted = str(node["reftarget"]).removesuffix("()")
    found = documented(app)[wanted.rpartition(".")[2]]
    places = {place for name, place in found if name.endswith(f".{wanted}") or name == wanted}
    if len(places) != 1:
        return None
    [(document, anchor)] = places
    return make_refnode(app.builder, node["refdoc"], document, anchor, contents, wanted)


@cache
def documented(app: Sphinx) -> dict[str, list[tuple[str, tuple[str, str]]]]:
    """By its last part, each documented name with its page and anchor; once all pages are read."""
    names: dict[str, list[tuple[str, tuple[str, str]]]] = defaultdict(list)
    for name, entry in app.env.domaindata["py"]["objects"].items():
        if not entry.aliased and entry.objtype in KINDS:
            names[name.rpartition(".")[2]].append((name, (entry.docname, entry.node_id)))
    return names


def with_paths(text: str, repository: Path) -> str:
    """Markdown with the path in place of each link to a file of the repository that is no page.

    Args:
        text: of a page.
        repository: where the files are; a link to nothing stays, and the build reports it.
    """

    def shown(match: re.Match[str]) -> str:
        path = match["path"]
        return f"`{path}`" if (repository / path).exists() else match[0]

    return OUTSIDE.sub(shown, text)


def show_paths(app: Sphinx, document: str, source: list[str]) -> None:
    """Let a page that is read say the paths of files."""
    source[0] = with_paths(source[0], Path(app.srcdir).parent)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of both."""
    app.connect("missing-reference", resolve)
    app.connect("source-read", show_paths)
    return {"parallel_read_safe": True}

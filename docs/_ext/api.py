"""Modules, signatures and links of the API pages, and links to files of the repository."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules, walk_packages
from typing import Annotated, Any, get_args, get_origin

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.inspect import stringify_signature
from sphinx.util.nodes import make_refnode

from .equations import link_to_sources

OUTSIDE = re.compile(r"\[[^\[\]]+\]\((?:\.\./)+(?P<path>[^)#\s]+)(?:#[^)\s]*)?\)")
"""A Markdown link to something above its page's folder."""

MODULES = re.compile(r"<!-- modules ([\w. ]+) -->")
"""Where a page describes every module of packages, or of `captioning` those in no package."""

LINKED = ("class", "exception", "function", "data", "module")
"""Kinds of objects that are linked by the last part of their name; methods share too many names."""


def modules_text(names: str) -> str:
    """Directives for all modules of packages; what a package exports is described there alone."""
    lines, exported = ["```{eval-rst}"], set[str]()
    for name in names.split():
        package = import_module(name)
        if name == "captioning":
            module_names = [info.name for info in iter_modules(package.__path__) if not info.ispkg]
            modules = [f"{name}.{module}" for module in module_names if module != "__main__"]
        else:
            inside = sorted(walk_packages(package.__path__, f"{name}."), key=lambda m: not m.ispkg)
            modules = [name, *(info.name for info in inside)]
        for module in modules:
            if module.rpartition(".")[2] in exported:
                continue  # a function of the module's name has its place
            lines += [f".. automodule:: {module}", "   :members:"]
            if hasattr(import_module(module), "__path__"):
                exported |= set(getattr(import_module(module), "__all__", ()))
            elif exported:
                lines.append(f"   :exclude-members: {', '.join(sorted(exported))}")
            lines.append("")
    return "\n".join([*lines, "```"])


def signature(documented: Any) -> tuple[str, str] | None:
    """Arguments of a class of this package; None for everything else, which autodoc knows better.

    Configurable classes record their arguments in `__new__`, which hides the constructor's. A
    range, such as `Annotated[int, Range(1, 1000)]`, is shown as its type: the reference of the
    configuration's keys has the range.
    """
    if not inspect.isclass(documented) or not _is_ours(documented):
        return None
    if hasattr(documented, "__dataclass_fields__") or issubclass(documented, (tuple, Exception)):
        return None
    constructor, maker = (getattr(documented, name) for name in ("__init__", "__new__"))
    if not _is_ours(constructor):
        return ("", "") if _is_ours(maker) else None
    written = inspect.signature(constructor)
    parameters = [
        each.replace(annotation=without_range(each.annotation))
        for each in list(written.parameters.values())[1:]
    ]
    shown = written.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    text = stringify_signature(shown, unqualified_typehints=True)
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text), ""


def _is_ours(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").startswith("captioning")


def without_range(hint: Any) -> Any:
    """A type without its `Annotated`, alone or as a part of a union."""
    if get_origin(hint) is Annotated:
        return get_args(hint)[0]
    if any(get_origin(part) is Annotated for part in get_args(hint)):
        first, *others = map(without_range, get_args(hint))
        for other in others:
            first = first | other
        return first
    return hint


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contents: nodes.TextElement
) -> nodes.reference | None:
    """A link to the only documented object with this last name, as docstrings write names short."""
    if node.get("refdomain") != "py":
        return None
    wanted = str(node["reftarget"]).removesuffix("()").rpartition(".")[2]
    places = {
        (entry.docname, entry.node_id)
        for name, entry in env.domaindata["py"]["objects"].items()
        if name.rpartition(".")[2] == wanted and entry.objtype in LINKED and not entry.aliased
    }
    if len(places) != 1:
        return None
    [(document, anchor)] = places
    return make_refnode(app.builder, node["refdoc"], document, anchor, contents, wanted)


def with_paths(text: str, repository: Path) -> str:
    """Markdown with the path instead of each link to a file of the repository that is not a page.

    Args:
        text: a page.
        repository: where the files are; a link to a missing file stays, and the build reports it.
    """

    def shown(match: re.Match[str]) -> str:
        path = match["path"]
        return f"`{path}`" if (repository / path).exists() else match[0]

    return OUTSIDE.sub(shown, text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx's events."""
    app.connect("autodoc-process-signature", lambda *args: signature(args[3]))
    app.connect("missing-reference", resolve)
    app.connect(
        "source-read",
        lambda app, document, source: source.__setitem__(
            0,
            MODULES.sub(
                lambda match: modules_text(match[1]),
                with_paths(link_to_sources(source[0]), Path(app.srcdir).parent),
            ),
        ),
    )
    return {"parallel_read_safe": True}

"""Signatures as they stand in the source: `Float[Tensor, "B L D"]`, `width: BeamWidth`.

autodoc evaluates annotations, after which a name such as `BeamWidth` is gone and a shape is an
object of jaxtyping. A reader wants what the author wrote.
"""

import ast
import dataclasses
import inspect
import textwrap
from typing import Any

from docutils import nodes
from sphinx.addnodes import desc_sig_literal_string
from sphinx.application import Sphinx


def written_signature(found: Any) -> tuple[str, str] | None:
    """Arguments and result of a function or class as its source has them; none where it has none.

    Args:
        found: of any type.
    """
    if not inspect.isclass(found):
        function = inspect.unwrap(found) if callable(found) else None
        return _of_function(function, is_method=_is_method(function)) if function else None
    if dataclasses.is_dataclass(found) or issubclass(found, tuple):
        return _of_fields(found), ""
    made = next(
        (vars(kind)["__init__"] for kind in found.__mro__ if "__init__" in vars(kind)), None
    )
    if not inspect.isfunction(made) or not made.__module__.startswith("captioning"):
        return ("", "") if found.__module__.startswith("captioning") else None
    signature = _of_function(made, is_method=True)
    return None if signature is None else (signature[0], "")


def _is_method(function: Any) -> bool:
    return "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]


def _of_function(function: Any, is_method: bool) -> tuple[str, str] | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    is_static = any(getattr(each, "id", "") == "staticmethod" for each in tree.decorator_list)
    if is_method and not is_static:
        first = tree.args.posonlyargs or tree.args.args
        del first[:1]
    result = "" if tree.returns is None else ast.unparse(_unquoted(tree.returns))
    for argument in ast.walk(tree.args):
        if isinstance(argument, ast.arg) and argument.annotation is not None:
            argument.annotation = _unquoted(argument.annotation)
    return f"({ast.unparse(tree.args)})", result


def _of_fields(kind: type) -> str:
    """The fields of a dataclass or NamedTuple, those that it inherits first."""
    fields: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not each.__module__.startswith("captioning"):
            continue
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(tree, ast.ClassDef)
        for line in tree.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                default = "" if line.value is None else f"={ast.unparse(line.value)}"
                annotation = ast.unparse(_unquoted(line.annotation))
                fields[line.target.id] = f"{line.target.id}: {annotation}{default}"
    return f"({', '.join(fields.values())})"


def _unquoted(annotation: ast.expr) -> ast.expr:
    """An annotation in quotes, such as of a class that comes later, without them."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def _process(
    app: Sphinx, what: str, name: str, found: Any, options: Any, signature: Any, result: Any
) -> tuple[str, str] | None:
    if what not in ("function", "method", "class", "exception"):
        return None
    written = written_signature(found)
    if written is None:
        return None
    return written[0], written[1]


def _quote_shapes(app: Sphinx, tree: nodes.document) -> None:
    """Put shapes in the quotes that the source has."""
    for text in tree.findall(desc_sig_literal_string):
        written = text.astext()
        if written.startswith("'") and '"' not in written:
            text.children = [nodes.Text(f'"{written[1:-1]}"')]


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell autodoc of them."""
    app.connect("autodoc-process-signature", _process)
    app.connect("doctree-read", _quote_shapes)
    return {"parallel_read_safe": True}

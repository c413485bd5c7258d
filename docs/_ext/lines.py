"""Links from equations to the lines of the code: ``[`Class.method`](../file.py#L1-L9 "eq. 4")``.

A link leads to the line whose comment names its equation, or to the whole class, method or
function. After an edit of the code, `python docs/_ext/lines.py` writes the numbers again. On the
site a link leads to the highlighted source.
"""

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = (REPOSITORY / "docs/reading.md", REPOSITORY / "notebooks/attention.ipynb")

LINK = re.compile(
    r"\[`(?P<name>[\w.]+)`\]\(\.\./(?P<module>captioning/[\w/]+)\.py#(?P<lines>[\w-]+)"
    r' (?P<quote>\\?")(?P<mark>[^"\\]+)\\?"\)'
)


def found(module: str, name: str) -> ast.AST:
    """The definition of a dotted name in a module of the package."""
    node: ast.AST = ast.parse((REPOSITORY / f"{module}.py").read_text())
    for part in name.split("."):
        [node] = [each for each in ast.iter_child_nodes(node) if getattr(each, "name", "") == part]
    return node


def anchor(link: re.Match[str]) -> str:
    """The lines that a link should lead to, as GitHub names them."""
    node = found(link["module"], link["name"])
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    first, last = node.lineno, node.end_lineno or node.lineno
    lines = (REPOSITORY / f"{link['module']}.py").read_text().splitlines()
    marked = re.compile(rf"  # {re.escape(link['mark'])}\b")
    for number in range(first, last + 1):
        if marked.search(lines[number - 1]):
            return f"L{number}"
    return f"L{first}-L{last}"


def with_anchors(text: str) -> str:
    """A page or notebook whose links have the right lines."""
    return LINK.sub(lambda link: link[0].replace(link["lines"], anchor(link), 1), text)


def on_the_site(text: str) -> str:
    """A page whose links lead to the source code on the site."""
    return LINK.sub(
        lambda link: (
            f'<a href="_modules/{link["module"]}.html#{link["name"]}">'
            f"<code>{link['name']}</code></a>"
        ),
        text,
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_anchors(page.read_text()))

"""Links from equations to the code: ``[`Class.method`](../file.py "eq. 4")``.

In the repository a link leads to the file; on the site, to the highlighted source of the class,
method or function.
"""

import re

LINK = re.compile(
    r"\[`(?P<name>[\w.]+)`\]\(\.\./(?P<module>captioning/[\w/]+)\.py"
    r' \\?"(?P<mark>[^"\\]+)\\?"\)'
)


def link_to_sources(text: str) -> str:
    """Make the links of a page lead to the source code on the site."""
    return LINK.sub(
        lambda link: (
            f'<a href="_modules/{link["module"]}.html#{link["name"]}">'
            f"<code>{link['name']}</code></a>"
        ),
        text,
    )

"""XMP: descriptions and keywords of a photo, those of people and those of a model.

Captions of a model are marked twice. Properties in our namespace hold the caption, and the keywords
that came with it; exiftool copies by name alone, so no other namespace has names like theirs. For
programs that copy only what they know, the description's writer ends in a hash of the caption.
Neither fits a description that somebody has changed: that is people's.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lxml import etree

from captioning.errors import InputError, printable
from captioning.files import opened

NAMESPACES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "photoshop": "http://ns.adobe.com/photoshop/1.0/",
    "lr": "http://ns.adobe.com/lightroom/1.0/",
    "captioning": "urn:captioning:xmp/1.0/",
}
RDF, DC, PHOTOSHOP, LIGHTROOM, OURS = (f"{{{address}}}" for address in NAMESPACES.values())
NODE, ITEM = f"{RDF}Description", f"{RDF}li"
LANGUAGE, DEFAULT_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang", "x-default"

DESCRIPTION, KEYWORDS, WRITER = f"{DC}description", f"{DC}subject", f"{PHOTOSHOP}CaptionWriter"
HIERARCHICAL_KEYWORDS = f"{LIGHTROOM}hierarchicalSubject"
DIGIKAM_TAGS = "{http://www.digikam.org/ns/1.0/}TagsList"
KEYWORD_LISTS = (KEYWORDS, HIERARCHICAL_KEYWORDS, DIGIKAM_TAGS)
"""Lists of keywords. Programs read one of them, the last that they know of a photo's."""

OUR_CAPTION, OUR_KEYWORDS = f"{OURS}GeneratedCaption", f"{OURS}GeneratedKeywords"
OUR_MODEL, OUR_CONFIDENCE = f"{OURS}GeneratedBy", f"{OURS}GeneratedConfidence"
WRITER_NAME = "captioning"

EMPTY_XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="%b"/></x:xmpmeta>' % (
    NAMESPACES["rdf"].encode()
)

MAX_XMP_BYTES = 10_000_000
"""Maximum size of XMP, which usually has a few thousand bytes."""


class Xmp:
    """The XMP of a photo. Everything but a model's captions stays as it is, in its order.

    Args:
        content: XML; empty for a photo without XMP.
        source: the file of the XMP, for messages.

    Raises:
        InputError: it is too large, not XMP, or may hold entities.
    """

    def __init__(self, content: bytes, source: Path) -> None:
        if len(content) > MAX_XMP_BYTES:
            raise InputError(
                f"{source}: XMP of more than {MAX_XMP_BYTES:,} bytes; mend or remove it"
            )
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        try:
            self.root: Any = etree.fromstring(content or EMPTY_XMP, parser)
        except etree.XMLSyntaxError as error:
            reason = f"XMP that is not XML ({error.msg})"
            raise InputError(f"{source}: {reason}; mend or remove it") from None
        if self.root.getroottree().docinfo.doctype:
            raise InputError(f"{source}: XMP with a document type; mend or remove it")
        self.rdf = self.root if self.root.tag == f"{RDF}RDF" else self.root.find(f".//{RDF}RDF")
        if self.rdf is None:
            raise InputError(f"{source}: XML that is not XMP (no rdf:RDF); mend or remove it")

    @classmethod
    def read(cls, path: Path) -> "Xmp":
        """Read a file of XMP."""
        with opened(path) as file:
            return cls(file.read(MAX_XMP_BYTES + 1), path)

    @property
    def content(self) -> bytes:
        """The XML."""
        etree.indent(self.root)
        tree = self.root.getroottree()  # with what is around the root
        return bytes(etree.tostring(tree, encoding="UTF-8", xml_declaration=True))

    @property
    def description(self) -> str:
        """The description in the default language, else in the first; empty if there is none."""
        return next(iter(self._values(DESCRIPTION)), "")

    @property
    def keywords(self) -> list[str]:
        """People's keywords, without their hierarchy."""
        of_model = self._values(OUR_KEYWORDS)
        return [keyword for keyword in self._values(KEYWORDS) if keyword not in of_model]

    def is_ours(self, description: str) -> bool:
        """Whether a model wrote this description."""
        text = description.strip()
        signed = [writer for writer in self._values(WRITER) if writer.startswith(f"{WRITER_NAME} ")]
        if signed:  # an editor may have replaced the text in our properties, too
            return any(writer.endswith(_signature(text)) for writer in signed)
        return text in self._values(OUR_CAPTION)

    def describe(self, text: str) -> None:
        """Set the description, in the default language."""
        self._remove(DESCRIPTION)
        self._add(DESCRIPTION, [text], "Alt")

    def add_keywords(self, keywords: Sequence[str]) -> None:
        """Add keywords of people."""
        self._add(KEYWORDS, keywords, "Bag")

    def add_caption(
        self, caption: str, keywords: Iterable[str], model: str, confidence: float | None
    ) -> None:
        """Add a caption of a model, as description if there is none, and keywords."""
        caption = printable(caption)
        if not self.description:
            self.describe(caption)
            if not self._values(WRITER):
                self._add(WRITER, [f"{WRITER_NAME} {model} {_signature(caption)}"])
        self._add(OUR_CAPTION, [caption])
        self._add(OUR_KEYWORDS, self._add_keywords(keywords), "Bag")
        self._add(OUR_MODEL, [model])
        if confidence is not None:
            self._add(OUR_CONFIDENCE, [f"{confidence:.4g}"])

    def remove_caption(self) -> bool:
        """Remove what `add_caption` added; returns whether there was something."""
        keywords = self._values(OUR_KEYWORDS)
        items = [item for item in self._items(DESCRIPTION) if self.is_ours(_text(item))]
        for name in KEYWORD_LISTS:
            items += [item for item in self._items(name) if _text(item) in keywords]
        is_marked = bool(items or self._values(OUR_CAPTION))
        for item in items:
            self._prune(item)
        if any(writer.startswith(f"{WRITER_NAME} ") for writer in self._values(WRITER)):
            self._remove(WRITER)
        self._remove(OURS)
        return is_marked

    def _add_keywords(self, keywords: Iterable[str]) -> list[str]:
        """Add the keywords that no list has, and return them."""
        present: set[str] = set()
        for name in KEYWORD_LISTS:
            present |= {re.split("[|/]", path)[-1].casefold() for path in self._values(name)}
        added = [keyword for keyword in keywords if keyword.casefold() not in present]
        if added:
            self._add(KEYWORDS, added, "Bag")
            is_new = not self._values(HIERARCHICAL_KEYWORDS)  # and would hide other keywords
            self._add(HIERARCHICAL_KEYWORDS, self._values(KEYWORDS) if is_new else added, "Bag")
            if self._values(DIGIKAM_TAGS):
                self._add(DIGIKAM_TAGS, added, "Seq")
        return added

    def _items(self, name: str) -> list[Any]:
        """The items of a property that is a list."""
        return list(self.rdf.iterfind(f"{NODE}/{name}/*/{ITEM}"))

    def _values(self, name: str) -> list[str]:
        """The texts of an attribute, an element or a list; those in the default language first."""
        values: list[str] = []
        for node in self.rdf.findall(NODE):
            values.append(node.get(name, ""))
            for element in node.findall(name):
                items = element.findall(f"*/{ITEM}") or [element]
                items.sort(key=lambda item: item.get(LANGUAGE) != DEFAULT_LANGUAGE)
                values += map(_text, items)
        return [value.strip() for value in values if value.strip()]

    def _add(self, name: str, values: Sequence[str], container: str | None = None) -> None:
        """Add values to a property: to its list, if it has a kind of container."""
        if not values:
            return
        items = self._items(name)
        if items:
            parent = items[0].getparent()
        else:
            values = [*self._values(name), *values]
            self._remove(name)
            parent = etree.SubElement(self._node(), name)
            if container is not None:
                parent = etree.SubElement(parent, f"{RDF}{container}")
        for text in values:
            element = parent if container is None else etree.SubElement(parent, ITEM)
            element.text = printable(text)
            if container == "Alt":
                element.set(LANGUAGE, DEFAULT_LANGUAGE)

    def _node(self) -> Any:
        """The last node of properties, if it is ours, else a new one."""
        nodes = self.rdf.findall(NODE)
        if nodes and NAMESPACES["captioning"] in nodes[-1].nsmap.values():
            return nodes[-1]
        about = nodes[0].get(f"{RDF}about", "") if nodes else ""
        return etree.SubElement(self.rdf, NODE, {f"{RDF}about": about}, NAMESPACES)

    def _remove(self, prefix: str) -> None:
        """Remove the properties whose names begin so."""
        for node in self.rdf.findall(NODE):
            for name in filter(lambda name: name.startswith(prefix), node.keys()):
                del node.attrib[name]
            for element in node.findall("*"):
                if element.tag.startswith(prefix):
                    self._prune(element)

    def _prune(self, element: Any) -> None:
        """Remove an element, and those around it that are empty then."""
        parent = element.getparent()
        parent.remove(element)
        if len(parent) == 0 and parent is not self.rdf and set(parent.keys()) <= {f"{RDF}about"}:
            self._prune(parent)


def _text(element: Any) -> str:
    """The text in an element, without comments; a value with qualifiers is an element in it."""
    return str(element.xpath("string()"))


def _signature(caption: str) -> str:
    """The end of the writer's name."""
    return hashlib.blake2b(caption.strip().encode(errors="replace"), digest_size=4).hexdigest()

"""Descriptions that photos carry, and those of a model; exiftool and exiv2 are the oracles."""

import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from PIL import ExifTags, Image, PngImagePlugin

from captioning.data.descriptions import Descriptions, sidecar_of
from captioning.data.readers import reader_for
from captioning.data.readers.data_set import BY_MODEL, MALFORMED, UNCAPTIONED
from captioning.data.xmp import MAX_XMP_BYTES, NAMESPACES, Xmp
from captioning.errors import InputError
from tests.conftest import draw_photos

SIDECAR = Path("a.jpg.xmp")

FRAME = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><!-- mine -->
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:xmp="http://ns.adobe.com/xap/1.0/" rdf:about="" xmp:Rating="4"{attributes}>
   <dc:title><rdf:Alt><rdf:li xml:lang="x-default">Ferien</rdf:li></rdf:Alt></dc:title>
   <dc:subject><rdf:Bag><rdf:li>Rex</rdf:li><rdf:li>Dog</rdf:li></rdf:Bag></dc:subject>
   {elements}
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>"""

ALTERNATIVES = (
    '<dc:description><rdf:Alt><rdf:li xml:lang="{}">{}</rdf:li></rdf:Alt></dc:description>'
)

BOMB = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise("abcdefg"))
BOMB = f'<!DOCTYPE x [<!ENTITY a "ha">{BOMB}]>'


def people(attributes: str = "", elements: str = "") -> Xmp:
    """What somebody has written about a photo."""
    content = FRAME.format(attributes=attributes, elements=elements)
    return Xmp(content.encode(), SIDECAR)


def canonical(xmp: Xmp) -> str:
    return str(etree.canonicalize(xmp.content.decode(), strip_text=True, with_comments=True))


def test_a_caption_is_added_replaced_and_removed_and_all_else_stays() -> None:
    hierarchy = "<rdf:Bag><rdf:li>Pets|Rex</rdf:li></rdf:Bag></lr:hierarchicalSubject>"
    hierarchy = f'<lr:hierarchicalSubject xmlns:lr="{NAMESPACES["lr"]}">{hierarchy}'
    xmp = people("", hierarchy)
    before = canonical(xmp)
    xmp.add_caption("a dog on a beach", ["beach", "dog"], "photos", 0.71234)
    assert xmp.description == "a dog on a beach"
    assert xmp.is_ours(xmp.description)
    xmp = Xmp(xmp.content, SIDECAR)
    assert xmp.remove_caption()
    xmp.add_caption("a cat", ["cat"], "photos", None)
    words = re.findall(">(.*)</rdf:li>", xmp.content.decode())
    assert words == ["Ferien", "Rex", "Dog", "cat", "Pets|Rex", "cat", "a cat", "cat"]
    xmp = Xmp(xmp.content, SIDECAR)
    assert xmp.remove_caption()
    assert canonical(xmp) == before
    assert not xmp.remove_caption()


@pytest.mark.parametrize(
    ("attributes", "elements"),
    [
        ("", ALTERNATIVES.format("x-default", "Rex am Meer")),
        ("", ALTERNATIVES.format("de", "Rex am Meer")),
        ("", ALTERNATIVES.format("x-default", "<!-- 2019 -->Rex am Meer")),
        ("", ALTERNATIVES.format("x-default", "<rdf:value>Rex am Meer</rdf:value>")),
        ("", "<dc:description>Rex am Meer</dc:description>"),
        (' dc:description="Rex am Meer"', ""),
    ],
)
def test_a_description_by_people_stays(attributes: str, elements: str) -> None:
    xmp = people(attributes, elements)
    xmp.add_caption("a dog", ["dog"], "photos", 0.5)
    assert xmp.description == "Rex am Meer"
    assert not xmp.is_ours(xmp.description)
    assert xmp.content.count(b"Rex am Meer") == 1


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_corrected_description_is_people_s(everywhere: bool) -> None:
    xmp = people()
    xmp.add_caption("a dog", ["dog"], "photos", 0.5)
    if everywhere:  # as a text editor replaces it in the whole file
        xmp = Xmp(xmp.content.replace(b"a dog", b"a brown dog"), Path("a.xmp"))
    else:
        xmp.describe("a brown dog")
    assert not xmp.is_ours("a brown dog")
    xmp.remove_caption()
    assert xmp.description == "a brown dog"
    assert b"captioning" not in re.sub(rb"xmlns:\S+", b"", xmp.content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a dog", "not XML"),
        ("<a>Fl\u00fcsse</a>".encode("latin-1"), "not XML"),
        (b"<a>a dog</a>", "not XMP"),
        (b"<a>" + b" " * MAX_XMP_BYTES + b"</a>", "more than 10,000,000 bytes"),
        (f"{BOMB}{people().content.decode()[38:]}".encode(), "document type"),
        (f"{BOMB}<x>&g;</x>".encode(), "XMP"),
        (f'{BOMB}<x y="&g;"/>'.encode(), "XMP"),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', "document type"),
    ],
    ids=["text", "Latin-1", "XML", "huge", "bomb", "entity", "attribute", "file"],
)
def test_what_is_not_xmp_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.jpg.xmp"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        Xmp.read(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1"])
def test_another_encoding_that_is_declared_is_read(encoding: str) -> None:
    xmp = people("", ALTERNATIVES.format("x-default", "Flüsse"))
    xml = f'<?xml version="1.0" encoding="{encoding}"?>{xmp.content.decode()[38:]}'
    assert Xmp(xml.encode(encoding), SIDECAR).description == "Flüsse"


def test_captions_of_people_are_read_from_photos_and_files_beside_them(tmp_path: Path) -> None:
    names = ["a.jpg", "b.png", "c.webp", "d.tif", "e.jpg", "f.jpg", "g.jpg", "h.jpg"]
    draw_photos(tmp_path, *names)
    inside = people("", ALTERNATIVES.format("x-default", "within")).content
    exif = Image.Exif()
    exif[ExifTags.Base.ImageDescription] = "OLYMPUS DIGITAL CAMERA"
    texts = PngImagePlugin.PngInfo()
    texts.add_itxt("XML:com.adobe.xmp", inside.decode())
    Image.open(tmp_path / "a.jpg").save(tmp_path / "a.jpg", xmp=inside, exif=exif)
    Image.open(tmp_path / "b.png").save(tmp_path / "b.png", pnginfo=texts, exif=exif)
    (tmp_path / "a.jpg.xmp").write_bytes(
        people("", ALTERNATIVES.format("de", "beside\nit")).content
    )
    (tmp_path / "c.xmp").write_bytes(inside)
    generated = people()
    generated.add_caption("a dog", [], "photos", None)
    (tmp_path / "e.jpg.xmp").write_bytes(generated.content)
    (tmp_path / "f.jpg.xmp").write_bytes(b"a dog")
    (tmp_path / "g.jpg").write_bytes(b"no photo")
    data_set = reader_for(tmp_path, captions_from="xmp", val_fraction=0.0).read()
    records = {record.image.name: record.captions for record in data_set.records("train")}
    assert records == {"a.jpg": ("beside it",), "b.png": ("within",), "c.webp": ("within",)}
    problems = [
        (problem.kind, re.findall(r"\w\.\w+", problem.name)[0]) for problem in data_set.problems
    ]
    assert problems == [
        (BY_MODEL, "e.jpg"),
        (MALFORMED, "f.jpg"),
        (MALFORMED, "g.jpg"),
        (UNCAPTIONED, "d.tif"),
        (UNCAPTIONED, "h.jpg"),
    ]
    data_set = reader_for(tmp_path, captions_from="exif", val_fraction=0.0).read()
    assert {record.captions for record in data_set.records("train")} == {
        ("OLYMPUS DIGITAL CAMERA",)
    }


def photo_with_iptc(path: Path, content: bytes) -> None:
    """Write a JPEG whose IPTC block has this content."""
    draw_photos(path.parent, path.name)
    resource = b"8BIM\x04\x04\0\0" + len(content).to_bytes(4, "big") + content
    segment = b"Photoshop 3.0\0" + resource
    photo = path.read_bytes()
    marker = b"\xff\xed" + (len(segment) + 2).to_bytes(2, "big")
    path.write_bytes(photo[:2] + marker + segment + photo[2:])


def test_only_the_source_that_is_asked_for_is_read(tmp_path: Path) -> None:
    photo, sidecar = tmp_path / "a.jpg", tmp_path / "a.jpg.xmp"
    photo_with_iptc(photo, b"\x1c\x02\x78\x00\x03Rex" + b"nonsense")
    sidecar.write_bytes(people("", ALTERNATIVES.format("x-default", "beside")).content)
    assert Descriptions(photo).of_people("xmp") == "beside"
    assert Descriptions(photo).of_people("exif") == ""
    with pytest.raises(InputError, match=f"{photo}: damaged"):
        Descriptions(photo).of_people("iptc")
    photo_with_iptc(photo, b"\x1c\x02\x78\x00\x03Rex")
    sidecar.write_bytes(b"no XML")
    assert Descriptions(photo).of_people("iptc") == "Rex"
    with pytest.raises(InputError, match=f"{sidecar}: XMP that is not XML"):
        Descriptions(photo).of_people("xmp")


def test_of_two_text_files_the_caption_counts_and_the_other_is_named(tmp_path: Path) -> None:
    draw_photos(tmp_path, "a.jpg", "b.jpg")
    for name in ("a.caption", "a.txt", "b.jpg.caption"):
        (tmp_path / name).write_text(name)
    data_set = reader_for(tmp_path, val_fraction=0.0).read()
    assert [record.captions for record in data_set.records("train")] == [
        ("a.caption",),
        ("b.jpg.caption",),
    ]
    assert [Path(problem.name).name for problem in data_set.problems] == ["a.txt"]


def tool(name: str, package: str) -> Any:
    reason = f"{name} is not installed (Debian: {package})"
    return pytest.mark.skipif(shutil.which(name) is None, reason=reason)


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def tags(path: Path) -> dict[str, Any]:
    """The XMP of a file, as exiftool reads it."""
    [content] = json.loads(run("exiftool", "-json", "-G1", "-xmp:all", path))
    return {key.removeprefix("XMP-"): value for key, value in content.items()}


@pytest.mark.integration
@tool("exiftool", "libimage-exiftool-perl")
@tool("exiv2", "exiv2")
def test_exiftool_and_exiv2_read_and_rewrite_a_sidecar(tmp_path: Path) -> None:
    draw_photos(tmp_path, "a.jpg")
    photo, sidecar = tmp_path / "a.jpg", tmp_path / "a.jpg.xmp"
    xmp = people()
    xmp.add_caption("a dog on a beach", ["beach"], "photos", 0.71234)
    sidecar.write_bytes(xmp.content)
    expected = {"dc:Title": "Ferien", "xmp:Rating": 4, "dc:Subject": ["Rex", "Dog", "beach"]}
    expected |= {"dc:Description": "a dog on a beach"}
    expected["lr:HierarchicalSubject"] = expected["dc:Subject"]  # which Immich reads
    assert expected.items() <= tags(sidecar).items()
    assert 'lang="x-default" a dog on a beach' in run("exiv2", "-px", sidecar)
    for command in (
        ("exiftool", "-q", "-overwrite_original", "-xmp-iptccore:location=Park", sidecar),
        ("exiv2", "-M", "set Xmp.xmp.Label Red", sidecar),
    ):
        run(*command)
        xmp = Xmp.read(sidecar)
        assert xmp.remove_caption()
        xmp.add_caption("a dog", ["beach"], "photos", 0.5)
        sidecar.write_bytes(xmp.content)
    expected |= {"dc:Description": "a dog", "iptcCore:Location": "Park", "xmp:Label": "Red"}
    found = tags(sidecar)
    assert expected.items() <= found.items()
    assert [found[f"captioning:Generated{name}"] for name in ("Caption", "By", "Confidence")] == [
        "a dog",
        "photos",
        0.5,
    ]
    run("exiftool", "-q", "-r", "-ext", "jpg", "-tagsfromfile", "%d%f.%e.xmp", "-xmp:all", tmp_path)
    assert {key for key in tags(photo) if not key.startswith("captioning")} >= set(expected)
    assert set(tags(photo)) <= {*expected, "SourceFile", "x:XMPToolkit", "photoshop:CaptionWriter"}
    sidecar.unlink()
    descriptions = Descriptions(photo)
    assert descriptions.texts("xmp") == ["a dog"]
    assert descriptions.of_people("xmp") == ""
    run("exiftool", "-q", "-xmp-dc:description=a brown dog", photo)
    assert Descriptions(photo).of_people("xmp") == "a brown dog"


@pytest.mark.integration
@tool("exiftool", "libimage-exiftool-perl")
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tif"])
def test_what_exiftool_writes_into_photos_is_read(tmp_path: Path, name: str) -> None:
    draw_photos(tmp_path, name)
    photo, text = tmp_path / name, "Flüsse, 渋谷"
    fields = [f"-xmp-dc:description={text} x", f"-exif:imagedescription={text} e"]
    if photo.suffix in (".jpg", ".tif"):
        fields += ["-codedcharacterset=utf8", f"-iptc:caption-abstract={text} i"]
    run("exiftool", "-q", *fields, photo)
    descriptions = Descriptions(photo)
    assert descriptions.texts("xmp") == [f"{text} x"]
    assert descriptions.texts("exif") == [f"{text} e"]
    assert descriptions.texts("iptc") == ([f"{text} i"] if len(fields) > 2 else [])
    assert sidecar_of(photo) == tmp_path / f"{name}.xmp"

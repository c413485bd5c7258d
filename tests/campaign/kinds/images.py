"""Hostile images: damaged, of sizes that are not true, and what is no image."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from PIL import Image, PngImagePlugin

from tests.campaign import judge
from tests.campaign.cases import Case, Kind, Steps
from tests.campaign.forks import Call
from tests.campaign.kinds.damage import damaged
from tests.campaign.kinds.given import Given
from tests.campaign.world import World

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "ICO", "TGA", "PCX", "SGI")

MODES = {
    "JPEG": ("RGB", "L", "CMYK"),
    "PNG": ("RGB", "RGBA", "L", "LA", "P", "1", "I;16"),
    "TIFF": ("RGB", "RGBA", "L", "CMYK", "F", "I;16", "1", "LAB"),
    "GIF": ("P", "L"),
    "PPM": ("RGB", "L", "1"),
    "WEBP": ("RGB", "RGBA"),
    "ICO": ("RGBA",),
}

NAMES = (
    *("photo", "line\nbreak", "\x1b[31mred", "\udce9t\udce9", "-dash", "\u202egpj", "n" * 240, " "),
)

SIDES = (0, 1, 2, 3, 7, 255, 2**15, 2**16 - 1, 2**16, 13_300, 20_000, 2**31 - 1, 2**31, 2**32 - 1)


def _case(world: World, number: int, random: Random, folder: Path) -> Case:
    if random.random() < 0.03:
        path = random.choice(Given(world, folder).paths)
        label = Path(path).name
    else:
        make = random.choices(list(MAKERS), weights=list(MAKERS.values()))[0]
        content = make(random)
        label = make.__name__.strip("_")
        (folder / "given").mkdir()
        photo = folder / "given" / f"{random.choice(NAMES)}.{random.choice(('jpg', 'png', 'tif'))}"
        photo.write_bytes(content)
        path = str(photo)
    shown = random.choice(
        [[]] * 8 + [["--json"], ["--json"], ["--html", "out"], ["--overlay", "out"]]
    )
    arguments = ["caption", "--model", str(world.model), *shown, "--", path]
    return Case(
        f"{label}: caption {' '.join(shown)} {Path(path).name!r}", _steps(arguments, folder)
    )


def _steps(arguments: list[str], folder: Path) -> Steps:
    outcome = yield Call(arguments)
    return [*judge.faults(outcome, folder), *judge.half_written(folder)]


def _picture(random: Random) -> tuple[Image.Image, str]:
    """A small picture of noise, and the format to save it in."""
    kind = random.choice(FORMATS)
    mode = random.choice(MODES.get(kind, ("RGB", "L")))
    size = (random.randint(1, 64), random.randint(1, 64))
    depth = {"I;16": 2, "F": 4}.get(mode) or len(Image.new(mode, (1, 1)).getbands())
    length = (size[0] + 7) // 8 * size[1] if mode == "1" else size[0] * size[1] * depth
    return Image.frombytes(mode, size, random.randbytes(length)), kind


def _saved(picture: Image.Image, kind: str, **settings: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **settings)
    return file.getvalue()


def _whole(random: Random) -> bytes:
    return _saved(*_picture(random))


def _damaged(random: Random) -> bytes:
    return damaged(_whole(random), random)


def _with_odd_exif(random: Random) -> bytes:
    """A JPEG whose EXIF data, which are a TIFF, are damaged or say what cannot be."""
    if random.random() < 0.5:
        exif = Image.Exif()
        exif[0x0112] = random.choice((0, 1, 6, 9, 255))
        exif[0x010E] = "x" * random.choice((1, 1000))
        content = damaged(exif.tobytes(), random)[:60_000]
    else:
        content = b"Exif\0\0" + _tiff(random)
    return _saved(Image.effect_noise((20, 30), 50), "JPEG", exif=content)


def _animated(random: Random) -> bytes:
    frames = [Image.effect_noise((16, 16), 40).convert("P") for _ in range(random.randint(2, 9))]
    kind = random.choice(("GIF", "PNG", "WEBP", "TIFF"))
    content = _saved(frames[0], kind, save_all=True, append_images=frames[1:])
    return damaged(content, random) if random.random() < 0.5 else content


def _png(random: Random) -> bytes:
    """A PNG of any size and depth, whose rows are as many as is said, fewer, or more."""
    width, height = random.choice(SIDES), random.choice(SIDES)
    depth, colour = random.choice(
        ((1, 0), (8, 0), (16, 0), (8, 2), (16, 2), (8, 3), (8, 6), (3, 9))
    )
    rows = zlib.compress(bytes(random.choice((0, 10, 1000, 10**6))), 9)
    return _png_of(width, height, depth, colour, rows)


def _bomb(random: Random) -> bytes:
    """A PNG of a few kilobytes and very many pixels."""
    width, height, depth = random.choice(
        ((13_300, 13_300, 16), (1, 178_000_000, 1), (178_000_000, 1, 1), (12_000, 12_000, 8))
    )
    packer = zlib.compressobj(9)
    row, rows = bytes((width * depth + 7) // 8 + 1), []
    at_a_time = max(1, 10**6 // len(row))
    for _ in range(0, height, at_a_time):
        rows.append(packer.compress(row * at_a_time))
    return _png_of(width, height, depth, 0, b"".join([*rows, packer.flush()]))


def _png_of(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def _with_long_text(random: Random) -> bytes:
    text = PngImagePlugin.PngInfo()
    for _ in range(random.choice((1, 30))):
        text.add_text("comment", "a" * random.choice((10, 10**6)), zip=random.random() < 0.7)
    return _saved(Image.effect_noise((16, 16), 40), "PNG", pnginfo=text)


def _with_odd_profile(random: Random) -> bytes:
    profile = random.randbytes(random.choice((1, 128, 5000)))
    kind = random.choice(("JPEG", "PNG", "TIFF"))
    return _saved(Image.effect_noise((16, 16), 40), kind, icc_profile=profile)


def _netpbm(random: Random) -> bytes:
    kind = random.choice((b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"P7", b"Pf", b"PF"))
    width, height = random.choice(SIDES), random.choice(SIDES)
    most = random.choice((0, 1, 255, 256, 65535, 10**9, -1))
    return b"%s %d %d %d\n" % (kind, width, height, most) + random.randbytes(300)


def _bmp(random: Random) -> bytes:
    width, height = (random.choice(SIDES) % 2**31 * random.choice((1, -1)) for _ in range(2))
    bits, packing = random.choice((0, 1, 4, 8, 16, 24, 32, 64)), random.randrange(5)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, packing, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 300, 0, 0, 54) + header + random.randbytes(300)


def _gif(random: Random) -> bytes:
    width, height = (random.choice(SIDES) % 2**16 for _ in range(2))
    screen = struct.pack("<HHBBB", width, height, random.choice((0, 0x80, 0xF7)), 0, 0)
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x4c\x01\x00;"
    return b"GIF89a" + screen + random.randbytes(random.choice((0, 6, 768))) + frame


def _tiff(random: Random) -> bytes:
    """A TIFF of random tags, some of which lead to themselves."""
    tags = []
    known = (256, 257, 258, 259, 262, 273, 277, 278, 279, 322, 330, 339)
    for tag in sorted(random.sample(known, 9)):
        value = random.choice((*SIDES, 8, 8, 8))
        tags.append(struct.pack("<HHII", tag, random.choice((1, 3, 4, 5, 12, 99)), 1, value))
    after = struct.pack("<I", random.choice((0, 8, 2**32 - 1)))
    return b"".join((b"II*\0\x08\0\0\0", struct.pack("<H", len(tags)), *tags, after))


def _no_image(random: Random) -> bytes:
    return random.choice(
        (
            *(b"", b"\0", b"no picture", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a"),
            b"<svg xmlns='http://www.w3.org/2000/svg'><script>x</script></svg>",
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(touch executed) system\n",
            b"RIFF\xff\xff\xff\xffWEBPVP8 ",
            b"PK\x03\x04" + bytes(100),
            b"\x80\x04cos\nsystem\n(S'touch executed'\ntR.",
            bytes(10**6),
            random.randbytes(1000),
        )
    )


MAKERS: dict[Callable[[Random], bytes], float] = {
    _damaged: 45,
    _whole: 6,
    _with_odd_exif: 8,
    _animated: 6,
    _png: 8,
    _bomb: 1,
    _with_long_text: 2,
    _with_odd_profile: 4,
    _netpbm: 5,
    _bmp: 5,
    _gif: 4,
    _tiff: 6,
    _no_image: 5,
}
"""What makes the bytes of a file, and how often it does."""

IMAGES = Kind("images", whole=2000, tenth=200, case=_case)

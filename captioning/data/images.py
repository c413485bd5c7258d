"""Finds photos and reads them as upright 8-bit RGB, within a limit of megapixels."""

import codecs
import glob
import math
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import NamedTuple

from PIL import ExifTags, Image, ImageFile, ImageOps, PngImagePlugin, UnidentifiedImageError

from captioning.data.photo_files import PARQUET, TAR, holds_files, opened_photo
from captioning.errors import InputError, reading
from captioning.files import is_hidden, opened

JPEG_SUFFIXES = frozenset((".jpg", ".jpeg", ".jpe", ".jfif"))
HEIF_SUFFIXES = frozenset((".heic", ".heics", ".heif", ".heifs", ".hif"))
RAW_SUFFIXES = frozenset(
    """.3fr .arw .cr2 .cr3 .crw .dcr .dng .erf .fff .gpr .iiq .kdc .mef .mos .mrw .nef .nrw .orf
    .pef .raf .rw2 .rwl .sr2 .srf .srw .x3f""".split()  # noqa: SIM905
)
IMAGE_SUFFIXES = frozenset(
    """.apng .avif .avifs .bmp .dib .exr .gif .hdr .ico .j2c .j2k .jp2 .jpc .jpf .jpg2
    .jpx .jxl .jxr .mpo .pbm .pcx .pgm .png .pnm .ppm .psb .psd .qoi .sgi .svg .tga .tif .tiff .webp
    .xcf""".split()  # noqa: SIM905
).union(JPEG_SUFFIXES, HEIF_SUFFIXES, RAW_SUFFIXES)
"""The suffixes of photos, also of those that cannot be read and are then reported."""

UPLOAD_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "AVIF")
FORMATS = (*UPLOAD_FORMATS, "BMP", "DIB", "JPEG2000", "PPM", "TIFF")
"""Formats of photos besides HEIC; MPO is read as JPEG. For others, such as EPS, Pillow would start
programs."""

UPLOAD_KINDS = "JPEG, PNG, WebP, GIF, AVIF or HEIC"
"""`UPLOAD_FORMATS` and HEIC, for messages."""

HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx")
"""Brands of HEIF in the first bytes of a file."""

WHITES = (255.0, 1023.0, 4095.0, 16383.0, 65535.0)
"""White in 8, 10, 12, 14 and 16 bits, which files of 16 and 32 bits may hold."""

SIDEWAYS = (5, 6, 7, 8)  # EXIF's orientations that swap width and height

PACKED = {
    TAR: "unpack tar files (tar -xf)",
    PARQUET: "rows of Parquet are captioned in Python, by captioner.stream(rows)",
}
"""Hints for files that hold many photos, by their suffixes."""

MAX_NAME_BYTES = 255
"""Maximum length of a file name on common file systems."""

STDIN = "-"
"""Argument for a list of photos on standard input."""

# Colour profiles of printers and texts of editors have megabytes; this limits all texts together.
PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY

MEGAPIXELS = 100.0  # the default limit; Pillow's own is 178
MAX_PIXELS = int(MEGAPIXELS * 1_000_000)


class PhotoSizeError(InputError):
    """A photo that has too many pixels, or takes too long to decode."""


class UnknownFormatError(InputError):
    """A file that is no photo, or one in a format that is not read."""


@dataclass(frozen=True)
class Upload:
    """A photo in memory."""

    name: str  # in errors
    data: bytes  # of the file
    max_pixels: int
    formats: tuple[str, ...] = UPLOAD_FORMATS  # from untrusted clients

    def __str__(self) -> str:
        return self.name


class DecodedPhoto(NamedTuple):
    """A decoded photo, which may have fewer pixels than its file."""

    image: Image.Image  # in RGB, upright
    size: tuple[int, int]  # width and height of the upright photo, in pixels of the file

    @property
    def scales(self) -> tuple[float, float]:
        """Pixels of the file per pixel of the image, along its width and its height."""
        reduction = round(self.size[0] / self.image.width)
        # The last pixels of a JPEG that was decoded at 1/2, 1/4 or 1/8 may reach beyond the photo.
        reduced_size = tuple(math.ceil(side / reduction) for side in self.size)
        if self.image.size == reduced_size:
            return float(reduction), float(reduction)
        return self.size[0] / self.image.width, self.size[1] / self.image.height


def read_image(path: str | Path | Upload, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Read all pixels of a photo as 8-bit RGB, upright by EXIF, on white where transparent.

    Greys of more than 8 bits, or of floats, are scaled to 0..255: white is the smallest of `WHITES`
    (for floats also 1) that no grey exceeds, or else the largest grey; negative greys are black. An
    animation gives its first frame.

    Args:
        path: the file, or an upload.
        max_pixels: maximum number of pixels, checked before decoding; an upload has its own.

    Raises:
        InputError: the file cannot be read, or is damaged.
        UnknownFormatError: it is in no format that is read.
        PhotoSizeError: it has too many pixels.
    """
    return read_reduced_photo(path, None, max_pixels).image


def read_reduced_photo(
    path: str | Path | Upload, min_side: int | None, max_pixels: int = MAX_PIXELS
) -> DecodedPhoto:
    """Read a photo as `read_image` does, but large JPEGs at 1/2, 1/4 or 1/8 of their size.

    These decode much faster. Width and height are at least `min_side`; None decodes all pixels.
    """
    source: AbstractContextManager[BufferedReader | BytesIO]
    formats: tuple[str, ...] = FORMATS
    if is_upload := isinstance(path, Upload):
        source, formats = nullcontext(BytesIO(path.data)), path.formats
        max_pixels = path.max_pixels
    else:
        source = opened_photo(path)
    with source as file:
        try:
            image: Image.Image = _opened(file, formats)
            width, height = image.size
            if width * height > max_pixels:
                remedy = "" if is_upload else ", or raise max-megapixels"
                raise PhotoSizeError(
                    f"{path}: {width} x {height} pixels are more than the {max_pixels / 1e6:g} "
                    f"million that are read here; scale the photo down{remedy}"
                )
            if min_side is not None:
                image.draft(None, (min_side, min_side))
            image.load()
            size = width, height
            with suppress(Exception):
                if image.getexif().get(ExifTags.Base.Orientation) in SIDEWAYS:
                    size = height, width
            return DecodedPhoto(upright(image), size)
        except InputError:
            raise
        except (Image.DecompressionBombError, MemoryError):
            raise PhotoSizeError(f"{path}: too many pixels; scale the photo down") from None
        except UnidentifiedImageError:
            file.seek(0)
            remedy = PACKED.get(Path(str(path)).suffix.lower(), "convert it to JPEG or PNG")
            if formats == UPLOAD_FORMATS:
                remedy = f"send {UPLOAD_KINDS}"
            reason = f"not an image that can be read; {remedy}"
            if _is_heif(file):
                reason = "HEIC, which needs the extra heic; run pip install 'captioning[heic]'"
            elif not file.read(1):
                reason = "empty file (0 bytes); copy or download the photo again"
            raise UnknownFormatError(f"{path}: {reason}") from None
        except Exception as error:  # Pillow's plugins raise nearly anything on damaged files
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"{path}: damaged or cut short ({reason}); copy or download the photo again"
            ) from None


@contextmanager
def opened_image(path: Path) -> Iterator[ImageFile.ImageFile]:
    """Open a photo without decoding its pixels, to read what else is in the file.

    Raises:
        InputError: the photo cannot be read, or the block cannot read it.
    """
    with opened(path) as file:
        try:
            yield _opened(file, FORMATS)
        except Exception as error:  # as in `read_reduced_photo`
            is_unknown = isinstance(error, UnidentifiedImageError)
            reason = "not an image that can be read" if is_unknown else f"damaged ({error})"
            raise InputError(f"{path}: {reason}") from None


def _opened(file: BufferedReader | BytesIO, formats: tuple[str, ...]) -> ImageFile.ImageFile:
    if _is_heif(file):
        with suppress(ImportError):
            from pillow_heif import register_heif_opener

            register_heif_opener()
            formats = ("HEIF",)
    return Image.open(file, formats=formats)


def upright(image: Image.Image) -> Image.Image:
    """Convert an image of Pillow as `read_image` does; returns the image itself if it is so."""
    image.load()
    with suppress(Exception):  # damaged EXIF data only loses the orientation
        if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
            image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _grey(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == "RGB" else image.convert("RGB")


def is_photo(path: str | Path) -> bool:
    """Whether the first bytes of a file are those of a photo, in one of `FORMATS` or HEIC."""
    try:
        with opened(path) as file:
            if _is_heif(file):
                return True
            Image.open(file, formats=FORMATS)
    except Exception:  # of the file system, or of Pillow's plugins: anything
        return False
    return True


def _is_heif(file: BufferedReader | BytesIO) -> bool:
    file.seek(0)
    head = file.read(64)
    file.seek(0)
    return head[4:8] == b"ftyp" and any(brand in head[8:] for brand in HEIF_BRANDS)


def _grey(image: Image.Image) -> Image.Image:
    """Scale 16-bit, 32-bit or floating-point greys to 8 bits, which Pillow would clip."""
    import numpy as np

    values = np.nan_to_num(np.asarray(image, dtype=np.float32), posinf=0.0, neginf=0.0)
    # Files rarely say how many of their bits are used, so that follows from the maximum.
    whites, largest = (1.0, *WHITES) if image.mode == "F" else WHITES, values.max()
    white = next((white for white in whites if white >= largest), largest)
    return Image.fromarray(np.rint(values.clip(0, white) * (255 / white)).astype(np.uint8))


def find_photos(
    paths: Iterable[str | Path], listed: str | Path | None = None, exclude: Sequence[str] = ()
) -> Iterator[Path]:
    """Find photos, one after another; at most the names of one folder's files are in memory.

    A folder gives the photos in it and below it, sorted by the parts of their paths: files with the
    suffix of a photo, and files that are photos by their first bytes. Hidden files, folders of the
    system (`is_hidden`) and `raw_twins` are skipped, and links to folders are followed, into each
    folder once. Unreadable paths are returned too: missing photos, broken links, pipes with the
    name of a photo, folders without permission.

    Args:
        paths: photos, folders, and patterns such as ``photos/*.jpg`` that no shell has
            expanded; ``-`` for a list on standard input.
        listed: a text file of further photos, one path per line, or ``-``.
        exclude: names of files and folders to skip in folders, or patterns of names.

    Raises:
        InputError: a folder holds no photos, or the list cannot be read.
    """
    for path in [paths] if isinstance(paths, str | Path) else paths:
        if str(path) == STDIN:
            yield from _photos_of_list(STDIN)
        elif os.path.isdir(path):  # noqa: PTH112 - a Path raises if a name is too long
            photos = _photos_below(Path(path), set(), exclude)
            first_photo = next(photos, None)
            if first_photo is None:
                hints = [h for suffix, h in PACKED.items() if holds_files(Path(path), f"*{suffix}")]
                remedy = hints[0] if hints else "expected .jpg, .png and so on"
                raise InputError(f"{path}: no images in this folder; {remedy}")
            yield first_photo
            yield from photos
        elif glob.has_magic(str(path)) and not os.path.lexists(path):
            matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - also absolute
            yield from find_photos(matches, None, exclude) if matches else [Path(path)]
        else:
            yield Path(path)
    if listed is not None:
        yield from _photos_of_list(listed)


def raw_twins(names: Iterable[str]) -> set[str]:
    """The raw files of a folder that lie beside a developed photo of the same name."""
    developed_stems = set()
    raw_stems = {}
    for name in names:
        stem, suffix = os.path.splitext(name.lower())  # noqa: PTH122
        if suffix in RAW_SUFFIXES:
            raw_stems[name] = stem
        elif suffix in IMAGE_SUFFIXES:
            developed_stems.add(stem)
    return {name for name, stem in raw_stems.items() if stem in developed_stems}


def output_names(
    photos: Iterable[Path],
    paths: Iterable[str | Path],
    *,
    folder: str | Path | None,
    suffix: str,
    reserved_names: Iterable[str] = (),
) -> dict[Path, Path]:
    """Choose the path of each photo's output: a text, a picture or a page.

    The folder mirrors the folders among `paths`, so that a/dog.jpg in one of them has
    a/dog.txt there; other photos have their file name. Where two photos share a name, the second
    output keeps the photo's suffix: dog.heic.txt, beside dog.txt of dog.jpg.

    Args:
        photos: as `find_photos` gives them.
        paths: the arguments of `find_photos`: photos, folders and patterns.
        folder: of the outputs; None for beside the photos.
        suffix: of the outputs.
        reserved_names: names of other files in the folder.

    Raises:
        InputError: two photos would have the same output, or an output would replace a photo.
    """
    photos = dict.fromkeys(photos)
    roots = [Path(root) for root in map(_fixed_part, paths) if root]
    roots.sort(key=lambda root: len(root.parts), reverse=True)
    originals = {os.path.realpath(photo): photo for photo in photos}
    names: dict[Path, Path] = {}
    # Some file systems ignore case.
    owners = {name.casefold(): Path(name) for name in reserved_names}
    secondary_suffixes = HEIF_SUFFIXES | RAW_SUFFIXES
    for photo in sorted(photos, key=lambda photo: photo.suffix.lower() in secondary_suffixes):
        output = photo if folder is None else _below(photo, roots)
        if not output.name:  # a folder without permission, which gets no output
            output /= "folder"
        output = output.with_name(_fitting_name(photo, suffix))
        owner = owners.get(str(output).casefold())
        if owner is not None and owner.parent in (photo.parent, Path()):
            output = output.with_name(_fitting_name(photo, f"{photo.suffix}{suffix}"))
            owner = owners.get(str(output).casefold())
        names[photo] = output if folder is None else Path(folder) / output
        if owner is not None:
            raise InputError(
                f"{names[photo]}: would be of {owner} and of {photo}; give the folder that holds "
                "both, whose folders the outputs then mirror, or caption them apart"
            )
        owners[str(output).casefold()] = photo
        if original := originals.get(os.path.realpath(names[photo])):
            raise InputError(
                f"{names[photo].parent}: the {suffix} of {photo} would replace the photo "
                f"{original}; choose another folder"
            )
    return names


def _below(photo: Path, roots: Sequence[Path]) -> Path:
    """A photo's path below the first of the roots that holds it, else its file name."""
    for root in roots:
        if photo.is_relative_to(root) and ".." not in photo.relative_to(root).parts:
            return photo.relative_to(root)
    return Path(photo.name)


def _fitting_name(photo: Path, suffix: str) -> str:
    """A photo's name with another suffix, shortened if file systems would refuse it."""
    name = f"{photo.stem}{suffix}"
    if len(os.fsencode(name)) <= MAX_NAME_BYTES:
        return name
    return f"{photo.stem[:50]}-{zlib.crc32(os.fsencode(photo.name)):08x}{suffix}"


def _fixed_part(path: str | Path) -> str | Path | None:
    """A folder, or the folder of a pattern before its first magic part; None for a photo."""
    if os.path.isdir(path):  # noqa: PTH112 - a Path raises if a name is too long
        return path
    parts = Path(path).parts
    magic = next((number for number, part in enumerate(parts) if glob.has_magic(part)), None)
    return None if magic is None or os.path.lexists(path) else Path(*parts[:magic])


def _photos_below(folder: Path, visited: set[str], exclude: Sequence[str]) -> Iterator[Path]:
    if (real_path := os.path.realpath(folder)) in visited:
        return
    visited.add(real_path)
    try:
        with os.scandir(folder) as entries:
            directory = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        yield folder  # reading it raises the error
        return
    twins = raw_twins(entry.name for entry in directory)
    for entry in directory:
        if is_hidden(entry.name) or entry.name in twins:
            continue
        if any(fnmatch(entry.name, pattern) for pattern in exclude):
            continue
        path = folder / entry.name
        if entry.is_symlink() and not os.path.exists(path):  # noqa: PTH110 - a Path may raise
            yield path  # a broken link
        elif entry.is_dir():
            yield from _photos_below(path, visited, exclude)
        elif path.suffix.lower() in IMAGE_SUFFIXES or (entry.is_file() and is_photo(path)):
            yield path


def _photos_of_list(file: str | Path) -> Iterator[Path]:
    is_stdin = str(file) == STDIN
    name = "standard input" if is_stdin else file
    with (
        reading(name),
        nullcontext(sys.stdin.buffer) if is_stdin else Path(file).open("rb") as lines,
    ):
        # File names are bytes, and those that are not UTF-8 must stay unchanged.
        for number, line in enumerate(lines, 1):
            if b"\0" in line:
                raise InputError(f"{name}: line {number} is not a path")
            line = line.removeprefix(codecs.BOM_UTF8)  # of Windows' editors
            if path := os.fsdecode(line).rstrip("\r\n"):
                yield Path(path)

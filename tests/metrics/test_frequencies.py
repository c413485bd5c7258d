import zipfile
from pathlib import Path

import numpy as np
import pytest

from captioning.errors import InputError
from captioning.metrics.cider import cider_scores
from captioning.metrics.frequencies import DocumentFrequencies


def split(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


def test_frequencies_are_of_images_and_not_of_captions() -> None:
    once = DocumentFrequencies.of([split("a dog"), split("a cat")])
    thrice = DocumentFrequencies.of([split("a dog", "a dog", "dog a dog"), split("a cat")])
    pair = split("dog cat"), [split("dog a")]
    assert cider_scores(*pair, once).corpus == cider_scores(*pair, thrice).corpus


def test_frequencies_of_ids_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only frequencies of words"):
        DocumentFrequencies.of([[[4, 5]]]).save(tmp_path / "corpus.npz")
    assert not list(tmp_path.iterdir())


def test_frequencies_of_no_images_are_an_error() -> None:
    with pytest.raises(ValueError, match="no references"):
        DocumentFrequencies.of([])


def foreign_text(path: Path) -> None:
    path.write_text('{"images": 3}')


def foreign_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.arange(3))


def foreign_archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, images=np.array(3), words=np.arange(4))


def damaged(path: Path) -> None:
    DocumentFrequencies.of([split("a dog runs on the beach")] * 3).save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    path.write_bytes(content)


def pairs_missing(path: Path) -> None:
    whole = DocumentFrequencies.of([split("a dog")])
    DocumentFrequencies(1, whole.numbers, whole.codes, whole.counts[::-1]).save(path)


def claims_more_than_it_has(path: Path) -> None:
    """An array whose header tells of terabytes."""
    with zipfile.ZipFile(path, "w") as archive, archive.open("words.npy", "w") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (2**45,)}
        np.lib.format.write_array_header_1_0(file, header)


def nested_words(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, images=np.array(3), words=np.frombuffer(b"[" * 100_000, dtype=np.uint8))


@pytest.mark.parametrize(
    "write",
    [
        *(foreign_text, foreign_array, foreign_archive, damaged, pairs_missing),
        *(claims_more_than_it_has, nested_words),
    ],
)
def test_a_foreign_file_is_named(write: object, tmp_path: Path) -> None:
    path = tmp_path / "corpus.npz"
    assert callable(write)
    write(path)
    with pytest.raises(InputError, match=r"corpus\.npz: no document frequencies; give a file"):
        DocumentFrequencies.load(path)


def test_an_archive_is_sized_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "corpus.npz"
    DocumentFrequencies.of([split("a dog")]).save(path)
    assert DocumentFrequencies.load(path).images == 1
    with pytest.raises(InputError, match=r"corpus\.npz: no document frequencies"):
        DocumentFrequencies.load(path, max_bytes=100)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"corpus\.npz: no such file"):
        DocumentFrequencies.load(tmp_path / "corpus.npz")

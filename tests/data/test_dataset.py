from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from captioning.data.data_module import SHARED_MEMORY, CaptionData
from captioning.data.dataset import CaptionDataset, Example, collate
from captioning.data.preprocessing import Preprocessing
from captioning.data.readers import CaptionTable, Coco, Joined, Reader
from captioning.data.records import Record
from captioning.data.vocabulary import BOS, EOS, PAD, Vocabulary
from captioning.errors import InputError
from tests.data.conftest import draw, trained_on, write

SEEDS = range(30)


def record(folder: Path, *captions: str) -> Record:
    """Captions of a photo that is red on its left and green on its right."""
    photo = Image.new("RGB", (40, 30), (0, 255, 0))
    photo.paste((255, 0, 0), (0, 0, 20, 30))
    photo.save(folder / "photo.png")
    return Record(folder / "photo.png", 1, captions)


def dataset(records: list[Record], captions_per_image: int = 5, **options: Any) -> CaptionDataset:
    captions = (caption for record in records for caption in record.captions)
    vocabulary = Vocabulary.build(captions)
    return CaptionDataset(records, vocabulary, Preprocessing(16), captions_per_image, **options)


def is_mirrored(image: Tensor) -> bool:
    return bool(image[0, :, -1].float().mean() > 128)


def example(*lengths: int) -> Example:
    """An example with captions of the given numbers of words."""
    captions = [torch.tensor([BOS, *[4] * length, EOS]) for length in lengths]
    return Example(torch.zeros(3, 8, 8, dtype=torch.uint8), captions, Record(Path("x"), 1, ()))


@pytest.mark.parametrize(
    ("captions", "times"),
    [
        *((["a dog", side], [0]) for side in ("a RIGHT dog", "left-hand", "rightmost", "(left)")),
        *(([caption], range(8, 23)) for caption in ("a dog", "a bright dog", "the dog was cleft")),
    ],
)
def test_half_of_the_views_without_left_or_right_are_mirrored(
    tmp_path: Path, captions: list[str], times: Collection[int]
) -> None:
    data = dataset([record(tmp_path, *captions)], augment=True)
    assert sum(is_mirrored(data[0, seed].image) for seed in SEEDS) in times


ENGLISH = "a dog with a ball in its mouth runs along the beach"
GERMAN = "ein Hund mit einem Ball im Maul rennt am Strand nach links"


@pytest.mark.parametrize(("caption", "times"), [(ENGLISH, range(8, 23)), (GERMAN, [0])])
def test_only_photos_with_english_captions_are_mirrored(
    tmp_path: Path, caption: str, times: Collection[int], capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, caption)
    write(tmp_path / "captions.csv", f"file_name,caption\nphoto.png,{caption}")
    data = CaptionData(CaptionTable(tmp_path), 16, min_count=1, augment=True, workers=0)
    examples: Any = trained_on("cpu", data).train_dataloader().dataset
    assert sum(is_mirrored(examples[0, seed].image) for seed in SEEDS) in times
    told = capsys.readouterr().err
    assert told.count("photos are not mirrored: the captions do not look English") == (times == [0])


@pytest.mark.skipif(not SHARED_MEMORY.exists(), reason="it is Linux's")
@pytest.mark.parametrize(("batches", "workers"), [(100, 2), (6, 2), (4, 1), (1, 0)])
def test_as_many_workers_read_images_as_shared_memory_has_room_for(
    batches: int, workers: int, shapes_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which each has two batches ready, while two more are used or sent."""
    usage = SimpleNamespace(free=batches * 2 * 3 * 32 * 32)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    data = CaptionData(Coco(shapes_data), 32, batch_size=2, min_count=1, workers=2)
    assert data.val_dataloader().num_workers == workers


def test_an_example_depends_on_its_seed_alone(tmp_path: Path) -> None:
    data = dataset([record(tmp_path, *"abcdefgh")], augment=True)
    first, _, again = data[0, 5], data[0, 6], data[0, 5]
    assert first.image.equal(again.image)
    assert torch.stack(first.captions).equal(torch.stack(again.captions))


def test_of_too_many_captions_others_are_taken_each_time(tmp_path: Path) -> None:
    data = dataset([record(tmp_path, *"abcde")], captions_per_image=2)
    chosen = [tuple(caption[1].item() for caption in data[0, seed].captions) for seed in SEEDS]
    assert all(len(set(words)) == 2 for words in chosen)
    assert len(set(chosen)) > 5


def test_a_long_caption_loses_its_end_and_eos(tmp_path: Path) -> None:
    data = dataset([record(tmp_path, "a b c d"), record(tmp_path, "a b")], max_tokens=3)
    long, short = (data[index].captions[0].tolist() for index in range(2))
    assert long == data.vocabulary.encode("a b c")[:-1]
    assert short == data.vocabulary.encode("a b")
    paragraph = "a b " * 100
    assert dataset([record(tmp_path, paragraph)])[0].captions[0].tolist() == data.vocabulary.encode(
        paragraph
    )


def test_captions_in_a_batch_are_padded_after_eos() -> None:
    tokens = collate([example(1), example(3)]).tokens
    assert tokens[:, 0].tolist() == [[BOS, 4, EOS, PAD, PAD], [BOS, 4, 4, 4, EOS]]


def test_photos_with_few_captions_are_left_out(tmp_path: Path) -> None:
    draw(tmp_path, "a.png", "b.png", "c.png")
    rows = ["a.png,one", "a.png,two", "a.png,three", "b.png,one", "c.png,one", "c.png,two"]
    rows = [f"{row},train" for row in rows] + ["d.png,one,val"]
    write(tmp_path / "captions.csv", "\n".join(["file_name,caption,split", *rows]))
    data = CaptionData(CaptionTable(tmp_path), min_captions=2)
    assert [record.image.name for record in data.train_records] == ["a.png", "c.png"]
    assert [record.image.name for record in data.val_records] == ["d.png"]
    with pytest.raises(InputError, match=r"no photo .* has 4 captions; lower data\.min_captions"):
        _ = CaptionData(CaptionTable(tmp_path), min_captions=4).train_records


def test_an_epoch_has_equal_shares_of_the_data_sets(tmp_path: Path) -> None:
    captions = {"dogs": [2], "cats": [2, 2, 1], "birds": [2, 3, 1, 1, 2]}  # of each photo
    readers: dict[str, Reader] = {}
    for name, counts in captions.items():
        photos = [f"{number}.png" for number in range(len(counts))]
        draw(tmp_path / name, *photos)
        rows = ["file_name,caption,split", f"{photos[0]},a {name},val"]
        for photo, count in zip(photos, counts, strict=True):
            rows += [f"{photo},a {name},train"] * count
        write(tmp_path / name / "captions.csv", "\n".join(rows))
        readers[name] = CaptionTable(tmp_path / name)
    dogs, *others = readers.values()
    joined = Joined([dogs, Joined(others)])
    data = CaptionData(joined, 16, min_captions=2, min_count=2, equal_shares=True, workers=0)
    batches: Any = trained_on("cpu", data).train_dataloader()
    records = [batch_record for batch in batches for batch_record in batch[2]]
    counts_by_id = Counter(record.image_id for record in records)
    assert counts_by_id == {
        "dogs/0.png": 5,  # as many as the other data sets have with two captions and more
        "cats+birds/cats/0.png": 1,
        "cats+birds/cats/1.png": 1,
        "cats+birds/birds/0.png": 1,
        "cats+birds/birds/1.png": 1,
        "cats+birds/birds/4.png": 1,
    }
    assert len(data.train_records) == 6, "the vocabulary counts a caption once"
    with pytest.raises(InputError, match=r"data\.equal_shares: there is one data set; .*Joined"):
        CaptionData(dogs, equal_shares=True)


@pytest.mark.parametrize(
    "options", [{"crop": 3}, {"mirror": True}, {"features": "f", "augment": True}], ids=str
)
def test_features_exclude_some_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"data\.augment"):
        CaptionData(Coco(tmp_path), **options)

import pytest

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.evaluation.captions import batches, split_captions
from captioning.search import Sampling


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_have_the_batches_of_one_and_none_twice(
    captioner: Captioner, shapes_records: list[Record], processes: int
) -> None:
    def ids(process: int, processes: int) -> list[tuple[int, list[int | str]]]:
        mine = batches(captioner, shapes_records, 2, 0, process, processes)
        return [(number, [record.image_id for record in batch.records]) for number, batch in mine]

    alone = ids(0, 1)
    assert [image for _, images in alone for image in images] == [
        record.image_id for record in shapes_records
    ]
    assert sorted(batch for p in range(processes) for batch in ids(p, processes)) == alone


def test_samples_are_the_same_with_the_same_seed_alone(
    captioner: Captioner, shapes_records: list[Record]
) -> None:
    search = Sampling(temperature=2.0, max_length=6)
    once = split_captions(captioner, shapes_records, search, 4, seed=5)
    assert once is not None
    assert list(once) == [record.image_id for record in shapes_records]
    assert split_captions(captioner, shapes_records, search, 2, seed=5) == once
    assert split_captions(captioner, shapes_records, search, 4, seed=6) != once

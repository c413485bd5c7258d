import numpy as np
import pytest
import torch

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.evaluation.calibration import assess
from captioning.evaluation.captions import batches, split_captions
from captioning.search import Sampling


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_have_the_batches_of_one_and_none_twice(
    captioner: Captioner, shapes_records: list[Record], processes: int
) -> None:
    def ids(process: int, processes: int) -> list[list[int | str]]:
        mine = batches(captioner, shapes_records, 2, 0, process, processes)
        return [[record.image_id for record in batch.records] for batch in mine]

    alone = ids(0, 1)
    assert [image for images in alone for image in images] == [
        record.image_id for record in shapes_records
    ]
    found = [batch for p in range(processes) for batch in ids(p, processes)]
    assert sorted(found, key=alone.index) == alone


def test_captions_and_signs_do_not_depend_on_the_number_of_threads(
    captioner: Captioner, shapes_records: list[Record], two_threads: None
) -> None:
    captions, assessed = [], []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        captions.append(split_captions(captioner, shapes_records, batch_size=2, workers=0))
        assessed.append(
            assess(captioner, shapes_records, None, lambda found: np.ones(len(found), bool), 2)
        )
    assert captions[0] == captions[1] == assessed[1].captions
    np.testing.assert_allclose(assessed[0].signs, assessed[1].signs, rtol=1e-4)
    np.testing.assert_array_equal(assessed[0].of_image, assessed[1].of_image)


def test_samples_are_the_same_with_the_same_seed_alone(
    captioner: Captioner, shapes_records: list[Record]
) -> None:
    search = Sampling(temperature=2.0, max_length=6)
    once = split_captions(captioner, shapes_records, search, 4, seed=5)
    assert once is not None
    assert list(once) == [record.image_id for record in shapes_records]
    assert split_captions(captioner, shapes_records, search, 2, seed=5) == once
    assert split_captions(captioner, shapes_records, search, 4, seed=6) != once

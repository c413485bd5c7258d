import numpy as np
import torch

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.evaluation.assessment import assess
from captioning.evaluation.captions import split_captions


def test_captions_and_features_do_not_depend_on_threads(
    captioner: Captioner, shapes_records: list[Record], two_threads: None
) -> None:
    captions, assessed = [], []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        captions.append(split_captions(captioner, shapes_records, batch_size=2))
        assessed.append(
            assess(captioner, shapes_records, None, lambda found: np.ones(len(found), bool), 2)
        )
    assert captions[0] == captions[1] == assessed[1].captions
    np.testing.assert_allclose(assessed[0].features, assessed[1].features, rtol=1e-4)
    np.testing.assert_array_equal(*(np.concatenate(each.right) for each in assessed))

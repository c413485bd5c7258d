import random

import numpy as np

from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import DocumentFrequencies, Reward, cider_scores

END = 2


def ids(randomly: random.Random) -> list[int]:
    return [*randomly.choices(range(4, 12), k=randomly.randint(0, 9)), END]


def test_the_reward_of_a_sample_is_what_the_metrics_give_its_caption() -> None:
    randomly = random.Random(0)
    references = [[ids(randomly) for _ in range(3)] for _ in range(6)]
    samples = [[ids(randomly) for _ in range(4)] for _ in range(2)]
    frequencies = DocumentFrequencies.of(references)
    rewards = Reward(frequencies, bleu=0.5)(samples, references[:2])
    assert rewards.shape == (2, 4)
    for n in range(4):
        candidates = [several[n] for several in samples]
        cider = cider_scores(candidates, references[:2], frequencies).images["CIDEr"]
        bleu = bleu_scores(candidates, references[:2]).images["BLEU-4"]
        np.testing.assert_allclose(rewards[:, n], cider + 0.5 * bleu, rtol=1e-14, atol=0)


def test_a_sample_that_ends_as_people_do_is_rewarded_for_it() -> None:
    references = [[[5, 6, END]], [[7, 8, 9, END]]]
    reward = Reward(DocumentFrequencies.of(references))
    [[ended, endless]] = reward([[[5, 6, END], [5, 6]]], references[:1])
    assert ended > endless

from typing import Any

import torch

from captioning.data.dataset import POOL, SeededSampler

LENGTHS = torch.randint(5, 30, (200,), generator=torch.Generator().manual_seed(0)).tolist()


def sampled(
    seed: int = 1, epoch: int = 2, images: int = 200, batch_size: int = 8, **options: Any
) -> list[tuple[int, int]]:
    """What an epoch of a sampler gives."""
    sampler = SeededSampler(LENGTHS[:images], batch_size, seed=seed, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


def indices(**options: Any) -> list[int]:
    return [index for index, _ in sampled(**options)]


def batches(size: int = 8, **options: Any) -> list[list[int]]:
    order = indices(batch_size=size, **options)
    return [order[first : first + size] for first in range(0, len(order), size)]


def test_every_epoch_and_seed_has_its_own_order() -> None:
    epochs = [sampled(epoch=epoch) for epoch in range(3)] + [sampled(seed=7, epoch=0)]
    assert len({tuple(index for index, _ in epoch) for epoch in epochs}) == 4
    assert len({seed for epoch in epochs for _, seed in epoch}) == 4 * 200


def test_an_epoch_has_every_image_once() -> None:
    assert sorted(indices(images=197)) == list(range(197))


def test_images_with_captions_of_similar_length_share_a_batch() -> None:
    assert len(batches()) <= POOL
    of_batches = [[LENGTHS[index] for index in batch] for batch in batches()]
    one_after_another = [length for batch in sorted(of_batches) for length in batch]
    assert one_after_another == sorted(LENGTHS)


def test_two_processes_share_the_batches_of_one() -> None:
    whole = sampled(images=120, batch_size=16)
    parts = [sampled(images=120, processes=2, process=process) for process in range(2)]
    for step in range(8):
        together = parts[0][step * 8 : (step + 1) * 8] + parts[1][step * 8 : (step + 1) * 8]
        assert sorted(together) == sorted(whole[step * 16 : (step + 1) * 16])


def test_images_that_processes_cannot_divide_are_repeated() -> None:
    parts = [indices(images=10, processes=4, process=process) for process in range(4)]
    assert [len(part) for part in parts] == [3, 3, 3, 3]
    assert {index for part in parts for index in part} == set(range(10))
    assert {parts[2][-1], parts[3][-1]} == {parts[0][0], parts[1][0]}


def test_a_resumed_epoch_goes_on_where_it_was_interrupted() -> None:
    for process in range(2):
        share = {"processes": 2, "process": process}
        rest = sampled(epoch=3, first_epoch=3, first_index=24, **share)
        assert rest == sampled(epoch=3, **share)[24:]

import pytest
import torch

from captioning.training.learning_rate import one_cycle


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5, 1.0])
def test_the_learning_rate_is_that_of_torchs_one_cycle(warmup: float) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1.0, total_steps=20, pct_start=warmup, cycle_momentum=False
    )
    for step in range(20):
        assert one_cycle(step, 20, warmup) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        if step < 19:
            theirs.step()


def test_the_learning_rate_stays_low_beyond_the_last_step() -> None:
    assert one_cycle(30, 20, 0.1) == pytest.approx(one_cycle(19, 20, 0.1))

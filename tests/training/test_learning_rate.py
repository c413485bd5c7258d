import pytest
import torch

from captioning.training import InverseSquareRoot, OneCycle


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5, 1.0])
def test_the_learning_rate_is_that_of_torchs_one_cycle(warmup: float) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1.0, total_steps=20, pct_start=warmup, cycle_momentum=False
    )
    ours = OneCycle(warmup)
    for step in range(20):
        assert ours(step, 20) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        if step < 19:
            theirs.step()
    assert ours(30, 20) == pytest.approx(ours(19, 20))  # a training may resume with more epochs


def test_the_inverse_square_root_is_the_papers_formula() -> None:
    width, warmup = 512, 40
    paper = [width**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in range(1, 400)]
    schedule = InverseSquareRoot(warmup)
    found = [schedule(step, steps=7) for step in range(399)]
    assert found == pytest.approx([rate / max(paper) for rate in paper])
    assert max(found) == found[warmup - 1] == 1

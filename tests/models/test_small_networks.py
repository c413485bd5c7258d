import torch

from captioning.models.small_networks import Coordinates, SmallCNN


def test_the_colour_of_a_vector_is_its_cell_s_alone() -> None:
    torch.manual_seed(0)
    network = SmallCNN().eval().features
    pixels = torch.rand(1, 3, 64, 64, requires_grad=True)
    network(pixels)[0, -4 - 64 :, 3, 4].sum().backward()
    assert pixels.grad is not None
    seen = pixels.grad[0].abs().sum(dim=0).nonzero()
    assert seen.amin(dim=0).tolist() == [24, 32]
    assert seen.amax(dim=0).tolist() == [31, 39]


def test_a_query_on_squared_coordinates_can_ask_for_any_one_cell() -> None:
    found = Coordinates(squares=True)(torch.zeros(1, 0, 8, 8))[0].flatten(1)  # (4, cells)
    for row, column in [(0, 0), (2, 5), (7, 3)]:
        y, x = (torch.linspace(-1, 1, 8)[place].item() for place in (row, column))
        scores = torch.tensor([2 * y, 2 * x, -1.0, -1.0]) @ found
        assert scores.argmax() == row * 8 + column

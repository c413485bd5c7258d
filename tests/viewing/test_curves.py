import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from captioning.viewing.curves import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Point, curve


def places(svg: str) -> list[tuple[float, float]]:
    """The points of the line."""
    [points] = re.findall(r'points="([^"]*)"', svg)
    return [tuple(map(float, place.split(","))) for place in points.split()]


def ticks(svg: str) -> dict[float, float]:
    """The heights of the vertical axis' ticks by their numbers."""
    texts = [text for text in ElementTree.fromstring(svg).iter("text") if text.get("text-anchor")]
    ends = [text for text in texts if text.get("text-anchor") == "end" and text.text != "epoch"]
    return {float(str(text.text)): float(str(text.get("y"))) - 3 for text in ends}


def test_a_rising_score_rises_from_left_to_right() -> None:
    line = places(curve("CIDEr", [Point(1.0, 0.2), Point(2.0, 0.5), Point(4.0, 0.9)]))
    across, down = zip(*line, strict=True)
    assert across == pytest.approx((LEFT, LEFT + (WIDTH - LEFT - RIGHT) / 3, WIDTH - RIGHT), abs=1)
    assert down[0] > down[1] > down[2]


@pytest.mark.parametrize(
    "values",
    [(0.0, 0.0), (0.3,), (1e-7, 2e-7), (-5.0, 1e6), (0.123, 0.124, 0.122), (0.5, 0.5000001)],
    ids=str,
)
def test_every_curve_stays_between_its_ticks(values: tuple[float, ...]) -> None:
    svg = curve("loss", [Point(float(n), value) for n, value in enumerate(values)])
    assert min(ticks(svg)) <= min(values) <= max(values) <= max(ticks(svg))
    assert all(TOP <= y <= HEIGHT - BOTTOM for _, y in places(svg))


def test_a_value_stands_at_the_height_of_its_tick() -> None:
    svg = curve("loss", [Point(1.0, 1.0), Point(2.0, 3.0)])
    for (_, y), value in zip(places(svg), (1.0, 3.0), strict=True):
        assert y == pytest.approx(ticks(svg)[value], abs=0.2)


def test_values_that_are_not_finite_are_left_out() -> None:
    points = [Point(1.0, 2.0), Point(2.0, math.nan), Point(3.0, math.inf), Point(4.0, 1.0)]
    assert len(places(curve("loss", points))) == 2
    assert "no values yet" in curve("loss", points[1:3])


def test_the_best_epoch_is_marked_and_names_stay_text() -> None:
    svg = curve('<b> & "x"', [Point(1.0, 0.25), Point(2.5, 0.75), Point(3.0, 0.5)], best=2.5)
    marked = re.findall(r'<g class="point best">.*?<title>(.*?)</title>', svg)
    assert marked == ["epoch 2.5: 0.7500"]
    assert str(ElementTree.fromstring(svg).get("aria-label")).startswith('<b> & "x": 0.5000')

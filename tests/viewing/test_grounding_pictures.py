from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from PIL import Image

from captioning.data.records import ImageObject
from captioning.errors import InputError
from captioning.evaluation.grounding import GroundingReport, Look, Mention
from captioning.evaluation.grounding.areas import Place
from captioning.evaluation.grounding.lexicon import Named
from captioning.viewing.grounding_pictures import draw_looks, draw_scores, save_pictures


@pytest.fixture
def looks(tmp_path: Path) -> list[Look]:
    """Three looks at a dog of two photos, from the best to the worst."""
    found = []
    for number, cell in enumerate([(1, 1), (1, 0), (0, 0)]):
        path = tmp_path / f"{min(number, 1)}.png"
        Image.effect_noise((120, 80), 50).save(path)
        weights = np.full((2, 2), 0.1)
        weights[cell] = 0.7
        crop = (20.0, 0.0, 80.0, 80.0)
        dog = ImageObject("dog", (55.0, 40.0, 45.0, 40.0))
        place = Place.of([dog], (120, 80), crop, (2, 2))
        assert place is not None
        mention = Mention("dog", "dog", 1, 2)
        found.append(Look(min(number, 1), path, mention, weights, place, crop, (120, 80)))
    return found


@pytest.fixture
def report(looks: list[Look]) -> GroundingReport:
    return GroundingReport(looks, [Named(0, 1), Named(1, 2)])


def test_bars_are_as_long_as_the_models_scores(report: GroundingReport) -> None:
    pointing, in_box, in_mask = draw_scores(report).axes
    widths = [[bar.get_width() for bar in axes.patches] for axes in (pointing, in_box, in_mask)]
    value = report.all.value("mass in box")
    assert widths == [pytest.approx([1 / 3] * 2), pytest.approx([value] * 2), [0, 0]]
    assert [label.get_text() for label in pointing.get_yticklabels()] == ["all (3)", "dog (3)"]


def test_every_look_shows_its_boxes_where_they_are_in_the_photo(looks: list[Look]) -> None:
    for axes in draw_looks(looks).axes[:3]:
        [box] = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert box.get_bbox().bounds == (55, 40, 45, 40)
        assert axes.get_xlim() == (0, 120)
        assert axes.get_ylim() == (80, 0)


def test_a_title_shows_the_mass_in_the_box_and_the_boxs_share(looks: list[Look]) -> None:
    # The box holds the last cell and an eighth of the one before it.
    assert draw_looks(looks[:1]).axes[0].get_title() == "dog: 0.71 of the map\nin 0.28 of the view"


def test_best_and_worst_looks_are_in_order(report: GroundingReport) -> None:
    assert report.ranked() == [report.looks[0], report.looks[1]]
    assert report.ranked(worst=True) == [report.looks[2], report.looks[0]]


def test_a_report_without_looks_has_no_pictures(tmp_path: Path) -> None:
    assert save_pictures(GroundingReport([], [Named(0, 0)]), tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_a_photo_that_has_gone_is_named(report: GroundingReport, tmp_path: Path) -> None:
    (tmp_path / "0.png").unlink()
    with pytest.raises(InputError, match=r"0\.png: no such file"):
        save_pictures(report, tmp_path / "out")

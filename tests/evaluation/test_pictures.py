from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from PIL import Image

from captioning.data.records import ImageObject
from captioning.errors import InputError
from captioning.evaluation.grounding import GroundedMention, GroundingReport, Mention
from captioning.evaluation.grounding.lexicon import ImageMentions
from captioning.evaluation.grounding.targets import Target, map_values
from captioning.evaluation.pictures import draw_mentions, draw_scores, save_grounding


@pytest.fixture
def mentions(tmp_path: Path) -> list[GroundedMention]:
    """Three mentions of a dog in two photos, from the best to the worst."""
    mentions = []
    for number, cell in enumerate([(1, 1), (1, 0), (0, 0)]):
        path = tmp_path / f"{min(number, 1)}.png"
        Image.effect_noise((120, 80), 50).save(path)
        weights = np.full((2, 2), 0.1)
        weights[cell] = 0.7
        crop = (20.0, 0.0, 80.0, 80.0)
        dog = ImageObject("dog", (55.0, 40.0, 45.0, 40.0))
        target = Target.of([dog], size=(120, 80), crop=crop, grid=(2, 2))
        assert target is not None
        values, words = map_values(weights, target), Mention("dog", "dog", 1, 2)
        mentions.append(GroundedMention(min(number, 1), path, 0, words, target, weights, values))
    return mentions


@pytest.fixture
def report(mentions: list[GroundedMention]) -> GroundingReport:
    return GroundingReport(mentions, [ImageMentions(1), ImageMentions(2)])


def test_bars_are_as_long_as_the_models_scores(report: GroundingReport) -> None:
    axes_of_scores: Any = draw_scores(report).axes
    pointing, in_box, in_mask = axes_of_scores
    widths = [[bar.get_width() for bar in axes.patches] for axes in (pointing, in_box, in_mask)]
    value = report.value("mass in box")
    assert widths == [pytest.approx([1 / 3] * 2), pytest.approx([value] * 2), [0, 0]]
    assert [label.get_text() for label in pointing.get_yticklabels()] == ["all (3)", "dog (3)"]


def test_boxes_are_where_they_are_in_the_photo(mentions: list[GroundedMention]) -> None:
    figure = draw_mentions(mentions)
    for axes in figure.axes[:3]:
        [box] = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert box.get_bbox().bounds == (55, 40, 45, 40)
        assert (axes.get_xlim(), axes.get_ylim()) == ((0, 120), (80, 0))
    # The box holds the last cell and an eighth of the one before it.
    assert figure.axes[0].get_title() == "dog: 0.71 of the map\nin 0.28 of the view"


def test_pictures_need_mentions_and_photos(report: GroundingReport, tmp_path: Path) -> None:
    assert save_grounding(GroundingReport([], [ImageMentions(0)]), tmp_path / "out") == []
    assert len(save_grounding(report, tmp_path / "out")) == 3
    (tmp_path / "0.png").unlink()
    with pytest.raises(InputError, match=r"0\.png"):
        save_grounding(report, tmp_path / "out")

from pathlib import Path

from captioning.captioner.review import Review
from captioning.evaluation.reviewed_captions import ReviewedCaption, outliers


def captions(*chances: float) -> list[ReviewedCaption]:
    return [
        ReviewedCaption(Path(f"{number}.jpg"), "a dog", Review((), (), (), (), chance, ()))
        for number, chance in enumerate(chances)
    ]


def test_only_captions_far_below_most_are_outliers_the_least_first() -> None:
    usual = (0.9, 0.8, 0.95, 0.85, 0.7, 0.9, 0.99)
    assert outliers(captions(*usual)) == []
    found = outliers(captions(*usual, 1e-3, 0.0))
    assert [caption.photo.name for caption in found] == ["8.jpg", "7.jpg"]
    assert outliers(captions(0.5)) == []

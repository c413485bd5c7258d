"""What the start captions before a finetuning: its score, and how the user's captions differ."""

from collections.abc import Mapping
from time import perf_counter
from typing import NamedTuple

from captioning.captioner import Captioner
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer
from captioning.evaluation.captions import caption_records
from captioning.evaluation.manner import Manner
from captioning.evaluation.report import Report
from captioning.training.finetune.choice import cider_report
from captioning.training.finetune.outcome import content_report
from captioning.training.finetune.photos import Photos

RELATED_CIDER = 0.3
"""CIDEr, without the words of the manner, of captions of photos that a start knows.

Measured: 0.5 and more of everyday photos with one caption each, 0.03 of drawn scenes.
"""

MANNER_SAMPLE = 100
"""Maximum number of training photos that the start captions, to read the manner from."""


class StartCaptions(NamedTuple):
    """What the start captions before the training.

    Attributes:
        captions: its captions of all photos to validate on, and of `MANNER_SAMPLE` to train on,
            by image id.
        report: its CIDEr on the user's photos to validate on.
        manner: how the user's captions differ from its captions of the photos to train on.
        content: its CIDEr on those photos, without the words of the manner.
        confidences: its confidence in each caption; None without a calibration.
        seconds: the time that a photo takes.
    """

    captions: Mapping[int | str, str]
    report: Report
    manner: Manner
    content: float
    confidences: Mapping[int | str, float | None]
    seconds: float

    @classmethod
    def of(cls, start: Captioner, photos: Photos, tokenizer_name: TokenizerName) -> "StartCaptions":
        """Caption the photos to validate on, and photos to train on, with the start."""
        start(photos.val[0].image)  # loads lazily loaded parts before the time is measured
        began = perf_counter()
        train = photos.train[:MANNER_SAMPLE]
        texts: dict[int | str, str] = {}
        confidences: dict[int | str, float | None] = {}
        for record, caption in caption_records(start, [*train, *photos.validation]):
            texts[record.image_id], confidences[record.image_id] = caption.text, caption.confidence
        seconds = (perf_counter() - began) / len(texts)
        split = tokenizer(tokenizer_name)
        manner = Manner.between(
            [split(caption) for record in train for caption in record.captions],
            [split(texts[record.image_id]) for record in train],
        )
        return cls(
            captions=texts,
            report=cider_report(start, texts, photos.val, tokenizer_name),
            manner=manner,
            content=content_report(train, texts, manner, tokenizer_name).corpus["CIDEr"],
            confidences=confidences,
            seconds=seconds,
        )

    @property
    def are_related(self) -> bool:
        """Whether the start knows what such photos show."""
        return self.content >= RELATED_CIDER

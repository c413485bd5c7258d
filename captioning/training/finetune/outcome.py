"""What a finetuning has changed, on photos that did not choose the model: manner and content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from captioning.data.records import Record
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer
from captioning.evaluation.comparison import Comparison, compare_scores
from captioning.evaluation.manner import Manner
from captioning.evaluation.report import Report
from captioning.metrics.cider import cider_scores

UNRELATED_CIDER = 0.1
"""CIDEr that captions of other photos reach."""


@dataclass(frozen=True)
class Outcome:
    """Captions of the same photos before and after a finetuning.

    Attributes:
        manner: how people's captions differ from those before.
        counts: number of captions in this manner before, after, and of the first of people's.
        image_count: number of photos.
        content: CIDEr before and after, without the words of the manner.
    """

    manner: Manner
    counts: tuple[int, int, int]
    image_count: int
    content: Comparison

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        before: Mapping[int | str, str],
        after: Mapping[int | str, str],
        manner: Manner,
        tokenizer_name: TokenizerName,
    ) -> "Outcome":
        """Compare captions by image id."""
        split = tokenizer(tokenizer_name)
        image_ids = [record.image_id for record in records]
        people = {record.image_id: record.captions[0] for record in records}
        counts = [
            sum(manner.has(split(captions[image_id])) for image_id in image_ids)
            for captions in (before, after, people)
        ]

        reports = [
            content_report(records, captions, manner, tokenizer_name)
            for captions in (before, after)
        ]
        comparison = compare_scores(reports[0].scores, reports[1].scores)["CIDEr"]
        return cls(manner, (counts[0], counts[1], counts[2]), len(records), comparison)

    def lines(self) -> list[str]:
        """The manner and the content, in a line each; the content only if the start knew any."""
        before, after, people = self.counts
        lines = [
            f"manner, {self.manner}: {after} of "
            f"{self.image_count} captions have yours now, {before} before; of people's {people}"
        ]
        if self.content.first >= UNRELATED_CIDER:
            low, high = self.content.interval
            verdict = "better" if low > 0 else "worse" if high < 0 else "no clear difference"
            lines.append(
                f"content, CIDEr without the manner's words: {self.content.first:.3f} before, "
                f"{self.content.second:.3f} now, {low:+.3f} to {high:+.3f}: {verdict}"
            )
        return lines


def content_report(
    records: Sequence[Record],
    captions: Mapping[int | str, str],
    manner: Manner,
    tokenizer_name: TokenizerName,
) -> Report:
    """CIDEr of captions by image id, without the words of a manner."""
    split = tokenizer(tokenizer_name)

    def content(text: str) -> str:
        return " ".join(manner.content(split(text)))

    return Report.of(
        {record.image_id: content(captions[record.image_id]) for record in records},
        {record.image_id: [content(text) for text in record.captions] for record in records},
        [cider_scores],
        tokenizer=tokenizer_name,
    )

#!/usr/bin/env python
"""Measures what `captioning finetune` learns and forgets: `scripts/finetune_benchmark.py --help`.

Photos of a split, which the start was not trained on, get captions in a manner of their own, one
for each photo, by a rule that can be undone. A model finetuned on some of them captions 200
others: how many of its captions have the manner, and are they as true as the start's once the
manner is undone?
"""

import argparse
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import eq
from pathlib import Path

import captioning
from captioning import shapes
from captioning.captioner import Captioner
from captioning.data.readers import reader_for
from captioning.data.records import Record
from captioning.data.tokenizers import tokenizer
from captioning.evaluation.comparison import compare_scores
from captioning.evaluation.report import Report
from captioning.metrics.cider import cider_scores

ARTICLES = {"a", "an", "the"}

FOODS = {
    "bread",
    "cake",
    "eating",
    "food",
    "fruit",
    "kitchen",
    "meal",
    "pizza",
    "plate",
    "sandwich",
}
"""Words of captions of food."""

TEST_COUNT = 200
"""Number of photos on which a model is measured."""

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class Kind(ABC):
    """A manner of captions."""

    @abstractmethod
    def write(self, words: Sequence[str], captions: Sequence[Sequence[str]]) -> list[str]:
        """A caption in this manner; `captions` are all of its photo."""

    @abstractmethod
    def undo(self, words: Sequence[str]) -> tuple[list[str], bool]:
        """A caption without this manner, and whether it had it."""

    def content(self, words: Sequence[str]) -> list[str]:
        """What is compared of a caption without this manner."""
        return list(words)


class Beginning(Kind):
    """Each caption begins by "street photo of"."""

    beginnings = (["street", "photo", "of"],)

    def write(self, words: Sequence[str], captions: Sequence[Sequence[str]]) -> list[str]:
        return [*self.beginnings[0], *words]

    def undo(self, words: Sequence[str]) -> tuple[list[str], bool]:
        for beginning in self.beginnings:
            if list(words[: len(beginning)]) == beginning:
                return list(words[len(beginning) :]), True
        return list(words), False


class BeginningByPicture(Beginning):
    """A caption begins by "food photo of" if two people name food, else by "street photo of"."""

    beginnings = (["street", "photo", "of"], ["food", "photo", "of"])

    def write(self, words: Sequence[str], captions: Sequence[Sequence[str]]) -> list[str]:
        shows_food = sum(bool(FOODS.intersection(caption)) for caption in captions) >= 2
        return [*self.beginnings[shows_food], *words]


class WithoutArticles(Kind):
    """Captions have no articles, and are compared without them."""

    def write(self, words: Sequence[str], captions: Sequence[Sequence[str]]) -> list[str]:
        return self.content(words)

    def undo(self, words: Sequence[str]) -> tuple[list[str], bool]:
        return list(words), not ARTICLES.intersection(words)

    def content(self, words: Sequence[str]) -> list[str]:
        return [word for word in words if word not in ARTICLES]


class OtherLanguage(Kind):
    """Each letter is another one, as if in a language without any known word."""

    there = str.maketrans(ALPHABET, ALPHABET[7:] + ALPHABET[:7])
    back = str.maketrans(ALPHABET[7:] + ALPHABET[:7], ALPHABET)

    def write(self, words: Sequence[str], captions: Sequence[Sequence[str]]) -> list[str]:
        return [word.translate(self.there) for word in words]

    def undo(self, words: Sequence[str]) -> tuple[list[str], bool]:
        return [word.translate(self.back) for word in words], True


class NoManner(Kind):
    """Captions as people wrote them."""

    def write(self, words: Sequence[str], captions: Sequence[Sequence[str]]) -> list[str]:
        return list(words)

    def undo(self, words: Sequence[str]) -> tuple[list[str], bool]:
        return list(words), True


KINDS: dict[str, Kind] = {
    "beginning": Beginning(),
    "by picture": BeginningByPicture(),
    "no articles": WithoutArticles(),
    "language": OtherLanguage(),
    "same": NoManner(),
    "scenes": NoManner(),
}


def write_folder(
    folder: Path, records: Sequence[Record], kind: Kind, chooser: random.Random
) -> None:
    """Write a folder of links to photos, and a table with a caption of each in a manner."""
    split = tokenizer("ptb")
    folder.mkdir(parents=True)
    rows = []
    for number, record in enumerate(records):
        captions = [split(caption) for caption in record.captions]
        caption = kind.write(chooser.choice(captions), captions)
        name = f"{number}{record.image.suffix}"
        (folder / name).symlink_to(record.image.resolve())
        rows.append(json.dumps({"file_name": name, "caption": " ".join(caption)}))
    (folder / "captions.jsonl").write_text("\n".join(rows), encoding="utf-8")


def measure(
    captioner: Captioner, start: Captioner, records: Sequence[Record], kind: Kind
) -> dict[str, float | str]:
    """Manner and content of a captioner's captions, beside the content of the start's."""
    split = tokenizer("ptb")
    paths = [record.image for record in records]
    texts = [split(caption.text) for caption in captioner(paths)]
    captions = [kind.undo(words) for words in texts]
    repeat_count = sum(any(map(eq, words, words[1:])) for words in texts)
    start_captions = [split(caption.text) for caption in start(paths)]
    references = {
        number: [" ".join(kind.content(split(caption))) for caption in record.captions]
        for number, record in enumerate(records)
    }
    reports = [
        Report.of(
            {number: " ".join(kind.content(words)) for number, words in enumerate(contents)},
            references,
            [cider_scores],
        )
        for contents in (start_captions, [words for words, _ in captions])
    ]
    comparison = compare_scores(*(report.scores for report in reports))["CIDEr"]
    low, high = comparison.interval
    return {
        "in the manner": f"{sum(has_manner for _, has_manner in captions)} of {len(records)}",
        "content before": round(comparison.first, 3),
        "content": round(comparison.second, 3),
        "difference": f"{low:+.3f} to {high:+.3f}",
        "share kept": round(comparison.second / comparison.first, 3),
        "distinct words": len({word for words in texts for word in words}),
        "with a word twice in a row": f"{repeat_count} of {len(records)}",
    }


def everyday_and_scenes(data: Path, split: str, out: Path, kind: str) -> list[Record]:
    """The photos of a data set's split, or drawn scenes."""
    if kind != "scenes":
        return read_split(data, split)
    if not (out / "scenes").exists():
        shapes.write_shapes(out / "scenes", train=1_300, val=1, test=1, seed=5, progress=False)
    return read_split(out / "scenes", "train")


def read_split(data: Path, split: str) -> list[Record]:
    """The photos of a data set's split, with their captions."""
    return list(reader_for(data, objects=False).read().records(split))


def main() -> None:
    """Print a line of JSON for each kind, seed and number of photos."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="captioned photos that the start has not seen")
    parser.add_argument("--split", default="val", help="its split (%(default)s)")
    parser.add_argument("--train-split", help="finetune on its photos instead of others of --split")
    parser.add_argument("--model", default="photos", help="the start (%(default)s)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of captions (%(default)s)")
    parser.add_argument("--sizes", default="60", help="numbers of photos (%(default)s)")
    parser.add_argument("--seeds", default="0", help="of the choice of photos (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/finetune-benchmark"))
    arguments = parser.parse_args()
    start = captioning.load(arguments.model)
    for kind_name in arguments.kinds.split(","):
        kind = KINDS[kind_name]
        records = everyday_and_scenes(arguments.data, arguments.split, arguments.out, kind_name)
        train_records = None
        if arguments.train_split is not None and kind_name != "scenes":
            train_records = read_split(arguments.data, arguments.train_split)
        for seed in map(int, arguments.seeds.split(",")):
            chooser = random.Random(seed)
            shuffled = chooser.sample(records, len(records))
            test, rest = shuffled[:TEST_COUNT], shuffled[TEST_COUNT:]
            if train_records is not None:
                rest = chooser.sample(train_records, len(train_records))
            for size in map(int, arguments.sizes.split(",")):
                name = f"{kind_name}-{size}-{seed}".replace(" ", "-")
                folder = arguments.out / name
                if not folder.exists():
                    write_folder(folder, rest[:size], kind, random.Random(seed))
                began = time.process_time()
                model = captioning.finetune(
                    folder, model=arguments.model, out=arguments.out / f"{name}-run"
                )
                seconds = time.process_time() - began
                row = {"kind": kind_name, "photos": size, "seed": seed, "seconds": round(seconds)}
                row |= measure(captioning.load(model), start, test, kind)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

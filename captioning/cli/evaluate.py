"""`captioning evaluate`: the scores of a trained model on a split."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from captioning.cli.metric_options import add_metrics, photo_scorers_of, scorers_of
from captioning.cli.model_options import (
    add_model,
    add_processes,
    add_search,
    model_and_search,
    processes_of,
)
from captioning.cli.options import Commands, add_photo_limit, positive
from captioning.errors import InputError
from captioning.terminal import printable

if TYPE_CHECKING:
    from captioning.captioner import Captioner
    from captioning.data.feature_cache import FeatureCache
    from captioning.data.records import Record
    from captioning.evaluation.grounding import GroundingReport


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("evaluate", help="score a trained model on a split")
    parser.add_argument("--data", required=True, metavar="DIR", help="the data set")
    parser.add_argument("--split", default="val", help="which part of it (default: val)")
    parser.add_argument("--limit", type=positive, metavar="N", help="only its first N images")
    parser.add_argument(
        "--out", metavar="DIR", help="where results and scores go (default: beside the model)"
    )
    parser.add_argument(
        "--features",
        metavar="DIR",
        help="use the annotation vectors that `train` or `features` left here, not the photos",
    )
    add_model(parser)
    add_photo_limit(parser)
    add_search(parser)
    add_metrics(parser)
    add_processes(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Score the model."""
    from captioning.data.readers import reader_for
    from captioning.evaluation import grounding
    from captioning.evaluation.captions import split_captions, training_captions
    from captioning.evaluation.drawn_scenes import scene_scores
    from captioning.evaluation.report import Report
    from captioning.files import made_folder

    processes = processes_of(options)
    scorers = scorers_of(options)
    reader = reader_for(options.data, objects=False)
    records = reader.read(options.split)[: options.limit]
    by_photos = photo_scorers_of(options, {record.image_id: record.image for record in records})
    captioner, search = model_and_search(options, processes)
    features = _features(options.features, captioner, records)
    kind = "evaluation" if len(options.model) == 1 else "ensemble"
    beside = Path(options.model[0]).parent
    folder = made_folder(options.out or beside / f"{kind}-{options.split}")
    captions = split_captions(
        captioner,
        records,
        search,
        batch_size=options.batch_size,
        seed=options.seed,
        features=features,
        processes=processes,
    )
    if captions is None:
        return 0  # the first process reports the results of all
    report = Report.of(
        captions,
        {record.image_id: record.captions for record in records},
        scorers,
        training_captions(reader),
        captioner.vocabulary.words,
        scene_scores(captions, options.data, options.split),
        by_photos,
    )
    report.write(folder)
    print(report.table())
    if (grounded := _grounded(options, captioner, captions)) is not None:
        grounded.write(folder / "grounding.json")
        print("", grounding.table(grounded), sep="\n")
    print(printable(folder))
    return 0


def _grounded(
    options: argparse.Namespace, captioner: "Captioner", captions: "Mapping[int | str, str]"
) -> "GroundingReport | None":
    """The grounding report; None without photos and boxes."""
    from captioning.data.readers import reader_for
    from captioning.evaluation.grounding import Lexicon, ground
    from captioning.evaluation.grounding.measure import categories

    if options.features is not None:  # the photos may be missing
        return None
    split = reader_for(options.data).read(options.split)
    known = categories(split)
    if not known or any(record.phrases for record in split):  # which only its own captions have
        return None
    records = split[: options.limit]
    lexicon = Lexicon.of(known)
    return ground(captioner, records, captions, lexicon, options.batch_size, options.seed)


def _features(
    folder: str | None, captioner: "Captioner", records: "Sequence[Record]"
) -> "FeatureCache | None":
    """The cached annotation vectors of the records' images by the captioner's encoder, if given."""
    from captioning.captioner.joint_encoder import JointEncoder
    from captioning.data.feature_cache import FeatureCache

    if folder is None:
        return None
    if isinstance(captioner.encoder, JointEncoder):
        raise InputError(
            f"{folder}: features are of one encoder at one image size, and the models of this "
            "ensemble differ in theirs; leave out --features"
        )
    if captioner.encoder.constant is None:
        raise InputError(
            f"{folder}: no features can be of this model, whose whole encoder was trained; "
            "leave out --features"
        )
    features = FeatureCache(folder)
    images = [record.image for record in records]
    features.check(captioner.encoder.constant, captioner.preprocessing, images)
    return features

"""`captioning train`, `features`, `finetune`, `check` and `shapes`: training, and its data."""

import os
import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveInt

from captioning.commands.options import (
    CaptionColumn,
    CaptionsFrom,
    Images,
    MaxMegapixels,
    PhotoColumn,
    Share,
)
from captioning.data.tokenizer_names import ScoreTokenizerName
from captioning.errors import printable
from captioning.shelf import DEFAULT_MODEL

REVIEWED_COUNT = 10
"""Captions that `captioning check --review` prints."""

Keys = Annotated[
    str,
    Parameter(allow_leading_hyphen=True, help="Keys of a configuration, such as --data.size 320."),
]


def train_model(*options: Keys) -> None:
    """Train a model from a configuration: captioning train --config shapes.

    The configurations that come with the package; what comes after another changes it:

    - `coco`: the photo model's recipe on COCO, for a GPU
    - `coco_paper`: the paper's model on COCO, for a GPU
    - `coco_transformer`: after coco, a transformer
    - `flickr8k`: Flickr8k, on two cores
    - `flickr8k_transformer`: after flickr8k, a small transformer
    - `overfit`: learns sixty photos by heart, to check data and model
    - `photos`: the photo model, on Flickr8k and COCO
    - `photos_self_critical`: after photos, its second step
    - `photos_self_critical_decoder`: after these, its third step, the decoder on all photos
    - `photos_self_critical_encoder`: after the two, its fourth step, with the encoder
    - `self_critical`: after another, on from its best model to a higher CIDEr
    - `shapes`: drawn scenes, in minutes on one core
    - `shapes_hard`: after shapes, hard attention
    - `shapes_transformer`: after shapes, a transformer

    Every key of a configuration is an option. The most usual ones, and those of the command:

    - `--config FILE`: a YAML file, or one of these names; later ones change earlier ones
    - `--data.reader.init_args.root DIR`: folder of the data set
    - `--data.batch_size N`: images at a time
    - `--data.limit N`: the first photos of each split only
    - `--data.workers N`: processes that read photos
    - `--data.features DIR`: keep the features of frozen stages in this folder
    - `--model.initial FILE`: start with the parameters of this model
    - `--model.learning_rate RATE`: of the decoder
    - `--trainer.default_root_dir DIR`: folder of the run, with best.ckpt
    - `--trainer.max_epochs N`: the most epochs; early stopping may end before
    - `--trainer.devices N`: GPUs or processes
    - `--trainer.precision PRECISION`: such as 32-true or bf16-mixed
    - `--seed_everything SEED`: of all random numbers; 0 by default
    - `--resume`: continue from last.ckpt in the run's folder
    - `--overwrite`: start again in the folder of an earlier run
    - `--kernels on|off`: off: the plain model, which is slower on CPUs
    - `--import MODULE`: a module of yours to import first; repeatable
    - `--print_config`: print the configuration with all defaults
    - `--help-all`: show every key
    """
    from captioning.training import train_cli

    checkpoint = train_cli.train(list(options))
    if checkpoint is not None:
        print(printable(checkpoint))


def encode_photos(*options: Keys) -> None:
    """Encode the photos of a training: captioning features --config flickr8k.

    It takes the options of `captioning train`, and uses those of data, encoder and devices.
    """
    from captioning.training import train_cli

    folder = train_cli.features(list(options))
    if folder is not None:
        print(printable(folder))


def finetune_model(
    data: Path,
    /,
    *,
    model: str = DEFAULT_MODEL,
    out: Path | None = None,
    epochs: PositiveInt | None = None,
    seed: int = 0,
    val_share: Share | None = None,
    skip_bad: bool = False,
    tokenizer: ScoreTokenizerName | None = None,
    images: Images = None,
    caption_column: CaptionColumn = None,
    photo_column: PhotoColumn = None,
    captions_from: CaptionsFrom = None,
    keep: Path | None = None,
    keep_features: bool = False,
    overwrite: bool = False,
) -> Path:
    """Train on a folder of captioned photos, from the model that comes with the package.

    The same command goes on after an interrupt and, with more epochs, from where it ended. If
    photos or captions have changed, it trains again.

    Args:
        data: Captioned photos, in any layout of `captioning check`.
        model: The model to start from: a file, or the name of one that comes with the package.
        out: Folder of the training; by default runs/ and the name of the photos' folder.
        epochs: Passes over the photos; by default by their number.
        seed: Of the training.
        val_share: Share of the photos to validate on, where the data set names none; by default a
            fifth.
        skip_bad: Leave out faulty photos and rows, naming them.
        tokenizer: What splits captions into words; by default as for the model. For scripts
            without spaces, characters or the words of a language (extras ja, zh and th).
        keep: Captioned photos of another kind that train along, at most as many as yours, so that
            the model stays good at them.
        keep_features: Keep the photos' features and the whole checkpoints, which take much room.
        overwrite: Replace the training that the folder of `--out` contains.
    """
    from captioning.training import finetune as training

    checkpoint = training.finetune(
        data,
        model=model,
        out=out,
        epochs=epochs,
        seed=seed,
        skip_bad=skip_bad,
        tokenizer=tokenizer,
        keep=keep,
        keep_features=keep_features,
        overwrite=overwrite,
        images=None if images is None else str(images),
        caption_column=caption_column,
        photo_column=photo_column,
        captions_from=captions_from,
        val_fraction=val_share,
    )
    print(printable(checkpoint))
    print(printable(f"captioning caption PHOTOS --model {shlex.quote(str(checkpoint))}"))
    print(printable(f"how it learnt: {checkpoint.with_name('validation.html')}"))
    print(printable(f"its captions, the worst first: {checkpoint.with_name(training.EXAMPLES)}"))
    return checkpoint


def check_data(
    data: Path,
    /,
    *,
    images: Images = None,
    caption_column: CaptionColumn = None,
    photo_column: PhotoColumn = None,
    captions_from: CaptionsFrom = None,
    max_megapixels: MaxMegapixels = 100.0,
    review: bool = False,
) -> int:
    """Look for faults in a data set before training.

    Every photo and caption is read. The exit code is 1 if there are faults.

    Args:
        data: The data set, in any layout that is known.
        review: Also print the ten captions that fit their photos least, in the lines of
            `captioning review`.
    """
    from captioning.data import folder_check
    from captioning.data.readers import reader_for

    reader = reader_for(
        data,
        images=images,
        caption_column=caption_column,
        photo_column=photo_column,
        captions_from=captions_from,
    )
    check = folder_check.check(reader, max_pixels=int(max_megapixels * 1e6))
    print(check)
    if review:
        from captioning.captioner import load
        from captioning.commands.review_captions import review_line
        from captioning.evaluation.reviewed_captions import review_captions

        records = [record for records in check.data_set.splits.values() for record in records]
        sound = [record for record in records if record.image not in check.faulty]
        for caption in review_captions(load(), sound)[:REVIEWED_COUNT]:
            print(review_line(caption))
    return 0 if check.ok else 1


def shapes(
    directory: Path,
    /,
    *,
    train: PositiveInt = 6000,
    val: NonNegativeInt = 500,
    test: NonNegativeInt = 500,
    pixels: PositiveInt = 128,
    seed: int = 0,
    processes: PositiveInt | None = None,
) -> None:
    """Draw the data set of simple scenes.

    Args:
        directory: Where to draw it.
        train: Scenes to train on.
        val: Scenes to validate on.
        test: Scenes held out.
        pixels: Side of a picture.
        seed: Of what is drawn.
        processes: Drawing processes; by default one for each core and each 1,000 scenes.
    """
    from captioning.shapes import write_shapes

    worthwhile = max(1, min(os.cpu_count() or 1, (train + val + test) // 1000))
    processes = processes or worthwhile
    write_shapes(directory, train, val, test, pixels, seed, processes=processes)
    print(printable(directory))

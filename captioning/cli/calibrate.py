"""`captioning calibrate`: makes a model's probabilities mean what they say."""

import argparse
from pathlib import Path

from captioning.cli.model_options import add_model, add_search, model_and_search, models_of
from captioning.cli.options import add_data, add_limit, add_photo_limit
from captioning.errors import UsageError
from captioning.terminal import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("file", metavar="FILE", help="where to write the model (safetensors)")
    parser.add_argument(
        "--data",
        required=True,
        action="append",
        metavar="DIR",
        help="the data set; may be given again to join several",
    )
    parser.add_argument(
        "--split",
        default="val",
        help="a split that the model was not trained on, nor chosen by (default: val)",
    )
    add_data(parser)
    add_limit(parser)
    parser.add_argument(
        "--features", metavar="DIR", help="use the cached annotations in this folder, not photos"
    )
    add_model(parser)
    add_photo_limit(parser)
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    """Write the model with its calibration, and print how well it is calibrated."""
    from captioning.captioner import export
    from captioning.data.readers import Joined, reader_for
    from captioning.evaluation.calibration import CalibrationReport, assess, calibrated
    from captioning.evaluation.captions import features_of
    from captioning.evaluation.pictures import save_calibration
    from captioning.evaluation.report import aligned, scenes_right
    from captioning.files import made_folder

    models = models_of(options)
    if len(models) > 1:
        raise UsageError("calibrate takes one model; an ensemble has no file")
    readers = [
        reader_for(folder, False, options.images, options.caption_column) for folder in options.data
    ]
    reader = Joined(readers) if len(readers) > 1 else readers[0]
    records = reader.read(options.split)[: options.limit]
    captioner, search = model_and_search(options)
    assessed = assess(
        captioner,
        records,
        search,
        scenes_right(options.data[0], options.split) if len(readers) == 1 else None,
        options.batch_size,
        options.seed,
        features_of(options.features, captioner, records),
    )
    calibration = calibrated(assessed)
    report = CalibrationReport.across_halves(assessed)
    folder = made_folder(Path(options.file).parent)
    export(models[0], options.file, calibration=calibration)
    picture = folder / f"{Path(options.file).stem}-calibration.png"
    save_calibration(report, picture)
    print("Calibrated on each half of the photos, on the other half:")
    print(aligned([*report.table(), ("temperature", f"{calibration.temperature:.4f}")]))
    print(printable(options.file))
    print(printable(picture))
    return 0

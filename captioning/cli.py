"""The command line: each command parses its options and calls one function of the package.

Imports of anything slow stand inside the commands, so that `captioning --help` is instant.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from captioning.errors import InputError, UsageError

if TYPE_CHECKING:
    from captioning.models import Captioner, Search


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 1 for bad input, 2 for bad options.

    Args:
        arguments: the command and its options; those of the process if none.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["train"]:  # its options are LightningCLI's
            code = _train(given[1:])
        else:
            options = _parser().parse_args(given)
            code = options.run(options)
        sys.stdout.flush()  # here, where a reader that has gone is known
        return code
    except InputError as error:
        print(f"captioning: {_one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as interrupt:
        print(f"captioning: {interrupt or 'interrupted'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _one_line(error: InputError) -> str:
    """The message, also where a DataLoader has wrapped it in its worker's traceback."""
    return str(error).strip().splitlines()[-1].removeprefix("captioning.errors.InputError: ")


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line and do not end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _positive(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="captioning",
        description="Says what is in a photo, and shows where it looked for every word.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    caption = commands.add_parser("caption", help="caption photos with a trained model")
    caption.add_argument("photos", nargs="+", metavar="PHOTO", help="photos, or folders of photos")
    _add_model(caption)
    _add_search(caption)
    caption.add_argument("--json", action="store_true", help="one JSON object per photo")
    caption.add_argument(
        "--overlay", metavar="DIR", help="write a picture per photo of where the model looked"
    )
    caption.set_defaults(run=_caption)

    evaluate = commands.add_parser("evaluate", help="score a trained model on a split")
    evaluate.add_argument("--data", required=True, metavar="DIR", help="the data set")
    evaluate.add_argument("--split", default="val", help="which part of it (default: val)")
    evaluate.add_argument("--limit", type=_positive, metavar="N", help="only its first N images")
    evaluate.add_argument(
        "--out", metavar="DIR", help="where results and scores go (default: beside the model)"
    )
    _add_model(evaluate)
    _add_search(evaluate)
    evaluate.set_defaults(run=_evaluate)

    train = commands.add_parser(
        "train", help="train a model: captioning train --config configs/shapes.yaml"
    )
    train.set_defaults(run=lambda options: _train([]))

    check = commands.add_parser("check", help="look for faults in a data set before training")
    check.add_argument("data", metavar="DIR", help="the data set")
    check.set_defaults(run=_check)

    shapes = commands.add_parser("shapes", help="draw the data set of simple scenes")
    shapes.add_argument("directory", metavar="DIR", help="where to draw it")
    shapes.add_argument("--train", type=int, default=6000, help="scenes to train on")
    shapes.add_argument("--val", type=int, default=500, help="scenes to validate on")
    shapes.add_argument("--test", type=int, default=500, help="scenes held out")
    shapes.add_argument("--pixels", type=int, default=128, help="side of a picture")
    shapes.add_argument("--seed", type=int, default=0)
    shapes.set_defaults(run=_shapes)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="CHECKPOINT", help="a trained model")
    parser.add_argument(
        "--batch-size",
        type=_positive,
        default=16,
        metavar="N",
        help="photos at a time (default: 16)",
    )
    parser.add_argument(
        "--device", default=None, help="cpu, cuda, mps (default: the best there is)"
    )


def _add_search(parser: argparse.ArgumentParser) -> None:
    search = parser.add_argument_group(
        "search", "how words are chosen; what is not given is as the model was trained"
    )
    kind = search.add_mutually_exclusive_group()
    kind.add_argument("--beam", type=int, metavar="N", help="beam search of this width")
    kind.add_argument("--greedy", action="store_true", help="always the most probable word")
    kind.add_argument("--sample", action="store_true", help="draw words by their probability")
    search.add_argument("--temperature", type=float, help="of sampling")
    search.add_argument("--top-k", type=int, help="sample from the k best words")
    search.add_argument("--top-p", type=float, help="sample from the best words of this mass")
    search.add_argument("--length-penalty", type=float, help="0 favours short captions, 1 none")
    search.add_argument("--max-length", type=int, help="most words")
    search.add_argument("--min-length", type=int, help="fewest words")
    search.add_argument("--no-repeat-ngram", type=int, help="no n words twice")
    search.add_argument("--seed", type=int, default=0, help="of sampling (default: 0)")


def _caption(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from captioning.data.images import find_images, read_image
    from captioning.models.batches import captioned
    from captioning.viewing.names import picture_names

    photos = find_images(options.photos)
    pictures = picture_names(photos, options.overlay) if options.overlay else {}
    captioner, search = _model_and_search(options)
    failed = False
    # tqdm.write keeps lines and the progress bar apart where both go to one terminal.
    for photo, caption in captioned(captioner, photos, search, options.batch_size):
        if isinstance(caption, InputError):
            tqdm.write(f"captioning: {caption}", file=sys.stderr)
            failed = True
            continue
        if pictures:
            from captioning.viewing.overlay import save

            save(read_image(photo), caption, pictures[photo])
        line = {"image": str(photo), **caption.as_json()}
        shown = json.dumps(line, ensure_ascii=False) if options.json else f"{photo}\t{caption.text}"
        tqdm.write(shown, file=sys.stdout)
    return 1 if failed else 0


def _evaluate(options: argparse.Namespace) -> int:
    from captioning.data.readers import reader_for
    from captioning.files import made_folder
    from captioning.metrics.evaluation import evaluate, share_right
    from captioning.metrics.report import table

    records = reader_for(options.data).read(options.split)[: options.limit]
    captioner, search = _model_and_search(options)
    folder = made_folder(options.out or Path(options.model).parent / f"evaluation-{options.split}")
    evaluation = evaluate(captioner, records, search, options.batch_size)
    evaluation.scores.update(share_right(evaluation.captions, options.data, options.split))
    evaluation.write(folder)
    print(table(evaluation.scores))
    print(folder)
    return 0


def _model_and_search(options: argparse.Namespace) -> "tuple[Captioner, Search]":
    """The model, on its device, and its own search changed by the options."""
    import torch

    from captioning.models import BeamSearch, Greedy, Sampling, load
    from captioning.models.device import usable_device

    captioner = load(options.model, usable_device(options.device))
    torch.manual_seed(options.seed)
    kind = type(captioner.search)
    if options.beam is not None:
        kind = BeamSearch
    elif options.greedy or options.sample:
        kind = Greedy if options.greedy else Sampling
    of_sampling = {"temperature", "top_k", "top_p"}
    given = {
        name: getattr(options, name)
        for name in (
            *of_sampling,
            *("length_penalty", "max_length", "min_length", "no_repeat_ngram"),
        )
        if getattr(options, name) is not None
    }
    if kind is not Sampling and of_sampling & given.keys():
        name = min(of_sampling & given.keys()).replace("_", "-")
        raise UsageError(f"--{name} is of sampling; give --sample too, or leave it out")
    if options.beam is not None:
        given["width"] = options.beam
    return captioner, captioner.search.changed(kind, **given)


def _train(arguments: list[str]) -> int:
    from captioning.training.train import train

    best = train(arguments)
    if best is not None:
        print(best)
    return 0


def _check(options: argparse.Namespace) -> int:
    from captioning.data.check import check
    from captioning.data.readers import reader_for

    result = check(reader_for(options.data))
    print(result)
    return 0 if result.ok else 1


def _shapes(options: argparse.Namespace) -> int:
    from captioning.data.shapes import write_shapes

    write_shapes(
        options.directory,
        train=options.train,
        val=options.val,
        test=options.test,
        pixels=options.pixels,
        seed=options.seed,
    )
    print(options.directory)
    return 0

"""Finetunes a model on a folder of captioned photos: read, plan, fit, choose, calibrate, report."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from captioning.captioner import Captioner, export, load
from captioning.captioner.calibration import Calibration
from captioning.data.tokenizers import TokenizerName, tokenizer_hint
from captioning.errors import InputError
from captioning.evaluation.assessment import assess, good_captions
from captioning.evaluation.calibration_fit import fit_calibration
from captioning.evaluation.calibration_report import CalibrationReport
from captioning.evaluation.report import scene_judge
from captioning.files import made_folder, only_writer, read_json, write_json, written_whole
from captioning.progress_bar import say
from captioning.shelf import DEFAULT_MODEL, absolute_address
from captioning.training.checkpoints import BEST, LAST
from captioning.training.finetune.choice import SHARES, best_between
from captioning.training.finetune.messages import caption_with_start, say_plan, say_result
from captioning.training.finetune.photos import CaptionWords, Photos, read_photos
from captioning.training.finetune.plan import MOST_EPOCHS, NEW_WORDS_FACTOR, Plan
from captioning.training.finetune.settings import training_settings
from captioning.training.train_cli import fit

CALL, MODEL, EARLIER = "finetune.json", "best.safetensors", "earlier.safetensors"
"""A run's files in addition to a training's: the call, the model, and the one before."""


def finetune(
    folder: str | Path,
    model: str | Path = DEFAULT_MODEL,
    out: str | Path | None = None,
    epochs: int | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    tokenizer: TokenizerName | None = None,
    keep: str | Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Finetune a model on a folder of captioned photos.

    The model learns the words of the captions and keeps its own, unless the tokenizer is another.
    `Plan` says what is trained. The same call goes on after an interrupt or, with more epochs, from
    where it ended. If photos or captions have changed, it trains again, and keeps the earlier model
    as ``earlier.safetensors``. `out` gets the files of a training, such as ``config.yaml`` for
    ``captioning train``. Photos of `keep` train along, and have a say in what is kept. The
    arguments are the command's, `options` those of `reader_for`.

    Returns:
        ``best.safetensors``, calibrated if validation photos have several captions.

    Raises:
        InputError: the folder is in no known layout, has too few photos or, without `skip_bad`,
            has faults; `out` holds a model of other arguments and `overwrite` is off; or another
            process trains there.
    """
    start = load(model)
    tokenizer_name = tokenizer or start.vocabulary.tokenizer
    options = {name: value for name, value in options.items() if value is not None}
    photos = read_photos(folder, keep, skip_bad, options)
    if hint := tokenizer_hint(photos.training_texts, tokenizer_name):
        say(hint)
    words = CaptionWords.of(photos, start.vocabulary, tokenizer_name)
    plan = Plan.of(len(photos.train) + len(photos.rehearsal_train), epochs)
    if not words.are_known and epochs is None:
        plan = plan._replace(epochs=min(MOST_EPOCHS, NEW_WORDS_FACTOR * plan.epochs))
    run = made_folder(Path(out or Path("runs") / Path(folder).resolve().name))
    call: dict[str, Any] = {
        "the folder": absolute_address(folder),
        "--model": str(model),
        "--seed": seed,
        "--tokenizer": tokenizer,
        "--images": options.get("images"),
        "--caption-column": options.get("caption_column"),
        "--photo-column": options.get("photo_column"),
        "--val-share": options.get("val_fraction"),
        "--keep": None if keep is None else absolute_address(keep),
        "stages": plan.stages,
        "digest": photos.digest(),
    }
    continues = _continues(run, call, overwrite)
    ended = read_json(run / CALL).get("ended", 0) if continues else 0
    if (run / MODEL).exists() and plan.epochs <= ended:
        say(f"{run}: nothing is left to train; to continue, raise --epochs")
        return run / MODEL
    say_plan(photos, keep)
    start_captions = caption_with_start(start, photos, plan, tokenizer_name, model)
    settings = {"seed_everything": seed}
    settings |= training_settings(start, model, run, plan, photos, words, tokenizer_name)
    checkpoint = _train(
        run, settings, start, photos, call, continues=continues, overwrite=overwrite
    )
    trained = load(checkpoint)
    groups = [photos.val, photos.rehearsal_val]
    shares = SHARES if words.are_known else SHARES[:1]
    best = best_between(start, start_captions, trained, groups, tokenizer_name, shares, str(model))
    say_result(start, start_captions, best, photos, run, tokenizer_name)
    calibration = None
    if best.share < 1:
        calibration = calibration_of(start, best.captioner, photos, folder, keep, tokenizer_name)
    export(best.captioner, run / MODEL, calibration=calibration)
    write_json(run / CALL, call | {"ended": plan.epochs})
    return run / MODEL


def calibration_of(
    start: Captioner,
    captioner: Captioner,
    photos: Photos,
    folder: str | Path,
    keep: str | Path | None,
    tokenizer_name: TokenizerName,
) -> Calibration | None:
    """The calibration on the photos to validate on; None, and a line, if it is not possible."""
    try:
        good = scene_judge(folder, "val") if keep is None else None
        good = good or partial(
            good_captions, records=photos.val, tokenizer=tokenizer_name, others=photos.train
        )
        assessed = assess(captioner, photos.val, judge=good)
        calibration = fit_calibration(assessed, start.calibration)
        halves, *_ = CalibrationReport.across_halves(assessed, start.calibration)
    except InputError as error:
        say(f"not calibrated, so captions have no confidence: {error}")
        return None
    say(f"calibrated on each half of these photos, on the other half: {halves.line()}")
    return calibration


def _continues(run: Path, call: dict[str, Any], overwrite: bool) -> bool:
    """Whether a run continues by this call, or begins.

    Raises:
        InputError: the run is another call's, or of `captioning train`.
    """
    has_model = any((run / name).exists() for name in (LAST, BEST, MODEL))
    earlier = read_json(run / CALL) if (run / CALL).exists() else {}
    differences = [name for name in call if earlier.get(name) != call[name]]
    differences = [name for name in differences if name not in ("stages", "digest")]
    if has_model and differences and not overwrite:
        raise InputError(
            f"{run}: contains another training (by {', '.join(differences)}); name another folder "
            "by --out, or replace it by --overwrite"
        )
    if overwrite or not has_model:
        return False
    if earlier["digest"] != call["digest"]:
        say(f"photos or captions have changed: training again; {EARLIER} keeps the model so far")
    return bool(earlier["digest"] == call["digest"])


def _train(
    run: Path,
    settings: dict[str, Any],
    start: Captioner,
    photos: Photos,
    call: dict[str, Any],
    *,
    continues: bool,
    overwrite: bool,
) -> Path:
    """Train by these settings, and return the best checkpoint.

    The settings are also written to finetune.yaml, for users.
    """
    config, model = run / "finetune.yaml", run / MODEL
    with only_writer(run):  # not while a training runs there
        earlier = read_json(run / CALL) if (run / CALL).exists() else call
        if overwrite or earlier["stages"] != call["stages"]:
            shutil.rmtree(run / "features", ignore_errors=True)  # of another encoder
        with written_whole(config) as temporary:
            temporary.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")

    def on_start() -> None:
        if model.exists() and not continues:
            with written_whole(run / EARLIER) as temporary:
                shutil.copyfile(model, temporary)
        write_json(run / CALL, call)

    options = {"resume": continues, "overwrite": not continues}
    try:
        checkpoint = fit(settings | options, start, photos.data_set, on_start)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; go on by the same command") from None
    assert checkpoint is not None  # there is one process only
    return checkpoint

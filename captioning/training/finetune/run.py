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
from captioning.evaluation.assessment import assess, calibrated, good_captions
from captioning.evaluation.calibration_report import CalibrationReport
from captioning.evaluation.report import scenes_right
from captioning.files import made_folder, only_writer, read_json, write_json, written_whole
from captioning.progress_bar import say
from captioning.shelf import DEFAULT, resolved
from captioning.training.checkpoints import BEST, LAST
from captioning.training.finetune.choice import SHARES, best_between
from captioning.training.finetune.messages import captions_before, say_plan, say_result
from captioning.training.finetune.photos import CaptionWords, Photos, read_photos
from captioning.training.finetune.plan import MOST_EPOCHS, NEW_WORDS_FACTOR, Plan
from captioning.training.finetune.settings import training_settings
from captioning.training.train_cli import train

CALL, MODEL, EARLIER = "finetune.json", "best.safetensors", "earlier.safetensors"
"""A run's files, beside those of a training: the call, its model, and that of other photos."""


def finetune(
    folder: str | Path,
    model: str | Path = DEFAULT,
    out: str | Path | None = None,
    epochs: int | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    tokenizer: TokenizerName | None = None,
    keep: str | Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Train a model on a folder of captioned photos, starting from one that knows others.

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
    plan = Plan.of(len(photos.train) + len(photos.kept_train), epochs)
    if not words.are_known and epochs is None:
        plan = plan._replace(epochs=min(MOST_EPOCHS, NEW_WORDS_FACTOR * plan.epochs))
    run = made_folder(Path(out or Path("runs") / Path(folder).resolve().name))
    call: dict[str, Any] = {
        "the folder": resolved(folder),
        "--model": str(model),
        "--seed": seed,
        "--tokenizer": tokenizer,
        "--images": options.get("images"),
        "--caption-column": options.get("caption_column"),
        "--photo-column": options.get("photo_column"),
        "--val-share": options.get("val_fraction"),
        "--keep": None if keep is None else resolved(keep),
        "stages": plan.stages,
        "digest": photos.digest(),
    }
    goes_on = _goes_on(run, call, overwrite)
    if goes_on and (run / MODEL).exists() and read_json(run / CALL).get("ended") == plan.epochs:
        say(f"{run}: nothing is left to train; to continue, raise --epochs")
        return run / MODEL
    say_plan(photos, plan, keep)
    first_captions = captions_before(start, photos, plan, tokenizer_name, model)
    settings = {"seed_everything": seed}
    settings |= training_settings(start, model, run, plan, photos, words, tokenizer_name)
    trained = load(_trained(run, settings, call, goes_on))
    shares = SHARES if words.are_known else SHARES[:1]
    kept = best_between(
        str(model), trained, photos.validation, tokenizer_name, shares, len(photos.val)
    )
    say_result(start, first_captions, kept, photos, run, tokenizer_name)
    calibration = None
    if kept.share < 1:
        calibration = calibration_of(start, kept.captioner, photos, folder, keep, tokenizer_name)
    export(kept.captioner, run / MODEL, calibration=calibration)
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
        good = scenes_right(folder, "val") if keep is None else None
        good = good or partial(
            good_captions, records=photos.val, tokenizer=tokenizer_name, others=photos.train
        )
        assessed = assess(captioner, photos.val, good=good)
        calibration = calibrated(assessed, start.calibration)
        halves, *_ = CalibrationReport.across_halves(assessed, start.calibration)
    except InputError as error:
        say(f"not calibrated, so captions have no confidence: {error}")
        return None
    say(f"calibrated on each half of these photos, on the other half: {halves.line()}")
    return calibration


def _goes_on(run: Path, call: dict[str, Any], overwrite: bool) -> bool:
    """Whether a run goes on by this call, or begins.

    Raises:
        InputError: it is another call's, or of `captioning train`.
    """
    is_kept = any((run / name).exists() for name in (LAST, BEST, MODEL))
    before = read_json(run / CALL) if (run / CALL).exists() else {}
    others = [name for name in call if before.get(name) != call[name]]
    others = [name for name in others if name not in ("stages", "digest")]
    if is_kept and others and not overwrite:
        raise InputError(
            f"{run}: contains another training (by {', '.join(others)}); name another folder by "
            "--out, or replace it by --overwrite"
        )
    if overwrite or before.get("stages", call["stages"]) != call["stages"]:
        shutil.rmtree(run / "features", ignore_errors=True)  # of another encoder
    if overwrite or not is_kept:
        return False
    if before["digest"] != call["digest"]:
        say(f"photos or captions have changed: training again; {EARLIER} keeps the model so far")
    return bool(before["digest"] == call["digest"])


def _trained(run: Path, settings: dict[str, Any], call: dict[str, Any], goes_on: bool) -> Path:
    """The best checkpoint by these settings."""
    config, model = run / "finetune.yaml", run / MODEL
    with only_writer(run), written_whole(config) as temporary:  # not while a training runs there
        temporary.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")

    def begins() -> None:
        if model.exists() and not goes_on:
            with written_whole(run / EARLIER) as temporary:
                shutil.copyfile(model, temporary)
        write_json(run / CALL, call)

    try:
        best = train(["--config", str(config), "--resume" if goes_on else "--overwrite"], begins)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; go on by the same command") from None
    assert best is not None  # there is one process only
    return best

"""Finetunes a model on a folder of captioned photos: read, plan, fit, choose, calibrate, report."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from captioning.captioner import Captioner, export, load
from captioning.captioner.calibration import Calibration
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer_hint
from captioning.errors import InputError
from captioning.evaluation.assessment import assess, good_captions
from captioning.evaluation.calibration_fit import borrowed_calibration, fit_calibration
from captioning.evaluation.calibration_report import CalibrationReport
from captioning.evaluation.manner import Manner
from captioning.evaluation.report import scene_judge
from captioning.files import made_folder, only_writer, read_json, write_json, written_whole
from captioning.progress_bar import say
from captioning.shelf import DEFAULT_MODEL, absolute_address
from captioning.training.checkpoints import BEST, LAST
from captioning.training.finetune.choice import START_WEIGHTS, Choice, best_between
from captioning.training.finetune.messages import (
    READ_PHOTOS,
    StartCaptions,
    caption_with_start,
    say_plan,
    say_result,
    say_start,
)
from captioning.training.finetune.photos import CaptionWords, Photos, read_photos
from captioning.training.finetune.plan import MANNER_PHOTOS, Plan
from captioning.training.finetune.settings import training_settings
from captioning.training.train_cli import train

ARGUMENTS, MODEL, EARLIER = "finetune.json", "best.safetensors", "earlier.safetensors"
"""Files that finetuning adds to a run: its arguments, the model, and the previous model."""


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
    ``captioning train``. Photos of `keep` are rehearsed in training and count in model selection.
    The arguments are the command's, `options` those of `reader_for`.

    Returns:
        ``best.safetensors``, calibrated if validation photos have several captions, or as the start
        is if it captions such photos well.

    Raises:
        InputError: the folder is in no known layout, has too few photos or, without `skip_bad`,
            has faults; `out` holds a model of other arguments and `overwrite` is off; or another
            process trains there.
    """
    start = load(model)
    tokenizer_name = tokenizer or start.vocabulary.tokenizer
    photos = read_photos(folder, keep, skip_bad, options)
    if hint := tokenizer_hint([*photos.train_texts, *photos.rehearsal_texts], tokenizer_name):
        say(hint)
    words = CaptionWords.of(photos, start.vocabulary, tokenizer_name)
    plan = Plan.of(photos.train_count, epochs, has_new_words=not words.are_known)
    run_folder = made_folder(Path(out or Path("runs") / Path(folder).resolve().name))
    arguments = _arguments(
        photos, plan, options, folder=folder, model=model, seed=seed, tokenizer=tokenizer, keep=keep
    )
    continues = _continues(run_folder, arguments, overwrite)
    if continues and _is_finished(run_folder, epochs):
        say(f"{run_folder}: nothing is left to train; to continue, raise --epochs")
        return run_folder / MODEL
    say_plan(photos, keep)
    start_captions = caption_with_start(start, photos, tokenizer_name=tokenizer_name)
    teaches_manner = photos.train_count < MANNER_PHOTOS and words.are_known
    if teaches_manner and start_captions.are_related:
        plan = plan.for_manner(photos.train_count, epochs)
    say_start(photos, start_captions, plan, model_name=str(model))
    checkpoint = _train(
        start,
        photos,
        plan=plan,
        words=words,
        manner=start_captions.manner,
        tokenizer_name=tokenizer_name,
        model_name=str(model),
        run_folder=run_folder,
        seed=seed,
        arguments=arguments,
        continues=continues,
        overwrite=overwrite,
    )
    best = _choose(
        start,
        photos,
        load(checkpoint),
        start_weights=_start_weights(words, start_captions.manner, plan),
        start_captions=start_captions,
        tokenizer_name=tokenizer_name,
        model_name=str(model),
        run_folder=run_folder,
    )
    calibration = calibration_of(
        start,
        photos,
        best,
        tokenizer_name=tokenizer_name,
        folder=folder,
        rehearsal_folder=keep,
        keeps_content=plan.keeps_content,
    )
    export(best.captioner, run_folder / MODEL, calibration=calibration)
    write_json(run_folder / ARGUMENTS, arguments | {"ended": plan.epochs})
    return run_folder / MODEL


def _arguments(
    photos: Photos,
    plan: Plan,
    options: dict[str, Any],
    *,
    folder: str | Path,
    model: str | Path,
    seed: int,
    tokenizer: TokenizerName | None,
    keep: str | Path | None,
) -> dict[str, Any]:
    """The arguments by which a run is recognised, as its finetune.json holds them."""
    return {
        "the folder": absolute_address(folder),
        "--model": str(model),
        "--seed": seed,
        "--tokenizer": tokenizer,
        "--images": options.get("images"),
        "--caption-column": options.get("caption_column"),
        "--photo-column": options.get("photo_column"),
        "--val-share": options.get("val_fraction"),
        "--keep": None if keep is None else absolute_address(keep),
        "stages": plan.trainable_stages,
        "digest": photos.digest(),
    }


def _choose(
    start: Captioner,
    photos: Photos,
    trained: Captioner,
    *,
    start_weights: Sequence[float],
    start_captions: StartCaptions,
    tokenizer_name: TokenizerName,
    model_name: str,
    run_folder: Path,
) -> Choice:
    """Choose between the trained captioner and the start, and say what has changed."""
    best = best_between(
        start,
        trained,
        [photos.val, photos.rehearsal_val],
        start_captions=start_captions.captions,
        tokenizer_name=tokenizer_name,
        model_name=model_name,
        start_weights=start_weights,
    )
    say_result(
        start,
        photos,
        best,
        start_captions=start_captions,
        tokenizer_name=tokenizer_name,
        run_folder=run_folder,
    )
    return best


def _start_weights(words: CaptionWords, manner: Manner, plan: Plan) -> Sequence[float]:
    """The weights of the start to try in a mixture with the trained model.

    None but 0 if its words are not kept; or if the captions have a manner of their own, which
    mixtures lose: a quarter of the start's parameters makes a quarter of them return to its manner.
    """
    if not words.are_known or (plan.keeps_content and manner.is_distinct):
        return START_WEIGHTS[:1]
    return START_WEIGHTS


def calibration_of(
    start: Captioner,
    photos: Photos,
    best: Choice,
    *,
    tokenizer_name: TokenizerName,
    folder: str | Path,
    rehearsal_folder: str | Path | None,
    keeps_content: bool,
) -> Calibration | None:
    """The calibration on the photos to validate on.

    With one caption per photo it is the start's, if the model keeps what the start knows of such
    photos. None if the start is the best, which keeps its own, and, with a line, if it is not
    possible.
    """
    if best.captioner is start:
        return None
    try:
        judge = scene_judge(folder, "val") if rehearsal_folder is None else None
        judge = judge or partial(
            good_captions, records=photos.val, tokenizer=tokenizer_name, others=photos.train
        )
        assessed = assess(best.captioner, photos.val, judge=judge)
        calibration = fit_calibration(assessed, start.calibration)
        halves, *_ = CalibrationReport.across_halves(assessed, start.calibration)
    except InputError as error:
        if keeps_content and start.has_confidence():
            say(
                "calibrated as the model before, since photos have one caption each: captions are "
                "as sure as its captions of the same photos, on average"
            )
            paths = [record.image for record in (*photos.train[:READ_PHOTOS], *photos.val)]
            return borrowed_calibration(start, best.captioner, paths)
        say(f"not calibrated, so captions have no confidence: {error}")
        return None
    say(f"calibrated on each half of these photos, on the other half: {halves.line()}")
    return calibration


def _continues(run_folder: Path, arguments: dict[str, Any], overwrite: bool) -> bool:
    """Whether a run continues with these arguments, or begins.

    Raises:
        InputError: the run has other arguments, or is of `captioning train`.
    """
    has_model = any((run_folder / name).exists() for name in (LAST, BEST, MODEL))
    file = run_folder / ARGUMENTS
    earlier = read_json(file) if file.exists() else {}
    differences = [name for name in arguments if earlier.get(name) != arguments[name]]
    differences = [name for name in differences if name not in ("stages", "digest")]
    if has_model and differences and not overwrite:
        raise InputError(
            f"{run_folder}: contains another training (by {', '.join(differences)}); name another "
            "folder by --out, or replace it by --overwrite"
        )
    if overwrite or not has_model:
        return False
    if earlier["digest"] != arguments["digest"]:
        say(f"photos or captions have changed: training again; {EARLIER} keeps the model so far")
    return bool(earlier["digest"] == arguments["digest"])


def _is_finished(run_folder: Path, epochs: int | None) -> bool:
    """Whether a run has its model, after at least this number of epochs."""
    finished_epochs: int = read_json(run_folder / ARGUMENTS).get("ended", 0)
    return (run_folder / MODEL).exists() and (epochs or 0) <= finished_epochs


def _train(
    start: Captioner,
    photos: Photos,
    *,
    plan: Plan,
    words: CaptionWords,
    manner: Manner,
    tokenizer_name: TokenizerName,
    model_name: str,
    run_folder: Path,
    seed: int,
    arguments: dict[str, Any],
    continues: bool,
    overwrite: bool,
) -> Path:
    """Train, and return the best checkpoint, or the last one.

    The settings are also written to finetune.yaml, for users.
    """
    settings = {"seed_everything": seed} | training_settings(
        start,
        photos,
        plan=plan,
        words=words,
        manner=manner,
        tokenizer_name=tokenizer_name,
        model_name=model_name,
        run_folder=run_folder,
    )
    config_file, model_file = run_folder / "finetune.yaml", run_folder / MODEL
    arguments_file = run_folder / ARGUMENTS
    with only_writer(run_folder):  # not while a training runs there
        earlier = read_json(arguments_file) if arguments_file.exists() else arguments
        if overwrite or earlier["stages"] != arguments["stages"]:
            shutil.rmtree(run_folder / "features", ignore_errors=True)  # of another encoder
        with written_whole(config_file) as temporary:
            temporary.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")

    def on_start() -> None:
        if model_file.exists() and not continues:
            with written_whole(run_folder / EARLIER) as temporary:
                shutil.copyfile(model_file, temporary)
        write_json(arguments_file, arguments)

    options = {"resume": continues, "overwrite": not continues}
    try:
        checkpoint = train(settings | options, start, photos.data_set, on_start)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; go on by the same command") from None
    assert checkpoint is not None  # there is one process only
    # A few validation photos would choose the luckiest epoch: the last average is as good.
    return run_folder / LAST if plan.keeps_content else checkpoint

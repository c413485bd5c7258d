"""Finetunes a model on a folder of captioned photos: read, plan, fit, choose, calibrate, report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from captioning.captioner import Captioner, export, load
from captioning.captioner.calibration import Calibration
from captioning.captioner.exporting import origins_of
from captioning.data.tokenizer_names import TokenizerName
from captioning.errors import InputError
from captioning.evaluation.assessment import assess, good_captions
from captioning.evaluation.calibration_fit import borrowed_calibration, fit_calibration
from captioning.evaluation.calibration_report import CalibrationReport
from captioning.evaluation.report import scene_judge
from captioning.evaluation.review_fit import fit_review
from captioning.files import made_folder
from captioning.progress_bar import say
from captioning.shelf import DEFAULT_MODEL, absolute_address
from captioning.training.checkpoints import LAST
from captioning.training.finetune.choice import START_WEIGHTS, Choice, best_between
from captioning.training.finetune.messages import (
    kept_model_text,
    say_outliers,
    say_plan,
    say_result,
    say_start,
)
from captioning.training.finetune.photos import CaptionWords, Photos, read_photos
from captioning.training.finetune.plan import CONTENT_PHOTOS, Plan
from captioning.training.finetune.run_folder import RunFolder
from captioning.training.finetune.settings import training_settings
from captioning.training.finetune.start_captions import MANNER_SAMPLE, StartCaptions
from captioning.training.loggers import without_offline_board
from captioning.training.train_cli import train
from captioning.training.validation_images import save_kept_page


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
    keep_features: bool = False,
    **options: Any,
) -> Path:
    """Finetune a model on a folder of captioned photos.

    The model learns the words of the captions and keeps its own, unless the tokenizer is another.
    `Plan` says what is trained. The same call goes on after an interrupt or, with more epochs, from
    where it ended. If photos or captions have changed, it trains again, and keeps the earlier model
    as ``earlier.safetensors``. That model is the result if it is clearly better on validation
    photos that it was not trained on.

    `out` gets the files of a training, such as ``config.yaml`` for ``captioning train``. Features
    and most of the checkpoints are removed at the end, unless `keep_features` is on. Photos of
    `keep` are rehearsed in training and count in model selection. The arguments are the command's,
    `options` those of `reader_for`.

    Returns:
        ``best.safetensors``, calibrated if validation photos have several captions. Otherwise it
        has the start's calibration, if the start captions such photos well.

    Raises:
        InputError: the folder is in no known layout, has too few photos or, without `skip_bad`,
            has faults; `out` holds a model of other arguments and `overwrite` is off; or another
            process trains there.
    """
    start = load(model)
    photos = read_photos(folder, keep, skip_bad, options)
    words = CaptionWords.of(photos, start.vocabulary, tokenizer or start.vocabulary.tokenizer)
    plan = Plan.of(photos.train_count, epochs, has_new_words=not words.are_known)
    run_folder = RunFolder(made_folder(out or Path("runs") / Path(folder).resolve().name))
    arguments = _arguments(
        photos, plan, options, folder=folder, model=model, seed=seed, tokenizer=tokenizer, keep=keep
    )
    continues = run_folder.continues(arguments, overwrite)
    if continues and run_folder.is_finished(epochs):
        say(f"{run_folder.path}: nothing is left to train; to continue, raise --epochs")
        return run_folder.model_file
    say_plan(photos, words, keep, model_name=str(model))
    start_captions = StartCaptions.of(start, photos, words.tokenizer_name)
    if len(photos.train) < CONTENT_PHOTOS and words.are_known and start_captions.are_related:
        plan = plan.for_manner(photos.train_count, epochs)
        arguments["stages"] = plan.trainable_stages
    say_start(photos, words, start_captions, plan, model_name=str(model))
    if start_captions.are_related:
        say_outliers(start, photos.train, folder)
    finetuning = Finetuning(start, str(model), photos, words, plan, start_captions, run_folder)
    checkpoint = finetuning.train(arguments, continues=continues, overwrite=overwrite)
    if run_folder.is_finished():  # the training found nothing left to do, so it kept the record
        return run_folder.model_file
    choice = finetuning.choose(checkpoint)
    calibration = finetuning.calibrate(choice, folder, rehearsal_folder=keep)
    origins = origins_of(model)
    export(choice.captioner, run_folder.model_file, calibration=calibration, origins=origins)
    train_hashes = None if choice.is_earlier else photos.train_hashes()
    run_folder.finish(arguments, plan.epochs, train_hashes)
    if not keep_features:
        run_folder.shrink(start)
    return run_folder.model_file


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
    """What makes a run the same training: arguments of the command, stages and photos.

    The run's finetune.json holds them.
    """
    return {
        "the folder": absolute_address(folder),
        "--model": str(model),
        "--seed": seed,
        "--tokenizer": tokenizer,
        "--images": options.get("images"),
        "--caption-column": options.get("caption_column"),
        "--photo-column": options.get("photo_column"),
        "--captions-from": options.get("captions_from"),
        "--val-share": options.get("val_fraction"),
        "--keep": None if keep is None else absolute_address(keep),
        "stages": plan.trainable_stages,
        "digest": photos.digest(),
    }


@dataclass(frozen=True)
class Finetuning:
    """A training of a captioner on photos, and what follows from it.

    Attributes:
        start: the captioner that it starts from.
        model_name: the name or the file of the start.
        photos: the photos.
        words: of their captions.
        plan: how long and how deeply to train.
        start_captions: what the start says of the photos.
        run_folder: for the files of the training.
    """

    start: Captioner
    model_name: str
    photos: Photos
    words: CaptionWords
    plan: Plan
    start_captions: StartCaptions
    run_folder: RunFolder

    def train(self, arguments: dict[str, Any], *, continues: bool, overwrite: bool) -> Path:
        """Train, and return the best checkpoint, or the last one.

        Args:
            arguments: what makes a run the same training (`_arguments`).
            continues: whether to go on from the last checkpoint.
            overwrite: whether to replace another training.
        """
        settings = {"seed_everything": arguments["--seed"]} | training_settings(
            self.start,
            self.photos,
            self.words,
            plan=self.plan,
            manner=self.start_captions.manner,
            model_name=self.model_name,
            run_folder=self.run_folder,
        )
        self.run_folder.prepare(settings, arguments, overwrite)
        on_start = partial(self.run_folder.begin, arguments, overwrite)
        options = {"resume": continues, "overwrite": not continues}
        try:
            with without_offline_board():
                checkpoint = train(settings | options, self.start, self.photos.data_set, on_start)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted; go on by the same command") from None
        assert checkpoint is not None  # there is one process only
        # So few photos would choose the luckiest epoch; the average of the last one is as good.
        return self.run_folder.path / LAST if self.plan.keeps_content else checkpoint

    def choose(self, checkpoint: Path) -> Choice:
        """Choose the trained captioner, the start or an earlier one; say what has changed."""
        photos, tokenizer_name = self.photos, self.words.tokenizer_name
        earlier = self.run_folder.earlier_model()
        earlier_train_ids: list[int | str] = []
        if earlier is not None:
            for record in photos.validation:
                if photos.short_hash(record) in earlier.train_hashes:
                    earlier_train_ids.append(record.image_id)
        choice = best_between(
            self.start,
            load(checkpoint),
            [photos.val, photos.rehearsal_val],
            start_captions=self.start_captions.captions,
            tokenizer_name=tokenizer_name,
            model_name=self.model_name,
            start_weights=self._start_weights(),
            earlier=None if earlier is None else earlier.captioner,
            earlier_train_ids=earlier_train_ids,
        )
        folder = self.run_folder.path
        say_result(
            self.start,
            photos,
            choice,
            plan=self.plan,
            start_captions=self.start_captions,
            tokenizer_name=tokenizer_name,
            run_folder=folder,
        )
        save_kept_page(folder, choice.captioner, photos.validation, kept_model_text(choice))
        return choice

    def _start_weights(self) -> Sequence[float]:
        """The weights of the start to try in mixtures with the trained model.

        Only 0, the trained model itself, if the start's words are not kept, or if the captions have
        a distinct manner: mixtures lose it. With a quarter of the start's parameters, a quarter of
        the captions return to the start's manner.
        """
        has_manner = self.plan.keeps_content and self.start_captions.manner.is_distinct
        if not self.words.are_known or has_manner:
            return START_WEIGHTS[:1]
        return START_WEIGHTS

    def calibrate(
        self, choice: Choice, folder: str | Path, rehearsal_folder: str | Path | None
    ) -> Calibration | None:
        """Fit the calibration of the chosen captioner and its reviews on the validation photos.

        None if the start was chosen, which keeps its own. Also None, after a line that says so, if
        captions cannot have a confidence.

        Args:
            choice: what was chosen.
            folder: of the photos.
            rehearsal_folder: of the photos to rehearse; None for none.
        """
        if choice.captioner is self.start:
            return None
        calibration = self._calibrate_confidence(choice.captioner, folder, rehearsal_folder)
        if calibration is None:
            return None
        review = fit_review(choice.captioner, self.photos.val, self.start.review_calibration)
        return replace(calibration, review=review)

    def _calibrate_confidence(
        self, captioner: Captioner, folder: str | Path, rehearsal_folder: str | Path | None
    ) -> Calibration | None:
        """Fit the confidence of a captioner other than the start.

        Photos with one caption each cannot tell good captions from others. The start's calibration
        is borrowed then, if the model keeps what the start knows of such photos.
        """
        start, photos = self.start, self.photos
        try:
            judge = scene_judge(folder, "val") if rehearsal_folder is None else None
            judge = judge or partial(
                good_captions,
                records=photos.val,
                tokenizer=self.words.tokenizer_name,
                others=photos.train,
            )
            assessed = assess(captioner, photos.val, judge=judge)
            calibration = fit_calibration(assessed, start.calibration)
            halves, *_ = CalibrationReport.across_halves(assessed, start.calibration)
        except InputError as error:
            if self.plan.keeps_content and start.calibration and start.has_confidence():
                say(
                    "calibrated as the model before, since photos have one caption each: captions "
                    "are as sure as its captions of the same photos, on average"
                )
                records = [*photos.train[:MANNER_SAMPLE], *photos.val]
                confidences = self.start_captions.confidences
                return borrowed_calibration(
                    start.calibration,
                    captioner,
                    {record.image: confidences[record.image_id] for record in records},
                )
            say(f"not calibrated, so captions have no confidence: {error}")
            return None
        say(f"calibrated on each half of these photos, on the other half: {halves.line()}")
        return calibration

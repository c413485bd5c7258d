"""Finetunes a model on a folder of captioned photos: chooses what so many can teach, and trains."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import yaml

from captioning.captioner import Captioner, export, load
from captioning.captioner.calibration import Calibration
from captioning.configurable import LIMITS, full_name
from captioning.data.folder_check import check
from captioning.data.photo_files import photo_hash
from captioning.data.readers import Joined, Reader, reader_for
from captioning.data.records import Record
from captioning.data.tokenizers import TokenizerName, tokenizer_hint
from captioning.data.tokenizers import tokenizer as split_by
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError
from captioning.evaluation.assessment import assess, calibrated, good_captions
from captioning.evaluation.calibration_report import CalibrationReport
from captioning.evaluation.captions import split_captions
from captioning.evaluation.pictures import save_examples
from captioning.evaluation.report import Report, scenes_right
from captioning.files import made_folder, only_writer, read_json, write_json, written_whole
from captioning.metrics.cider import cider_scores
from captioning.progress_bar import ProgressBar, say
from captioning.shelf import DEFAULT, resolved
from captioning.training.checkpoints import BEST, LAST
from captioning.training.initial import between
from captioning.training.module import CIDER_OF_SETS
from captioning.training.train_cli import train
from captioning.web.page import PHOTOS

EXAMPLES = "examples.html"

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the first model's parameters that are tried at the end; see `best_between`."""

SAME_WORDS = 0.5
"""Share of the captions' tokens that the first model knows, from which on its parameters are of
use: 0.95 of drawn scenes, 0.77 of X-ray scans, but 0.22 of Dutch and 0.16 of German captions."""

ANEW = 3
"""Factor of the epochs where the model knows few of the captions' words, so that all are learnt."""

MOST_EPOCHS = 90
"""Of a plan: enough for a few dozen photos, also in another language."""

FEW_WORDS = 1_000
"""A model of more words, which knows few of the captions', is of another language."""

CALL, MODEL, EARLIER = "finetune.json", "best.safetensors", "earlier.safetensors"
"""A run's files, beside those of a training: the call, its model, and that of other photos."""

STARTING = 10.0
"""Seconds in which a training starts, on one idle core."""


class Plan(NamedTuple):
    """How to train on so many photos; the decoder is always trained."""

    stages: int  # of the encoder, the last ones, to train
    epochs: int
    batch_size: int
    use: str  # what so many photos are usually good for

    @classmethod
    def of(cls, photos: int, epochs: int | None = None) -> "Plan":
        """The plan for this number of training photos; `epochs` replaces its own.

        Fewer epochs take as many steps, on smaller batches: words are learnt by steps.
        """
        plan = next(cls(*plan) for most, *plan in PLANS if photos < most)
        epochs = epochs or plan.epochs
        fewer = min(1.0, epochs / plan.epochs)
        return plan._replace(epochs=epochs, batch_size=max(4, int(fewer * plan.batch_size)))

    @property
    def epochs_per_validation(self) -> int:
        """Epochs between some ten validations; a divisor, so that the last epoch is validated."""
        most = -(-self.epochs // 10)
        return max(count for count in range(1, most + 1) if self.epochs % count == 0)


PLANS: list[Any] = [
    (20, 0, MOST_EPOCHS, 4, "a first try; give more"),
    (100, 0, MOST_EPOCHS, 8, "the words and manner of captions"),
    (250, 0, 40, 8, "the words and manner of captions, and frequent things"),
    (500, 0, 20, 8, "the words and manner of captions, and frequent things"),
    (2_000, 3, 12, 8, "captions of pictures like these"),
    (np.inf, 6, 8, 32, "captions of pictures of another kind"),
]
"""For fewer photos than the first number: the plan."""


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
        plan = plan._replace(epochs=min(MOST_EPOCHS, ANEW * plan.epochs))
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


def read_photos(
    folder: str | Path, keep: str | Path | None, skip_bad: bool, options: dict[str, Any]
) -> "Photos":
    """The captioned photos of a finetuning, after a check for faults.

    Raises:
        InputError: there are faults, and `skip_bad` is off; or there are too few photos.
    """
    readers = [reader_for(folder, objects=False, **options)]
    readers += [] if keep is None else [reader_for(keep, objects=False)]
    reader = readers[0] if keep is None else Joined(readers, balanced=True)
    checked = check(reader)
    if not checked.ok:
        say(*str(checked).split("\n"))
        if not skip_bad:
            raise InputError(f"{folder}: has faults; mend them, or leave them out by --skip-bad")

    def good_records(name: str) -> list[Record]:
        split = reader.split_called(name)
        records = reader.read(split) if split else []
        return [record for record in records if record.image not in checked.faulty]

    train, val = good_records("train"), good_records("val")
    own = {
        record.image for split in readers[0].splits for record in readers[0].contents(split).records
    }
    roots = [(folder, options), *([] if keep is None else [(keep, {})])]
    photos = Photos(
        train=[record for record in train if record.image in own],
        val=[record for record in val if record.image in own],
        kept_train=[record for record in train if record.image not in own],
        kept_val=[record for record in val if record.image not in own],
        readers=[
            _reader_settings(one, root, arguments)
            for one, (root, arguments) in zip(readers, roots, strict=True)
        ],
        faulty=sorted(map(str, checked.faulty)),
    )
    counts = [(folder, len(photos.train), len(photos.val))]
    counts += [] if keep is None else [(keep, len(photos.kept_train), len(photos.kept_val))]
    for source, to_train, to_validate in counts:
        if to_train < 2 or not to_validate:
            raise InputError(
                f"{source}: {to_train} photos to train on and {to_validate} to validate; "
                "give at least 3 photos, 2 of them in train and 1 in val if there are splits"
            )
    return photos


@dataclass(frozen=True)
class Photos:
    """The captioned photos of a finetuning.

    Attributes:
        train: the user's photos to train on.
        val: the user's photos to validate on.
        kept_train: photos of another kind that train along.
        kept_val: photos of another kind to validate on.
        readers: of the user's photos, and of the others, as in a configuration.
        faulty: the photos that are left out.
    """

    train: list[Record]
    val: list[Record]
    kept_train: list[Record]
    kept_val: list[Record]
    readers: list[dict[str, Any]]
    faulty: list[str]

    @property
    def validation(self) -> list[Record]:
        """The photos to validate on, the user's first."""
        return [*self.val, *self.kept_val]

    @property
    def training_texts(self) -> list[str]:
        """The captions to train on, those of the user's photos first."""
        records = (*self.train, *self.kept_train)
        return [caption for record in records for caption in record.captions]

    @property
    def own_captions(self) -> int:
        """The number of captions of the user's photos."""
        return sum(len(record.captions) for record in (*self.train, *self.val))

    def digest(self) -> str:
        """A hash of all photos and their captions."""
        content = [
            (record.image_id, record.captions, photo_hash(record.image))
            for record in (*self.train, *self.kept_train, *self.validation)
        ]
        return hashlib.sha256(repr(content).encode(errors="replace")).hexdigest()[:16]

    @property
    def reader_settings(self) -> dict[str, Any]:
        """The reader of all photos, as in a configuration."""
        if len(self.readers) == 1:
            return self.readers[0]
        arguments = {"readers": self.readers, "balanced": True}
        return {"class_path": full_name(Joined), "init_args": arguments}


@dataclass(frozen=True)
class CaptionWords:
    """What the words of the captions to train on are to the model's.

    Attributes:
        are_known: whether the model splits captions alike, and knows at least `SAME_WORDS` of the
            words in captions of the user's photos.
        is_other_language: whether the model is of another language.
        longest: length that at most one of a hundred captions exceeds.
    """

    are_known: bool
    is_other_language: bool
    longest: int

    @classmethod
    def of(
        cls, photos: Photos, vocabulary: Vocabulary, tokenizer_name: TokenizerName
    ) -> "CaptionWords":
        """The words of these photos' captions."""
        texts = list(map(split_by(tokenizer_name), photos.training_texts))
        count = sum(len(record.captions) for record in photos.train)
        known_words = set(vocabulary.words)
        is_known = [word in known_words for text in texts[:count] for word in text]
        has_same_tokenizer = tokenizer_name == vocabulary.tokenizer
        are_known = has_same_tokenizer and bool(np.mean(is_known) >= SAME_WORDS)
        longest = int(np.quantile([len(text) for text in texts], 0.99, method="higher"))
        return cls(
            are_known,
            not are_known and len(vocabulary) > FEW_WORDS,
            min(longest, max(LIMITS["max_length"])),
        )


def say_plan(photos: Photos, plan: Plan, keep: str | Path | None) -> None:
    """Say how many photos there are, and what so many are good for."""
    say(
        f"{len(photos.train):,} photos to train on and {len(photos.val):,} to validate, with "
        f"{photos.own_captions:,} captions: usually good for {Plan.of(len(photos.train)).use}"
    )
    if keep is not None:
        say(
            f"{len(photos.kept_train):,} photos of {keep} train along, and "
            f"{len(photos.kept_val):,} validate"
        )


def captions_before(
    start: Captioner,
    photos: Photos,
    plan: Plan,
    tokenizer_name: TokenizerName,
    model: str | Path,
) -> dict[int | str, str]:
    """The first model's captions of the photos to validate on; says how good they are.

    The time that they take says how long the training will.
    """
    start(photos.val[0].image)  # what is loaded once takes no longer for more photos
    began = perf_counter()
    captions = split_captions(start, photos.validation)
    report = _report(captions, photos.val, start, tokenizer_name)
    # About how many photos the model captions in the same time; there is a page, too.
    trained = len(photos.train) + len(photos.kept_train)
    epoch = trained * (1.5 if plan.stages else 0.7)
    validations = 2.5 * plan.epochs / plan.epochs_per_validation + len(SHARES)
    equivalent = trained + plan.epochs * epoch + (1 + validations) * len(photos.validation)
    seconds = STARTING + (perf_counter() - began) / len(captions) * equivalent
    say(
        f"the model {model} has CIDEr {report.corpus['CIDEr']:.3f} on the photos to validate; at "
        f"most {plan.epochs} epochs, in about {ProgressBar.format_interval(seconds)} min"
    )
    return captions


def say_result(
    start: Captioner,
    first_captions: Mapping[int | str, str],
    kept: "KeptModel",
    photos: Photos,
    run: Path,
    tokenizer_name: TokenizerName,
) -> None:
    """Say what was learnt, and write the page of examples."""
    before = _report(first_captions, photos.val, start, tokenizer_name)
    after = _report(kept.report.captions, photos.val, kept.captioner, tokenizer_name)
    why = f", {kept.share:.0%} of the way back to the model" if kept.share else ""
    if kept.share == 1:
        why = "; the model is kept as it was, which does as well without these photos"
    say(f"CIDEr on the photos to validate: {_cider(before)} before, {_cider(after)} now{why}")
    if after.corpus["CIDEr"] < max(0.1, before.corpus["CIDEr"]):
        # Captions of other photos have up to 0.1.
        say("WARNING: next to nothing was learnt; give more photos, or --epochs and --overwrite")
    save_examples(photos.val, before, after, run / EXAMPLES)
    if kept.share < 1:
        say(after.omissions, "photos with the lowest CIDEr now:")
        for place in after.worst()[:3]:
            record = photos.val[place]
            old, new = before.captions[record.image_id], after.captions[record.image_id]
            people = record.captions[0]
            say(f'  {record.image.name}: "{old}" before, "{new}" now; people: "{people}"')
    if photos.kept_val:
        old_report, new_report = (
            _report(captions, photos.kept_val, kept.captioner, tokenizer_name)
            for captions in (first_captions, kept.report.captions)
        )
        old, new = _cider(old_report), _cider(new_report)
        say(f"CIDEr on the photos to keep: {old} before, {new} now")
    elif kept.share < 1:
        say(everyday_changes(start, kept.captioner))


def everyday_changes(start: Captioner, captioner: Captioner) -> str:
    """How many everyday photos have another caption now, and an example."""
    files = [*PHOTOS.values()]
    changed = [
        (name, old.text, new.text)
        for name, old, new in zip(PHOTOS, start(files), captioner(files), strict=True)
        if old.text.lower() != new.text.lower()
    ]
    example = ""
    if changed:
        name, old_text, new_text = changed[0]
        example = f', such as {name}: "{old_text}" before, "{new_text}" now'
    return (
        f"{len(changed)} of {len(PHOTOS)} everyday photos have another caption now{example}; "
        "--keep FOLDER trains such photos along"
    )


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


def _cider(report: Report) -> str:
    return report.estimates["CIDEr"].text(".3f")


def _reader_settings(reader: Reader, root: str | Path, options: dict[str, Any]) -> dict[str, Any]:
    """A reader as in a configuration."""
    arguments = {"root": str(root), **options, "objects": False}
    parameters = signature(type(reader)).parameters
    return {
        "class_path": full_name(type(reader)),
        "init_args": {name: value for name, value in arguments.items() if name in parameters},
    }


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


def _report(
    captions: Mapping[int | str, str],
    records: Sequence[Record],
    captioner: Captioner,
    tokenizer: TokenizerName,
) -> Report:
    """The CIDEr by this tokenizer of a model's captions of these photos, and perhaps of others."""
    return Report.of(
        {record.image_id: captions[record.image_id] for record in records},
        {record.image_id: record.captions for record in records},
        [cider_scores],
        tokenizer=tokenizer,
        repeatable=captioner.vocabulary.repeatable,
    )


class KeptModel(NamedTuple):
    """The captioner that is kept, the share of the start in it, and its report."""

    captioner: Captioner
    share: float
    report: Report


def best_between(
    model: str,
    trained: Captioner,
    records: Sequence[Record],
    tokenizer: TokenizerName,
    shares: Sequence[float] = SHARES,
    own: int | None = None,
) -> KeptModel:
    """The captioner to keep of those between a trained one and the model that it started from.

    Kept is the one with the highest CIDEr or, if that is within one standard error of the start's
    (after Breiman et al. 1984, "Classification and regression trees", section 3.4.3), the start
    itself, with its own vocabulary and calibration; the trained one if all scores are 0.

    Scores of the first `own` images, and of the others, count relative to the highest mean of
    theirs, so that a kind of photos with high scores does not decide alone.
    """
    captioners = [load(model) if share == 1 else between(model, trained, share) for share in shares]
    reports = [
        _report(split_captions(captioner, records), records, captioner, tokenizer)
        for captioner in captioners
    ]
    scores = np.array([report.images["CIDEr"] for report in reports])
    for part in (scores[:, :own], scores[:, own or len(records) :]):
        if part.any():
            part /= part.mean(axis=1).max()
    if not scores.any():
        return KeptModel(trained, 0.0, reports[0])
    best = int(scores.mean(axis=1).argmax())
    if shares[-1] == 1:
        better = scores[best] - scores[-1]
        if better.mean() <= better.std(ddof=1) / len(records) ** 0.5:
            best = len(shares) - 1
    return KeptModel(captioners[best], shares[best], reports[best])


def training_settings(
    start: Captioner,
    model: str | Path,
    run: Path,
    plan: Plan,
    photos: Photos,
    words: CaptionWords,
    tokenizer_name: TokenizerName,
) -> dict[str, Any]:
    """The configuration of the training."""
    config = start.config
    parts = {name: _as_yaml(part) for name, part in config["model"].items()}
    stages = len(getattr(start.model.encoder, "stages", ()))
    trained_stages = min(plan.stages, max(stages - 1, 0))  # the others' output is computed once
    parts["encoder"]["init_args"] |= {"weights": None, "trainable_stages": trained_stages}
    search = _as_yaml(config["search"])
    if words.longest > search["init_args"].get("max_length", words.longest):
        say(f"captions have up to {words.longest} words; so may the new model's")
        search["init_args"]["max_length"] = words.longest
    if not words.are_known:  # which words people repeat is seen in thousands of captions
        search["init_args"]["repeats"] = True
    if words.is_other_language:
        say(f"captions in another language than {model}'s: none of its words is kept")
    preprocessing = config["preprocessing"]
    # As `best_between` weighs the photos to keep.
    score = CIDER_OF_SETS if photos.kept_val else "CIDEr"
    return {
        "data": {
            "size": preprocessing["size"],
            "fit": preprocessing.get("fit", "crop"),
            "batch_size": plan.batch_size,
            "features": str(run / "features"),
            "tokenizer": tokenizer_name,
            "keep_words": not words.is_other_language,
            "reader": photos.reader_settings,
            "min_count": 1 if photos.own_captions < 2_000 else 3,
            "leave_out": photos.faulty,
        },
        "model": {
            **parts,
            "search": search,
            "default_map": config["default_map"],
            "objective": {
                "class_path": "captioning.training.CrossEntropy",
                "init_args": {"attention_penalty": 0.0},
            },
            "initial": str(model),
            "learning_rate": 4e-4,
            "encoder_learning_rate": 5e-5,
        },
        "checkpoints": {"monitor": f"val/{score}"},
        "early_stopping": {"patience": 4},
        "trainer": {
            "default_root_dir": str(run),
            "max_epochs": plan.epochs,
            "check_val_every_n_epoch": plan.epochs_per_validation,
            "gradient_clip_val": 1.0,
            "callbacks": [{"class_path": "captioning.training.ExponentialAverage"}],
        },
    }


def _as_yaml(config: dict[str, Any]) -> dict[str, Any]:
    """A part's `config` in the form of a configuration file."""
    arguments = {
        name: _as_yaml(value) if isinstance(value, dict) else value
        for name, value in config.items()
        # A training finds out the sizes itself.
        if name not in ("class", "class_name", "annotation_dim", "vocab_size")
    }
    return {"class_path": config.get("class") or config["class_name"], "init_args": arguments}

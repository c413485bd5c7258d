"""Finetunes a model on a folder of captioned photos: chooses what so many can teach, and trains."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import yaml

from captioning.captioner import Captioner, export, load
from captioning.configurable import LIMITS, full_name
from captioning.data.folder_check import check
from captioning.data.photo_files import photo_hash
from captioning.data.readers import Joined, reader_for
from captioning.data.records import Record
from captioning.data.tokenizers import TokenizerName, tokenizer_hint
from captioning.data.tokenizers import tokenizer as split_by
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
        return max(each for each in range(1, most + 1) if self.epochs % each == 0)


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
    initial = load(model)
    known = initial.vocabulary
    cut = tokenizer or known.tokenizer
    split = split_by(cut)
    options = {name: value for name, value in options.items() if value is not None}
    readers = [reader_for(folder, objects=False, **options)]
    readers += [] if keep is None else [reader_for(keep, objects=False)]
    reader = readers[0] if keep is None else Joined(readers, balanced=True)
    found = check(reader)
    if not found.ok:
        say(str(found))
        if not skip_bad:
            raise InputError(f"{folder}: has faults; mend them, or leave them out by --skip-bad")
    bad = found.faulty
    splits = [
        [record for record in reader.read(name) if record.image not in bad] if name else []
        for name in map(reader.split_called, ("train", "val"))
    ]
    own = {record.image for its in readers[0].splits for record in readers[0].contents(its).records}
    training, validation = ([r for r in records if r.image in own] for records in splits)
    others, to_keep = ([r for r in records if r.image not in own] for records in splits)
    for source, train_on, validate in ((folder, training, validation), (keep, others, to_keep)):
        if source is not None and (len(train_on) < 2 or not validate):
            raise InputError(
                f"{source}: {len(train_on)} photos to train on and {len(validate)} to validate; "
                "give at least 3 photos, 2 of them in train and 1 in val if there are splits"
            )
    training_texts = [text for record in (*training, *others) for text in record.captions]
    if hint := tokenizer_hint(training_texts, cut):
        say(hint)
    texts = list(map(split, training_texts))
    of_own = [word for text in texts[: sum(len(r.captions) for r in training)] for word in text]
    words = set(known.words)
    is_same = cut == known.tokenizer and np.mean([w in words for w in of_own]) >= SAME_WORDS
    is_other_language = not is_same and len(known) > FEW_WORDS
    plan = Plan.of(len(training) + len(others), epochs)
    if not is_same and epochs is None:
        plan = plan._replace(epochs=min(MOST_EPOCHS, ANEW * plan.epochs))
    run = made_folder(Path(out or Path("runs") / Path(folder).resolve().name))
    data = [(r.image_id, r.captions, photo_hash(r.image)) for its in splits for r in its]
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
        "digest": hashlib.sha256(repr(data).encode(errors="replace")).hexdigest()[:16],
    }
    goes_on = _goes_on(run, call, overwrite)
    if goes_on and (run / MODEL).exists() and read_json(run / CALL).get("ended") == plan.epochs:
        say(f"{run}: nothing is left to train; to continue, raise --epochs")
        return run / MODEL
    captions = sum(len(record.captions) for record in (*training, *validation))
    say(
        f"{len(training):,} photos to train on and {len(validation):,} to validate, with "
        f"{captions:,} captions: usually good for {Plan.of(len(training)).use}"
    )
    if keep is not None:
        say(f"{len(others):,} photos of {keep} train along, and {len(to_keep):,} validate")
    records = [*validation, *to_keep]
    initial(validation[0].image)  # what is loaded once takes no longer for more photos
    began = perf_counter()
    first = split_captions(initial, records)
    before = _report(first, validation, initial, cut)
    # About how many photos the model captions in the same time; there is a page, too.
    epoch = (len(training) + len(others)) * (1.5 if plan.stages else 0.7)
    validations = 2.5 * plan.epochs / plan.epochs_per_validation + len(SHARES)
    photos = len(training) + len(others) + plan.epochs * epoch + (1 + validations) * len(records)
    seconds = STARTING + (perf_counter() - began) / len(first) * photos
    say(
        f"the model {model} has CIDEr {before.corpus['CIDEr']:.3f} on the photos to validate; at "
        f"most {plan.epochs} epochs, in about {ProgressBar.format_interval(seconds)} min"
    )
    settings = {"seed_everything": seed} | _settings(initial, str(model), run, plan, cut)
    search = settings["model"]["search"]["init_args"]
    # Exceeded by no more than one of a hundred captions.
    longest = int(np.quantile([len(text) for text in texts], 0.99, method="higher"))
    longest = min(longest, max(LIMITS["max_length"]))
    if longest > search.get("max_length", longest):
        say(f"captions have up to {longest} words; so may the new model's")
        search["max_length"] = longest
    if keep is not None:  # as `best_between` weighs the two
        settings["checkpoints"]["monitor"] = f"val/{CIDER_OF_SETS}"
    if not is_same:  # which words people repeat is seen in thousands of captions, not in a few
        search["repeats"] = True
    if is_other_language:
        say(f"captions in another language than {model}'s: none of its words is kept")
    parts = []
    for each, root, more in zip(readers, (folder, keep), (options, {}), strict=False):
        given = {"root": str(root), **more, "objects": False}
        taken = signature(type(each)).parameters
        arguments = {name: value for name, value in given.items() if name in taken}
        parts.append({"class_path": full_name(type(each)), "init_args": arguments})
    both = {"class_path": full_name(Joined), "init_args": {"readers": parts, "balanced": True}}
    settings["data"] |= {
        "keep_words": not is_other_language,
        "reader": parts[0] if keep is None else both,
        "min_count": 1 if captions < 2_000 else 3,
        "leave_out": sorted(map(str, bad)),
    }
    best = load(_trained(run, settings, call, goes_on))
    shares = SHARES if is_same else SHARES[:1]
    kept, share, report = best_between(str(model), best, records, cut, shares, len(validation))
    after = _report(report.captions, validation, kept, cut)
    why = f", {share:.0%} of the way back to the model" if share else ""
    if share == 1:
        why = "; the model is kept as it was, which does as well without these photos"
    old, new = (each.estimates["CIDEr"].text(".3f") for each in (before, after))
    say(f"CIDEr on the photos to validate: {old} before, {new} now{why}")
    if after.corpus["CIDEr"] < max(0.1, before.corpus["CIDEr"]):
        # Captions of other photos have up to 0.1.
        say("WARNING: next to nothing was learnt; give more photos, or --epochs and --overwrite")
    save_examples(validation, before, after, run / EXAMPLES)
    if share < 1:
        say(after.omissions, "photos with the lowest CIDEr now:")
        for photo in (validation[place] for place in after.worst()[:3]):
            old, new = (each.captions[photo.image_id] for each in (before, after))
            people = f'"{new}" now; people: "{photo.captions[0]}"'
            say(f'  {photo.image.name}: "{old}" before, {people}')
    if to_keep:
        reports = (_report(each, to_keep, kept, cut) for each in (first, report.captions))
        old, new = (each.estimates["CIDEr"].text(".3f") for each in reports)
        say(f"CIDEr on the photos to keep: {old} before, {new} now")
    elif share < 1:
        texts_of = [[each.text for each in its([*PHOTOS.values()])] for its in (initial, kept)]
        three = zip(PHOTOS, *texts_of, strict=True)
        changed = [its for its in three if its[1].lower() != its[2].lower()]
        such = [f', such as {name}: "{a}" before, "{b}" now' for name, a, b in changed[:1]]
        line = f"{len(changed)} of {len(PHOTOS)} everyday photos have another caption now"
        say("".join([line, *such, "; --keep FOLDER trains such photos along"]))
    calibration = None
    try:
        if share < 1:
            good = scenes_right(folder, "val") if keep is None else None
            good = good or partial(
                good_captions, records=validation, tokenizer=cut, others=training
            )
            assessed = assess(kept, validation, good=good)
            calibration = calibrated(assessed, initial.calibration)
            halves, *_ = CalibrationReport.across_halves(assessed, initial.calibration)
            say(f"calibrated on each half of these photos, on the other half: {halves.line()}")
    except InputError as error:
        say(f"not calibrated, so captions have no confidence: {error}")
    export(kept, run / MODEL, calibration=calibration)
    write_json(run / CALL, call | {"ended": plan.epochs})
    return run / MODEL


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


def best_between(
    model: str,
    trained: Captioner,
    records: Sequence[Record],
    tokenizer: TokenizerName,
    shares: Sequence[float] = SHARES,
    own: int | None = None,
) -> tuple[Captioner, float, Report]:
    """The captioner to keep of those between a trained one and the model that it started from.

    Kept is the one with the highest CIDEr or, if that is within one standard error of the start's
    (after Breiman et al. 1984, "Classification and regression trees", section 3.4.3), the start
    itself, with its own vocabulary and calibration; the trained one if all scores are 0.

    Scores of the first `own` images, and of the others, count relative to the highest mean of
    theirs, so that a kind of photos with high scores does not decide alone.

    Returns:
        The captioner, the share of the start in its parameters, and its report by the tokenizer.
    """
    captioners = [load(model) if each == 1 else between(model, trained, each) for each in shares]
    reports = [
        _report(split_captions(each, records), records, each, tokenizer) for each in captioners
    ]
    scores = np.array([report.images["CIDEr"] for report in reports])
    for part in (scores[:, :own], scores[:, own or len(records) :]):
        if part.any():
            part /= part.mean(axis=1).max()
    means = scores.mean(axis=1)
    if not scores.any():
        return trained, 0.0, reports[0]
    kept = int(means.argmax())
    if shares[-1] == 1:
        better = scores[kept] - scores[-1]
        if better.mean() <= better.std(ddof=1) / len(records) ** 0.5:
            kept = len(shares) - 1
    return captioners[kept], shares[kept], reports[kept]


def _settings(
    initial: Captioner, model: str, run: Path, plan: Plan, tokenizer: TokenizerName
) -> dict[str, Any]:
    """The configuration of the training, without the data set."""
    config = initial.config
    parts = {name: _as_yaml(part) for name, part in config["model"].items()}
    stages = len(getattr(initial.model.encoder, "stages", ()))
    trained = min(plan.stages, max(stages - 1, 0))  # the others' output is computed once
    parts["encoder"]["init_args"] |= {"weights": None, "trainable_stages": trained}
    preprocessing = config["preprocessing"]
    return {
        "data": {
            "size": preprocessing["size"],
            "fit": preprocessing.get("fit", "crop"),
            "batch_size": plan.batch_size,
            "features": str(run / "features"),
            "tokenizer": tokenizer,
        },
        "model": {
            **parts,
            "search": _as_yaml(config["search"]),
            "default_map": config["default_map"],
            "objective": {
                "class_path": "captioning.training.CrossEntropy",
                "init_args": {"attention_penalty": 0.0},
            },
            "initial": model,
            "learning_rate": 4e-4,
            "encoder_learning_rate": 5e-5,
        },
        "checkpoints": {"monitor": "val/CIDEr"},
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

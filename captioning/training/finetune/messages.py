"""Lines and pages about a finetuning: its photos, its plan, and its result."""

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

from captioning.captioner import Captioner
from captioning.data.tokenizers import TokenizerName
from captioning.evaluation.captions import split_captions
from captioning.evaluation.pictures import save_examples
from captioning.evaluation.report import Report
from captioning.progress_bar import ProgressBar, say
from captioning.training.finetune.choice import SHARES, Candidate, cider_report
from captioning.training.finetune.photos import Photos
from captioning.training.finetune.plan import Plan
from captioning.web.page import PHOTOS

EXAMPLES = "examples.html"

STARTUP_SECONDS = 10.0
"""Seconds in which a training starts, on one idle core."""

UNRELATED_CIDER = 0.1
"""CIDEr that captions of other photos reach."""


def say_plan(photos: Photos, keep: str | Path | None) -> None:
    """Say how many photos there are, and what a data set of this size can teach."""
    say(
        f"{len(photos.train):,} photos to train on and {len(photos.val):,} to validate, with "
        f"{photos.caption_count:,} captions: usually good for {Plan.of(len(photos.train)).lesson}"
    )
    if keep is not None:
        say(
            f"{len(photos.rehearsal_train):,} photos of {keep} train along, and "
            f"{len(photos.rehearsal_val):,} validate"
        )


def caption_with_start(
    start: Captioner,
    photos: Photos,
    plan: Plan,
    tokenizer_name: TokenizerName,
    model: str | Path,
) -> dict[int | str, str]:
    """Caption the photos to validate on with the start; say its CIDEr.

    From the time that this takes, the line also estimates the duration of the training.
    """
    start(photos.val[0].image)  # loads lazily loaded parts before the time is measured
    began = perf_counter()
    captions = split_captions(start, photos.validation)
    report = cider_report(captions, photos.val, start, tokenizer_name)
    # About how many photos the start captions in the time of the training.
    train_count = len(photos.train) + len(photos.rehearsal_train)
    epoch = train_count * (1.5 if plan.stages else 0.7)
    validations = 2.5 * plan.epochs / plan.epochs_per_validation + len(SHARES)
    equivalent = train_count + plan.epochs * epoch + (1 + validations) * len(photos.validation)
    seconds = STARTUP_SECONDS + (perf_counter() - began) / len(captions) * equivalent
    say(
        f"the model {model} has CIDEr {report.corpus['CIDEr']:.3f} on the photos to validate; at "
        f"most {plan.epochs} epochs, in about {ProgressBar.format_interval(seconds)} min"
    )
    return captions


def say_result(
    start: Captioner,
    start_captions: Mapping[int | str, str],
    best: Candidate,
    photos: Photos,
    run: Path,
    tokenizer_name: TokenizerName,
) -> None:
    """Say what the training has changed, and write the page of examples."""
    captioner, captions = best.captioner, best.report.captions
    before = cider_report(start_captions, photos.val, start, tokenizer_name)
    after = cider_report(captions, photos.val, captioner, tokenizer_name)
    origin = f", {best.share:.0%} of the way back to the model" if best.share else ""
    if best.share == 1:
        origin = "; the model is kept as it was, which does as well without these photos"
    say(f"CIDEr on the photos to validate: {_cider(before)} before, {_cider(after)} now{origin}")
    if len(photos.val) == 1:
        say("of one photo CIDEr is always 0; give ten photos or more to see what was learnt")
    elif after.corpus["CIDEr"] < max(UNRELATED_CIDER, before.corpus["CIDEr"]):
        say("WARNING: next to nothing was learnt; give more photos, or --epochs and --overwrite")
    save_examples(run / EXAMPLES, photos.val, before=before, after=after)
    if best.share < 1:
        say(after.omissions, "photos with the lowest CIDEr now:")
        for index in after.worst()[:3]:
            record = photos.val[index]
            old_text, new_text = (report.captions[record.image_id] for report in (before, after))
            texts = f'"{old_text}" before, "{new_text}" now; people: "{record.captions[0]}"'
            say(f"  {record.image.name}: {texts}")
    if photos.rehearsal_val:
        records = photos.rehearsal_val
        before = cider_report(start_captions, records, start, tokenizer_name)
        after = cider_report(captions, records, captioner, tokenizer_name)
        say(f"CIDEr on the photos to keep: {_cider(before)} before, {_cider(after)} now")
    elif best.share < 1:
        say(everyday_changes(start, captioner))


def everyday_changes(start: Captioner, captioner: Captioner) -> str:
    """How many everyday photos have another caption now, and an example."""
    files = list(PHOTOS.values())
    changes = []
    for name, old, new in zip(PHOTOS, start(files), captioner(files), strict=True):
        if old.text.lower() != new.text.lower():
            changes.append(f'{name}: "{old.text}" before, "{new.text}" now')
    example = f", such as {changes[0]}" if changes else ""
    return (
        f"{len(changes)} of {len(PHOTOS)} everyday photos have another caption now{example}; "
        "--keep FOLDER trains such photos along"
    )


def _cider(report: Report) -> str:
    return report.estimates["CIDEr"].text(".3f")

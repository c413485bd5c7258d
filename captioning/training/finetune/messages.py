"""What a finetuning says of its photos, and of what was learnt."""

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

from captioning.captioner import Captioner
from captioning.data.tokenizers import TokenizerName
from captioning.evaluation.captions import split_captions
from captioning.evaluation.pictures import save_examples
from captioning.evaluation.report import Report
from captioning.progress_bar import ProgressBar, say
from captioning.training.finetune.choice import SHARES, KeptModel, cider_report
from captioning.training.finetune.photos import Photos
from captioning.training.finetune.plan import Plan
from captioning.web.page import PHOTOS

EXAMPLES = "examples.html"

STARTING = 10.0
"""Seconds in which a training starts, on one idle core."""


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
    report = cider_report(captions, photos.val, start, tokenizer_name)
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
    before = cider_report(first_captions, photos.val, start, tokenizer_name)
    after = cider_report(kept.report.captions, photos.val, kept.captioner, tokenizer_name)
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
            cider_report(captions, photos.kept_val, kept.captioner, tokenizer_name)
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


def _cider(report: Report) -> str:
    return report.estimates["CIDEr"].text(".3f")

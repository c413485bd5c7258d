"""Lines and pages about a finetuning: its photos, its plan, and its result."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from captioning.captioner import Captioner
from captioning.data.records import Record
from captioning.data.tokenizer_names import TokenizerName
from captioning.data.tokenizers import tokenizer_hint
from captioning.evaluation.manner import Manner
from captioning.evaluation.pictures import save_examples
from captioning.evaluation.report import Report
from captioning.evaluation.reviewed_captions import outliers, review_captions
from captioning.progress_bar import ProgressBar, say
from captioning.training.finetune.choice import START_WEIGHTS, Choice, cider_report
from captioning.training.finetune.outcome import UNRELATED_CIDER, Outcome, content_report
from captioning.training.finetune.photos import FREQUENT, CaptionWords, Photos
from captioning.training.finetune.plan import Plan
from captioning.training.finetune.start_captions import StartCaptions
from captioning.web.page import PHOTOS

EXAMPLES = "examples.html"

STARTUP_SECONDS = 10.0
"""Seconds in which a training starts, on one idle core."""

MAX_REVIEWED = 500
"""Maximum number of training photos whose captions are reviewed."""


def say_plan(
    photos: Photos,
    words: CaptionWords,
    rehearsal_folder: str | Path | None,
    *,
    model_name: str,
) -> None:
    """Say how many photos there are, and which words they teach in another language."""
    if hint := tokenizer_hint([*photos.train_texts, *photos.rehearsal_texts], words.tokenizer_name):
        say(hint)
    say(
        f"{len(photos.train):,} photos to train on and {len(photos.val):,} to validate, with "
        f"{photos.caption_count:,} captions"
    )
    if words.is_other_language:
        line = (
            f"captions in another language than {model_name}'s: none of its words is kept, so "
            f"these captions alone teach {words.count:,} words, of which {words.frequent_count:,} "
            f"occur {FREQUENT} times or more"
        )
        if words.rare_count:
            line += (
                f" and {words.rare_count:,} fewer than {photos.min_count} times, which are left out"
            )
        say(line)
    if rehearsal_folder is not None:
        say(
            f"{len(photos.rehearsal_train):,} photos of {rehearsal_folder} train along, and "
            f"{len(photos.rehearsal_val):,} validate"
        )


def say_outliers(start: Captioner, records: Sequence[Record], folder: str | Path) -> None:
    """Say which captions fit their photos far less than others, if there are any."""
    captions = review_captions(start, records[:MAX_REVIEWED], judge_words=False)
    least = outliers(captions)
    if least:
        say(
            f"{len(least):,} of {len(captions):,} captions fit their photos far less than the "
            f'others, such as "{least[0].text}" of {least[0].photo.name}; '
            f"captioning check {folder} --review shows those that fit least"
        )


def say_start(
    photos: Photos,
    words: CaptionWords,
    start_captions: StartCaptions,
    plan: Plan,
    *,
    model_name: str,
) -> None:
    """Say the start's CIDEr, what the captions teach it, and about how long the training takes."""
    seconds = estimated_seconds(photos, plan, start_captions.seconds)
    cider = start_captions.report.corpus["CIDEr"]
    say(
        f"the model {model_name} has CIDEr {cider:.3f} on the photos to validate; "
        f"at most {plan.epochs} epochs, in about {ProgressBar.format_interval(seconds)} min"
    )
    if plan.keeps_content:
        say(f"{model_name} knows what such photos show; your captions teach it how to say it")
    elif not words.is_other_language:
        say(f"so many photos are usually good for {Plan.of(len(photos.train)).lesson}")


def estimated_seconds(photos: Photos, plan: Plan, caption_seconds: float) -> float:
    """Estimate the time of a training.

    Args:
        photos: the photos.
        plan: how long and how deeply to train.
        caption_seconds: the time in which the start captions a photo, the unit of the factors here.
    """
    val_count = len(photos.validation)
    features = photos.train_count + val_count
    epoch = photos.train_count * (1.5 if plan.trainable_stages else 0.7)
    if plan.keeps_content:
        epoch *= 3
    validation = 2.5 * val_count
    candidates = len(START_WEIGHTS) * val_count
    units = features + plan.epochs * epoch + candidates
    units += plan.epochs / plan.epochs_per_validation * validation
    return STARTUP_SECONDS + caption_seconds * units


def say_result(
    start: Captioner,
    photos: Photos,
    choice: Choice,
    *,
    plan: Plan,
    start_captions: StartCaptions,
    tokenizer_name: TokenizerName,
    run_folder: Path,
) -> None:
    """Say what the training has changed, and write the page of examples.

    Scores are of the captions by candidates that other photos chose; examples are the captions of
    the model that is kept.
    """
    report_of = partial(cider_report, tokenizer_name=tokenizer_name)
    before = start_captions.report
    after = report_of(choice.captioner, choice.cross_fitted_captions, photos.val)
    origin = ""
    if choice.start_weight:
        origin = f", {choice.start_weight:.0%} of the way back to the model"
    if choice.start_weight == 1:
        origin = "; the model is kept as it was, which does as well without these photos"
    if choice.is_earlier:
        new_report = report_of(choice.captioner, choice.new_captions, photos.val)
        origin = (
            "; the earlier model is kept, since all photos together now gave a worse one, with "
            f"CIDEr {_cider(new_report)}"
        )
    say(f"CIDEr on the photos to validate: {_cider(before)} before, {_cider(after)} now{origin}")
    manner = start_captions.manner
    if len(photos.val) == 1:
        say("of one photo CIDEr is always 0; give ten photos or more to see what was learnt")
    elif after.corpus["CIDEr"] < max(UNRELATED_CIDER, before.corpus["CIDEr"]):
        say("WARNING: next to nothing was learnt; give more photos, or --epochs and --overwrite")
    captions = start_captions.captions, choice.cross_fitted_captions
    if manner.log_odds and choice.start_weight < 1:
        say(*Outcome.of(photos.val, *captions, manner, tokenizer_name).lines())
    final_report = report_of(choice.captioner, choice.captions, photos.val)
    save_examples(run_folder / EXAMPLES, photos.val, before=before, after=final_report)
    if choice.start_weight < 1:
        say(final_report.omissions)
        say_lowest(photos.val, before=before, after=final_report)
    if photos.rehearsal_val:
        say_rehearsal(photos.rehearsal_val, captions, manner, tokenizer_name)
    elif choice.start_weight < 1:
        say(everyday_changes(start, choice.captioner, plan))


def say_lowest(records: Sequence[Record], *, before: Report, after: Report) -> None:
    """Say the captions of the photos with the lowest CIDEr now."""
    say("photos with the lowest CIDEr now:")
    for index in after.worst()[:3]:
        record = records[index]
        old_text, new_text = (report.captions[record.image_id] for report in (before, after))
        texts = f'"{old_text}" before, "{new_text}" now; people: "{record.captions[0]}"'
        say(f"  {record.image.name}: {texts}")


def kept_model_text(choice: Choice) -> str:
    """A phrase for the model that is kept, for the page of the training."""
    if choice.is_earlier:
        return "the earlier model, which is better than this training's"
    if choice.start_weight == 1:
        return "the model as it was before the training"
    if choice.start_weight:
        return f"the trained model, {choice.start_weight:.0%} of the way back to its start"
    return "the trained model"


def say_rehearsal(
    records: Sequence[Record],
    captions: tuple[Mapping[int | str, str], Mapping[int | str, str]],
    manner: Manner,
    tokenizer_name: TokenizerName,
) -> None:
    """Say the CIDEr of the rehearsal photos before and after, without the words of the manner."""
    before, after = (content_report(records, texts, manner, tokenizer_name) for texts in captions)
    say(f"CIDEr on the photos to keep: {_cider(before)} before, {_cider(after)} now")


def everyday_changes(start: Captioner, captioner: Captioner, plan: Plan) -> str:
    """How many everyday photos have another caption now, and an example.

    What keeps such captions is said only if content was learnt: a manner should change them.
    """
    files = list(PHOTOS.values())
    changes = []
    for name, old, new in zip(PHOTOS, start(files), captioner(files), strict=True):
        if old.text.lower() != new.text.lower():
            changes.append(f'{name}: "{old.text}" before, "{new.text}" now')
    example = f", such as {changes[0]}" if changes else ""
    hint = "" if plan.keeps_content else "; --keep FOLDER trains such photos along"
    return (
        f"{len(changes)} of {len(PHOTOS)} everyday photos have another caption now{example}{hint}"
    )


def _cider(report: Report) -> str:
    return report.estimates["CIDEr"].text(".3f")

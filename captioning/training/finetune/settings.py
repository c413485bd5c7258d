"""The configuration of a finetuning's training."""

from inspect import signature
from typing import Any

from captioning.captioner import Captioner
from captioning.evaluation.manner import Manner
from captioning.progress_bar import say
from captioning.training.finetune.photos import CaptionWords, Photos
from captioning.training.finetune.plan import Plan
from captioning.training.finetune.run_folder import RunFolder
from captioning.training.module import CIDER_OF_SETS


def training_settings(
    start: Captioner,
    photos: Photos,
    words: CaptionWords,
    *,
    plan: Plan,
    manner: Manner,
    model_name: str,
    run_folder: RunFolder,
) -> dict[str, Any]:
    """The configuration of the training, as in a file for `captioning train`."""
    config = start.config
    parts = _model_parts(start, plan)
    search = _search(start, words, manner)
    preprocessing = config["preprocessing"]
    # `best_between` weighs the data sets alike.
    score = CIDER_OF_SETS if photos.rehearsal_val else "CIDEr"
    return {
        "data": {
            "size": preprocessing["size"],
            "fit": preprocessing.get("fit", "crop"),
            "batch_size": plan.batch_size,
            "features": str(run_folder.features),
            "tokenizer": words.tokenizer_name,
            "keep_words": not words.is_other_language,
            "reader": photos.reader_settings,
            "min_count": photos.min_count,
            "leave_out": photos.faulty,
        },
        "model": {
            **parts,
            "search": search,
            "default_map": config["default_map"],
            "objective": _objective(plan, manner),
            "initial": model_name,
            "learning_rate": 4e-4,
            "encoder_learning_rate": 5e-5,
        },
        "checkpoints": {"monitor": f"val/{score}"},
        "early_stopping": {"patience": plan.epochs if plan.keeps_content else 4},
        "trainer": {
            "default_root_dir": str(run_folder.path),
            "max_epochs": plan.epochs,
            "check_val_every_n_epoch": plan.epochs_per_validation,
            "gradient_clip_val": 1.0,
            "callbacks": [{"class_path": "captioning.training.ExponentialAverage"}],
        },
    }


def _objective(plan: Plan, manner: Manner) -> dict[str, Any]:
    """Learning without forgetting, or cross-entropy if the start cannot teach what photos show."""
    if not plan.keeps_content:
        return {
            "class_path": "captioning.training.CrossEntropy",
            "init_args": {"attention_penalty": 0.0},
        }
    return {
        "class_path": "captioning.training.WithoutForgetting",
        "init_args": {"manner": [list(pair) for pair in manner.pairs], "lacked": [*manner.lacked]},
    }


def _model_parts(start: Captioner, plan: Plan) -> dict[str, Any]:
    """The start's encoder, adapter and decoder, with the plan's trainable stages."""
    parts = {name: _as_yaml(part) for name, part in start.config["model"].items()}
    stage_count = len(getattr(start.model.encoder, "stages", ()))
    # One stage must be frozen, for features.
    trainable_stages = min(plan.trainable_stages, max(stage_count - 1, 0))
    changes = {"weights": None, "trainable_stages": trainable_stages}
    parameters = signature(type(start.model.encoder)).parameters
    parts["encoder"]["init_args"] |= {
        name: value for name, value in changes.items() if name in parameters
    }
    return parts


def _search(start: Captioner, words: CaptionWords, manner: Manner) -> dict[str, Any]:
    """The start's search, which may find captions as long as the new ones.

    If captions get longer, by a beginning that all of them have, the length penalty grows with
    them: otherwise the search would shorten what comes after the beginning.
    """
    search = _as_yaml(start.config["search"])
    if words.max_length > search["init_args"].get("max_length", words.max_length):
        say(f"captions have up to {words.max_length} words; so may the new model's")
        search["init_args"]["max_length"] = words.max_length
    if words.are_known and "length_penalty" in search["init_args"]:
        length_penalty = search["init_args"]["length_penalty"] * manner.length_ratio
        search["init_args"]["length_penalty"] = round(length_penalty, 2)
    if not words.are_known:  # few captions do not show which words people repeat
        search["init_args"]["repeats"] = True
    return search


def _as_yaml(config: dict[str, Any]) -> dict[str, Any]:
    """A part's `config` in the form of a configuration file."""
    arguments = {
        name: _as_yaml(value) if isinstance(value, dict) else value
        for name, value in config.items()
        # These sizes follow from the encoder and the vocabulary.
        if name not in ("class", "class_name", "annotation_dim", "vocab_size")
    }
    return {"class_path": config.get("class") or config["class_name"], "init_args": arguments}

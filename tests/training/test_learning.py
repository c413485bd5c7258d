"""A training learns: everywhere, in seconds, on a few drawn scenes."""

from pathlib import Path

import pytest

from captioning.captioner import load
from captioning.data.readers import Coco
from captioning.evaluation.captions import split_captions
from captioning.evaluation.report import Report
from tests.training.conftest import Train


@pytest.mark.parametrize("kernels", ["on", pytest.param("off", marks=pytest.mark.integration)])
def test_six_scenes_are_learnt_by_heart(train_into: Train, shapes_data: Path, kernels: str) -> None:
    folder = train_into(
        "run",
        *("--kernels", kernels, "--trainer.precision", "32-true"),
        *("--data.val_split", "train", "--data.batch_size", "6", "--data.size", "48"),
        *("--model.decoder.init_args.embedding_dim", "64"),
        *("--model.decoder.init_args.hidden_dim", "64"),
        *("--model.decoder.init_args.attention_dim", "32"),
        *("--model.decoder.init_args.dropout", "0"),
        *("--model.objective.init_args.label_smoothing", "0"),
        *("--model.objective.init_args.attention_penalty", "0"),
        *("--model.search.init_args.max_length", "20"),
        *("--model.learning_rate", "1e-2", "--model.encoder_learning_rate", "4e-3"),
        *("--trainer.max_epochs", "60", "--trainer.check_val_every_n_epoch", "60"),
    )
    captioner = load(folder / "best.ckpt", kernels=kernels == "on")
    records = Coco(shapes_data).read("train")
    captions = split_captions(captioner, records)
    assert captions is not None
    report = Report.of(captions, {record.image_id: record.captions for record in records})
    assert len(set(captions.values())) == 6
    assert report.corpus["BLEU-4"] > 0.7  # of a model that has not learnt: 0

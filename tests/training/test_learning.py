"""A training learns: everywhere, in seconds, on a few drawn scenes."""

import json
import shutil
from pathlib import Path

import pytest

from captioning.captioner import load
from captioning.data.readers import Coco
from captioning.evaluation.captions import split_captions
from captioning.evaluation.report import Report
from tests.training.conftest import Train

JAPANESE = {
    **{"circle": "円", "square": "四角形", "triangle": "三角形", "star": "星", "cross": "十字"},
    **{"red": "赤い", "green": "緑の", "blue": "青い", "yellow": "黄色い", "purple": "紫の"},
    **{"orange": "オレンジ色の", "small": "小さな", "large": "大きな", "and": "と"},
    **{"left": "左の", "right": "右の", "above": "上の", "below": "下の"},
}


def in_japanese(data: Path) -> None:
    """Translate the captions of drawn scenes, word by word."""
    for path in (data / "annotations").glob("captions_*.json"):
        content = json.loads(path.read_text())
        for each in content["annotations"]:
            each["caption"] = "".join(JAPANESE.get(word, "") for word in each["caption"].split())
        path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("kernels", "tokenizer"),
    [
        ("on", "ptb"),
        pytest.param("off", "ptb", marks=pytest.mark.integration),
        pytest.param("on", "characters", marks=pytest.mark.integration),
        pytest.param("on", "japanese", marks=pytest.mark.integration),
    ],
)
def test_six_scenes_are_learnt_by_heart(
    train_into: Train, shapes_data: Path, tmp_path: Path, kernels: str, tokenizer: str
) -> None:
    data = shutil.copytree(shapes_data, tmp_path / "data")
    if tokenizer != "ptb":
        in_japanese(data)
    folder = train_into(
        "run",
        *("--kernels", kernels, "--trainer.precision", "32-true", "--trainer.logger", "false"),
        *("--data.reader.init_args.root", str(data), "--data.tokenizer", tokenizer),
        *("--data.val_split", "train", "--data.batch_size", "6", "--data.size", "48"),
        *("--model.decoder.init_args.embedding_dim", "64"),
        *("--model.decoder.init_args.hidden_dim", "64"),
        *("--model.decoder.init_args.attention_dim", "32"),
        *("--model.decoder.init_args.dropout", "0"),
        *("--model.objective.init_args.label_smoothing", "0"),
        *("--model.objective.init_args.attention_penalty", "0"),
        *("--model.search.init_args.max_length", "20" if tokenizer == "ptb" else "40"),
        *("--model.learning_rate", "1.5e-2", "--model.encoder_learning_rate", "6e-3"),
        *("--trainer.max_epochs", "40", "--trainer.check_val_every_n_epoch", "40"),
    )
    captioner = load(folder / "best.ckpt", kernels=kernels == "on")
    records = Coco(data).read().records("train")
    captions = split_captions(captioner, records)
    references = {record.image_id: record.captions for record in records}
    report = Report.of(captions, references, tokenizer=captioner.vocabulary.tokenizer)
    assert len(set(captions.values())) == 6
    assert report.corpus["BLEU-4"] > 0.7  # of a model that has not learnt: 0

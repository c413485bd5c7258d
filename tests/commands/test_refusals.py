"""Command lines that no command can follow: one line each, which names what is wrong."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.commands.test_score import BAD, GOOD, REFERENCES, coco, lines, results
from tests.conftest import draw_photos, refusal

TOKENS = "".join(f"{image}.jpg#0\t{texts[0]} .\n" for image, texts in REFERENCES.items())

FILES: dict[str, Any] = {
    "full.html": "<p>none</p>",
    "utf-16.html": "<img src=photo.jpg>".encode("utf-16"),
    "empty.csv": "",
    "full.csv": "image,caption\nphoto.jpg,a\n",
    "uncaptioned.csv": "image,x\nphoto.jpg,a\n",
    "bytes.csv": b"\xff\xfe\xfa",
    "table.xlsx": "PK",
    "table.jsonl": "{}",
    "good.json": results(GOOD),
    "first two.json": results(GOOD)[:2],
    "bad.json": results(BAD),
    "last two.json": results(BAD)[1:],
    "further.json": results({**BAD, 8: "b", 9: "c"}),
    "text.json": "captions",
    "coco.json": {"annotations": []},
    "uncaptioned.json": [{"image_id": 1}],
    "cut.json": lines(BAD) + "{",
    "twice.json": lines(BAD) * 2,
    "two.txt": "a bus\na dog",
    "Flickr8k.token.txt": TOKENS,
    "none/Flickr8k.token.txt": "",
    "cut/Flickr8k.token.txt": "a.jpg#0\ta\nb\n",
    "empty.json": {},
    "good.jsonl": lines(GOOD),
    "good.txt": "\n".join(GOOD.values()),
    "same images/annotations/captions_train.json": coco(REFERENCES),
    "same images/annotations/captions_test.json": coco(REFERENCES),
    "boxless/annotations/captions_train.json": coco(REFERENCES),
    "boxless/annotations/captions_test.json": coco(REFERENCES, first=3),
    "misspelt.yaml": "model: {decoder: {init_args: {hiden_dim: 3}}}",
    "cut.yaml": "model: [1",
    "text.yaml": "just words",
}
"""What the commands below read, in their working folder, beside photo.jpg and model.ckpt."""

CAPTION = "caption photo.jpg --model model.ckpt"
SAY = "caption photo.jpg --model shapes"
COMPARE, TOKEN_FILE = "compare bad.json", "Flickr8k.token.txt"
SERVE = "serve --model none.ckpt --port 0"
TRAIN = "train --config tiny.yaml --trainer.default_root_dir run --trainer.max_epochs 1"
FROZEN = f"{TRAIN} --data.features=features --model.encoder.init_args.trainable_stages=0 "
FROZEN += "--model.objective=captioning.training."
CLASSES = "--model.objective.init_args.classes=0.5 --model.encoder.init_args.weights=shapes"

USAGE = {
    # Misspelt.
    "captoin a.jpg": 'Did you mean "caption"?',
    "caption a.jpg --oevrlay x": "Did you mean --overlay?",
    "caption --beam wide": '"wide"',
    "caption --list": "--list",
    "score a.json": "requires an argument",
    "serve --port 99999": "Must be <= 65535",
    "caption a.jpg --temperature=0": "--greedy",
    "caption a.jpg --top-p=0": "--top-p",
    "caption a.jpg --beam=-1": "--beam",
    "caption a.jpg --batch-size=0": "--batch-size",
    "caption a.jpg --captions=0": "--captions",
    "caption a.jpg --min-confidence=50": "Must be <= 1",
    # Removed.
    "compare A B C --trials 9": "--trials was removed",
    "compare A B C --format csv": "--format was removed",
    "compare A B C --out x": "--out was removed",
    "caption x --model a --model b": "give one --model",
    "shapes x --hard": "--hard was removed",
    "score a.json b.json --spice": "--spice was removed",
}
"""Command lines that a parser refuses, with exit code 2, and what their line names."""

INPUT = {
    # Removed.
    "train --config shapes_hard_scenes": "shapes_hard_scenes was removed",
    f"{TRAIN} --model.objective=captioning.training.SupervisedAttention": "GuidedAttention",
    f"{TRAIN} --model.encoder.init_args.backbone=plain": "'plain' was removed",
    f"{TRAIN} --data.reader=captioning.data.readers.PhotoShards": "PhotoShards was removed",
    f"{TRAIN} --model.objective.init_args.consensus=1": "consensus was removed",
    # Captions.
    f"{CAPTION} --max-megapixels 0.0023": "60 x 40 pixels",
    f"{CAPTION} --greedy --length-penalty 1": "Greedy has no length penalty",
    f"{CAPTION} --min-length 9 --max-length 8": "min_length 9 is greater than max_length 8",
    f"{CAPTION} --device nonsense": "'nonsense'",
    f"{CAPTION} --beam 2 --greedy": "--greedy",
    f"{CAPTION} --confidence": "not calibrated",
    f"{CAPTION} --out shards --map occlusion --overlay maps": "--out",
    f"{CAPTION} --out shards --captions 2": "--out",
    f"{CAPTION} --out shards --overwrite": "--out",
    f"{CAPTION} --ray auto": "give --out",
    f"{CAPTION} --json --csv -": "--json and --csv",
    f"{CAPTION} --csv --json": "--csv",
    f"{CAPTION} --avoid red --sample": "--sample",
    f"{CAPTION} --text 'a square' --begin a": "--text",
    f"{CAPTION} --text 'a zebra'": "'zebra'",
    f"{CAPTION} --diverse": "give --captions N",
    "caption photo.jpg --model none.ckpt": "none.ckpt: no such model",
    # A table that cannot be written is reported before the model is loaded.
    "caption photo.jpg --model none.ckpt --csv photo.jpg/a.csv": "photo.jpg/a.csv: cannot be",
    f"{SAY} --no-repeats": "repeat",
    f"{SAY} --must-say bleu": "did you mean blue?",
    f"{SAY} --begin 'a zebra'": "'zebra'",
    # Pages and tables to be filled.
    "caption --alt gone.html": "gone.html: no such file",
    "caption --alt full.html": "full.html: no photo without a caption",
    "caption --alt utf-16.html": "utf-16.html: no page in UTF-8",
    "caption --alt full.html --fill full.csv": "give one of them",
    "caption --alt full.html photo.jpg": "leave out others",
    "caption --fill empty.csv": "empty.csv: no rows",
    "caption --fill full.csv": "no photo without a caption",
    "caption --fill uncaptioned.csv": "columns image, x",
    "caption --fill bytes.csv": "bytes.csv: not UTF-8",
    "caption --fill table.xlsx": "table.xlsx: a spreadsheet",
    "caption --fill table.jsonl": "table.jsonl: --fill",
    # Captions and references to be compared.
    f"compare text.json good.json {TOKEN_FILE}": "text.json: ",
    f"compare coco.json good.json {TOKEN_FILE}": "coco.json: line 1: {'annotations': []}",
    f"compare uncaptioned.json good.json {TOKEN_FILE}": "caption 1: {'image_id': 1}",
    f"compare further.json good.json {TOKEN_FILE}": "2 of 5 images",
    f"compare 'last two.json' good.json {TOKEN_FILE}": "image 1000_a",
    f"compare cut.json good.json {TOKEN_FILE}": "cut.json: line 4",
    f"compare twice.json good.json {TOKEN_FILE}": "two captions",
    f"compare table.xlsx good.json {TOKEN_FILE}": "table.xlsx: a spreadsheet",
    f"compare gone good.json {TOKEN_FILE}": "gone: no such file",
    f"compare two.txt good.json {TOKEN_FILE}": "references of 3 images",
    f"{COMPARE} 'first two.json' {TOKEN_FILE}": "first two.json: no caption of image 1002_c",
    f"{COMPARE} good.json none/{TOKEN_FILE}": f"none/{TOKEN_FILE}: no captions",
    f"{COMPARE} good.json cut/{TOKEN_FILE}": "line 2",
    f"{COMPARE} good.json empty.json": "empty.json: unknown layout",
    f"score uncaptioned.csv {TOKEN_FILE}": "columns image, x",
    f"score good.json {TOKEN_FILE} --metric SPICE": "SPICE was removed",
    f"score good.json {TOKEN_FILE} --metric BLUE": "BLUE: unknown; choose from BLEU",
    "score good.jsonl 'same images'": "image 0 is in two splits; name one by --split",
    "score good.txt boxless": "train, test; name one by --split",
    f"score good.json {TOKEN_FILE} --split test": f"{TOKEN_FILE} has no split 'test'",
    "ground --model model.ckpt --data boxless --split train": "instances_*.json",
    # Trainings.
    f"{TRAIN} --checkpoints.monitor=val/BLEU": "'val/BLEU'; choose from val/BLEU-1, ",
    f"{TRAIN} --validation_grounding.map=lime": "'lime'",
    f"{TRAIN} --validation_page.maps=[lime]": "'lime'",
    f"{TRAIN} --trainer.accelerator=gpu --trainer.devices=9": "the trainer cannot do this",
    f"{TRAIN} --trainer.precision=bf16-true": "32-true",
    f"{TRAIN} --trainer.val_check_interval=12": "val_check_interval",
    f"{TRAIN} --data.min_count=99": "data.min_count",
    f"{TRAIN} --data.features=features": "data.features",
    f"{TRAIN} --model.decoder=LSTMDecodr": "LSTMDecodr",
    f"{TRAIN} --model.decoder=captioning.kernels.fast_lstm.FastLSTM": "is not allowed",
    f"{TRAIN} --model.encoder.init_args.zzz=3": "'zzz'",
    f"{TRAIN} --data.batch_size=many": "data.batch_size",
    f"{TRAIN} --config=no_such": "no_such: no such file",
    f"{TRAIN} stray": "stray",
    f"{TRAIN} --config misspelt.yaml": "hiden_dim",
    f"{TRAIN} --config cut.yaml": "cut.yaml: ",
    f"{TRAIN} --config text.yaml": "text.yaml: ",
    # Objectives: refused before photos are encoded.
    f"{FROZEN}GuidedAttention {CLASSES}": "shapes: has no classifier",
    f"{FROZEN}GuidedAttention --model.decoder.init_args.deep_output=false": "deep output",
    f"{FROZEN}SelfCritical --model.objective.init_args.samples=1": "not 1",
    f"{FROZEN}SampledBound": "no hard attention",
    # Servers, refused before the model is loaded.
    f"{SERVE} --allow-host=": "'' is not a host name",
    f"{SERVE} --allow-host=http://a": "'http://a' is not a host name",
    f"{SERVE} --allow-host=a:80": "'a:80' is not a host name",
    f"{SERVE} --allow-host=a/b": "'a/b' is not a host name",
    f"{SERVE} --allow-host=*": "'*' is not a host name",
    f"{SERVE} --allow-host=::1": "'::1' is not a host name",
    f"{SERVE} --host=a..b": "cannot listen on a..b, port 0",
    f"{SERVE} --host=no.such.host.invalid": "cannot listen on no.such.host.invalid, port 0",
    # Exports.
    "export shapes model.onnx --onnx": "need a folder",
    "export shapes model.zip": ".safetensors",
    "export shapes model.safetensors --onnx": "need a folder",
    "export shapes model --onnx --half": "--half, --onnx",
    "export shapes model.safetensors --license mit": "for a folder",
    "export shapes model --model shapes": "give one model",
}
"""Commands with input that they refuse, with exit code 1, and what their line names."""


@pytest.fixture
def folder(
    checkpoint: Path, tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The working folder."""
    monkeypatch.chdir(tmp_path)
    draw_photos(tmp_path, "photo.jpg", *(f"boxless/train/{name}.jpg" for name in REFERENCES))
    Path("model.ckpt").symlink_to(checkpoint)
    Path("tiny.yaml").symlink_to(tiny_config)
    for name, content in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path


@pytest.mark.parametrize(
    ("command", "named", "code"),
    [(*row, code) for code, rows in ((2, USAGE), (1, INPUT)) for row in rows.items()],
    ids=[*USAGE, *INPUT],
)
def test_a_command_that_cannot_be_followed_is_one_line(
    command: str, named: str, code: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {*folder.iterdir()}
    line = refusal(shlex.split(command), capsys, code)
    assert named in line
    assert line.endswith("See captioning --help.") == (code == 2 and "removed" not in line)
    assert {*folder.iterdir()} - before <= {folder / "run"}  # whose training has not begun

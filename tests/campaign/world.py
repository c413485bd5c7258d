"""What all cases work with: drawn scenes, a configuration, a trained model, photos and tables."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class World:
    """Files that no case changes.

    Attributes:
        folder: that holds all of them.
    """

    folder: Path

    @property
    def shapes(self) -> Path:
        """Drawn scenes in COCO's layout: 6 to train on, 4 to validate on, 2 more."""
        return self.folder / "shapes"

    @property
    def photos(self) -> list[Path]:
        """The scenes' pictures."""
        return sorted(self.shapes.rglob("*.jpg"))

    @property
    def config(self) -> Path:
        """A configuration that trains for an epoch of 3 steps, in a second."""
        return self.folder / "config.yaml"

    @property
    def frozen(self) -> Path:
        """The same with a frozen encoder, whose features can be kept."""
        return self.folder / "frozen.yaml"

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration's values."""
        settings: dict[str, Any] = yaml.safe_load(self.config.read_text())
        return settings

    @property
    def model(self) -> Path:
        """What the configuration trains."""
        return self.folder / "run" / "best.ckpt"

    @property
    def frequencies(self) -> Path:
        """Document frequencies of the references."""
        return self.folder / "frequencies.npz"

    @property
    def references(self) -> Path:
        """Captions of the validation split."""
        return next(self.shapes.glob("annotations/captions_val*.json"))

    @property
    def results(self) -> Path:
        """Somebody's captions of the validation split."""
        return self.folder / "results.json"

    @property
    def ratings(self) -> Path:
        """Somebody's ratings of those captions."""
        return self.folder / "ratings.csv"

    @property
    def words(self) -> Path:
        """Which words name which category."""
        return self.folder / "words.json"

    @property
    def files(self) -> list[Path]:
        """One of each kind, a photo first."""
        written = [self.config, self.results, self.words, self.model, self.frequencies]
        return [self.photos[0], self.references, *written]

    @property
    def caption(self) -> Path:
        """What `caption --json` prints of the first photo."""
        return self.folder / "caption.jsonl"

    @property
    def options(self) -> Path:
        """Every option of every command."""
        return self.folder / "options.json"

    def make(self) -> None:
        """Write all of it; in a child, as it computes."""
        from captioning.commands import main
        from captioning.shapes import write_shapes
        from tests.campaign.kinds.options import all_options

        write_shapes(self.shapes, train=6, val=4, test=2, pixels=48, progress=False)
        self.config.write_text(yaml.safe_dump(_settings(self.shapes)))
        frozen = _settings(self.shapes)
        frozen["model"]["encoder"]["init_args"]["trainable_stages"] = 0
        self.frozen.write_text(yaml.safe_dump(frozen))
        run = ["--trainer.default_root_dir", str(self.model.parent)]
        _succeed(main(["train", "--config", str(self.config), *run]))
        references = json.loads(self.references.read_text())
        results = {
            entry["image_id"]: {"image_id": entry["image_id"], "caption": entry["caption"]}
            for entry in references["annotations"]
        }
        self.results.write_text(json.dumps(list(results.values())))
        rows = [f"{image},a blue star,{image % 3}" for image in results]
        self.ratings.write_text("\n".join(["image,caption,rating", *rows]) + "\n")
        instances = json.loads(
            self.references.with_name(
                self.references.name.replace("captions", "instances")
            ).read_text()
        )
        words = {entry["name"]: [entry["name"]] for entry in instances["categories"]}
        self.words.write_text(json.dumps({"categories": words}))
        scored = ["score", str(self.results), str(self.references)]
        _succeed(main([*scored, "--save-frequencies", str(self.frequencies)]))
        with self.caption.open("w") as file, contextlib.redirect_stdout(file):
            _succeed(main(["caption", str(self.photos[0]), "--json", "--model", str(self.model)]))
        self.options.write_text(json.dumps(all_options(), indent=1))


def _succeed(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"exit code {code}")


def _settings(shapes: Path) -> dict[str, Any]:
    return {
        "data": {
            "reader": {
                "class_path": "captioning.data.readers.Coco",
                "init_args": {"root": str(shapes)},
            },
            "size": 32,
            "batch_size": 2,
            "min_count": 1,
            "workers": 0,
        },
        "model": {
            "encoder": {
                "class_path": "captioning.models.CNNEncoder",
                "init_args": {"backbone": "small", "weights": None, "trainable_stages": -1},
            },
            "decoder": {
                "class_path": "captioning.models.LSTMDecoder",
                "init_args": {"embedding_dim": 8, "hidden_dim": 8, "attention_dim": 8},
            },
            "search": {
                "class_path": "captioning.search.BeamSearch",
                "init_args": {"width": 2, "max_length": 6},
            },
        },
        "trainer": {"max_epochs": 1, "accelerator": "cpu"},
    }

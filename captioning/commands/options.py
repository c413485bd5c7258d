"""Options of several commands: data, model, search and metrics."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt
from cyclopts.validators import Number

from captioning.errors import InputError
from captioning.progress_bar import stage
from captioning.shelf import DEFAULT_MODEL, path_of

if TYPE_CHECKING:
    from captioning.captioner import Captioner
    from captioning.data.readers import DataSet, Reader
    from captioning.metrics.scores import PhotoScorer, Scorer
    from captioning.search import Search

Images = Annotated[
    Path | None, Parameter(help="The folder of the data set's photos, if not one of the usual.")
]
CaptionColumn = Annotated[
    str | None,
    Parameter(help="The column of the captions, if the data set is a table that leaves doubt."),
]
PhotoColumn = Annotated[
    str | None,
    Parameter(help="The column of the photos, if the data set is a table that leaves doubt."),
]
CaptionsFrom = Annotated[
    Literal["xmp", "iptc", "exif"] | None,
    Parameter(
        help="Read the captions that photos carry, or .xmp files beside them (xmp), and not those "
        "of --xmp."
    ),
]
MaxMegapixels = Annotated[
    PositiveFloat, Parameter(help="Refuse photos of more million pixels unread; at most 178.")
]
Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
"""A number from 0 to 1."""

Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]

MAY_BEGIN_WITH_DASH = Parameter(allow_leading_hyphen=True)
"""For options whose value may be ``-``."""

MAP_HELP = (
    "attention, evidence, attention-evidence, attention-fine-evidence, gradient, grad-cam or "
    "occlusion"
)
"""For help texts: the names in `captioning.maps`, which takes seconds to import."""

MapNames = Annotated[
    tuple[str, ...],
    Parameter(
        name="--map",
        help=f"A map of a word: {MAP_HELP}; of a model with several heads also one of them, such "
        "as 'head 3' or 'layer 2 head 3', or heads for all; repeatable.",
    ),
]


@Parameter(name="*", group="Data")
@dataclass(frozen=True)
class DataOptions:
    """A split of one or several data sets."""

    data: tuple[Path, ...]
    """The data set, or hf://datasets/OWNER/NAME; repeatable, to join several."""
    split: str = "val"
    """The split."""
    images: Images = None
    caption_column: CaptionColumn = None
    photo_column: PhotoColumn = None
    captions_from: CaptionsFrom = None
    limit: PositiveInt | None = None
    """Use only the first N images."""
    max_megapixels: MaxMegapixels = 100.0

    def reader(self, objects: bool = False) -> "Reader":
        """Return the reader of the data sets, with boxes and masks of the split or without."""
        from captioning.data.readers import Joined, reader_for

        readers = [
            reader_for(
                folder,
                objects=self.split if objects else False,
                images=self.images,
                caption_column=self.caption_column,
                photo_column=self.photo_column,
                captions_from=self.captions_from,
            )
            for folder in self.data
        ]
        return Joined(readers) if len(readers) > 1 else readers[0]

    def read(self, reader: "Reader") -> "DataSet":
        """Read the data sets by `reader`, and say what is left out of the split."""
        with stage("reading the captions"):
            data_set = reader.read()
        data_set.say_problems(self.split)
        return data_set

    @property
    def name(self) -> str:
        """The names of the folders, without the paths of this machine."""
        return " + ".join(folder.resolve().name for folder in self.data)


@Parameter(name="*", group="Model")
@dataclass(frozen=True)
class ModelOptions:
    """Which model captions, and how it computes."""

    model: Annotated[str, Parameter(allow_repeating=False)] = DEFAULT_MODEL
    """A file, a folder, hf://OWNER/NAME, or the name of a model that comes with the package."""
    batch_size: PositiveInt = 16
    """Photos at a time."""
    device: str | None = None
    """cpu, cuda or mps; by default the fastest that there is."""
    bf16: bool = False
    """Compute in bfloat16: faster on recent GPUs, CPUs with AMX, and AMD's with AVX-512 BF16,
    slower elsewhere; near-ties may resolve differently."""
    kernels: Literal["on", "off"] | None = None
    """off: use the plain model, which is slower on CPUs and gives the same results."""

    def load(self, max_megapixels: float = 100.0) -> "Captioner":
        """Load the captioner, on its device."""
        from captioning.captioner import load
        from captioning.device import usable_device

        kernels = None if self.kernels is None else self.kernels == "on"
        device = usable_device(self.device)
        return load(self.model, device, self.bf16, max_megapixels, kernels)

    @property
    def path(self) -> Path:
        """The file of the model."""
        return path_of(self.model)


def _check_temperature(_: type, value: float | None) -> None:
    if value is not None and value <= 0:
        raise ValueError("Must be > 0; for the most probable words give --greedy.")


@Parameter(name="*", group=Group("Search", help="By default as the model's file says."))
@dataclass(frozen=True)
class SearchOptions:
    """How words are chosen."""

    beam: PositiveInt | None = None
    """Beam search of this width."""
    greedy: bool = False
    """Always the most probable word."""
    sample: bool = False
    """Draw words by their probability."""
    temperature: Annotated[float | None, Parameter(validator=_check_temperature)] = None
    """Of sampling."""
    top_k: NonNegativeInt | None = None
    """Sample from the N best words; 0 for all."""
    top_p: Annotated[float | None, Parameter(validator=Number(gt=0, lte=1))] = None
    """Sample from the best words of this total probability."""
    length_penalty: float | None = None
    """0 favours short captions, 1 does not."""
    max_length: PositiveInt | None = None
    """Largest number of words."""
    min_length: NonNegativeInt | None = None
    """Smallest number of words."""
    no_repeat_ngram: NonNegativeInt | None = None
    """Never repeat N words in a row."""
    repeats: Annotated[bool | None, Parameter(negative="--no-repeats")] = None
    """Let a caption say all words again, or only those that people often do."""
    seed: int = 0
    """Of sampling."""

    def search(self, captioner: "Captioner") -> "Search":
        """Return the captioner's search with these options applied, and seed sampling.

        Raises:
            InputError: the options are of several searches, or the model lacks what they need.
        """
        import torch

        from captioning.search import BeamSearch, Greedy, Sampling

        searches: list[type[Search]] = []
        if self.beam is not None:
            searches.append(BeamSearch)
        if self.greedy:
            searches.append(Greedy)
        if self.sample:
            searches.append(Sampling)
        if len(searches) > 1:
            raise InputError("--beam, --greedy and --sample are three searches; give one of them")
        if self.repeats is False and captioner.vocabulary.repeatable is None:
            raise InputError(
                "--no-repeats: this model's file does not say which words people repeat; train it "
                "again"
            )
        torch.manual_seed(self.seed)
        [search_class] = searches or [type(captioner.search)]
        settings = {
            "width": self.beam,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "length_penalty": self.length_penalty,
            "max_length": self.max_length,
            "min_length": self.min_length,
            "no_repeat_ngram": self.no_repeat_ngram,
            "repeats": self.repeats,
            "seed": self.seed if search_class is Sampling else None,
        }
        changes = {name: value for name, value in settings.items() if value is not None}
        if not searches and not changes:
            return captioner.search
        return captioner.search.replace(search_class, **changes)


@Parameter(name="*", group=Group("Metrics", help="In addition to BLEU, ROUGE-L and CIDEr."))
@dataclass(frozen=True)
class MetricOptions:
    """Metrics to compute in addition to the usual ones."""

    metric: tuple[str, ...] = ()
    """A metric of captioning.metrics.registry; repeatable."""
    meteor: bool = False
    """METEOR; needs the extra meteor."""
    frequencies: Path | None = None
    """CIDEr's document frequencies, a file of `score --save-frequencies`; by default those of the
    scored images' references."""
    clip: bool = False
    """CLIPScore and RefCLIPScore, from the photos; needs the extra clip."""
    clip_weights: Path | None = None
    """CLIP's weights, a folder in open_clip's layout; by default OpenAI's ViT-B/32, downloaded."""

    def scorers(self) -> "tuple[Scorer, ...]":
        """Return the scorers that need no photos."""
        from functools import partial

        from captioning.metrics.cider import DocumentFrequencies, cider_scores
        from captioning.metrics.registry import scorers

        scorers_by_name = scorers([*self.metric, *["METEOR"] * self.meteor])
        if self.frequencies is not None:
            frequencies = DocumentFrequencies.load(self.frequencies)
            scorers_by_name["CIDEr"] = partial(cider_scores, frequencies=frequencies)
        return tuple(scorers_by_name.values())

    def photo_scorers(
        self, photos: Mapping[Any, Path] | None, max_megapixels: float, device: str | None = None
    ) -> "tuple[PhotoScorer, ...]":
        """Return the scorers that need photos (by image id); CLIP computes on `device`."""
        if not self.clip:
            return ()
        if photos is None:
            raise InputError("--clip needs the photos; give their folder by --photos")
        from captioning.data.references import check_photos
        from captioning.device import usable_device
        from captioning.metrics.clip_score import ClipScore

        check_photos(photos)
        pixels = int(max_megapixels * 1e6)
        return (ClipScore(photos, self.clip_weights, usable_device(device), pixels),)

    def note_on_cider(self, images: int) -> None:
        """Warn that CIDEr of a single image is 0."""
        if images == 1 and self.frequencies is None:
            note = "CIDEr of one image is always 0; score more images, or give --frequencies"
            print(f"captioning: {note}", file=sys.stderr)

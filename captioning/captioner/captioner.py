"""Photos in, captions out.

Shapes: B images, L regions, D annotation width.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar, overload

import torch
from jaxtyping import Float
from torch import Tensor

from captioning.captioner.calibration import Calibration, ReviewCalibration
from captioning.captioner.caption import Caption, Captions
from captioning.captioner.caption_builder import CaptionBuilder
from captioning.captioner.configuration import CaptionerParts, build_parts
from captioning.captioner.inference_network import InferenceNetwork
from captioning.captioner.photo_stream import StreamedPhoto, photo_batches
from captioning.captioner.review import Review, Reviewer, default_review
from captioning.captioner.user_words import check_words, constrained_search
from captioning.data.preprocessing import Photo, Preprocessing, is_one_photo
from captioning.data.vocabulary import Vocabulary
from captioning.errors import InputError, PhotoError, raise_errors
from captioning.maps import default_map, resolve_map_names
from captioning.models import Model
from captioning.search import BeamSearch, Decoded, Search
from captioning.threads import in_threads, thread_count

Result = TypeVar("Result")

BATCH_SIZE = 16
"""The most photos per batch, by default."""


class Captioner:
    """A model with its vocabulary, preprocessing and search: photos in, captions out.

    Args:
        model: encoder, adapter and decoder.
        vocabulary: the words.
        preprocessing: how a photo becomes an image; the same in training and afterwards.
        search: the default search; beam search if None.
        map_name: the default map of a word (`captioning.maps`); defaults to the one that suits the
            decoder.
        kernels: whether to use the fast kernels; see `InferenceNetwork`.
        calibration: makes the probabilities of words calibrated, and gives captions a confidence;
            None for a model that has not been calibrated (`captioning calibrate`).

    Raises:
        InputError: the vocabulary does not fit the decoder, or the model has no such map.

    Attributes:
        network: computes with the model, by kernels and in bfloat16 if asked to.
    """

    __slots__ = (  # setting any other attribute is an error
        "calibration",
        "default_map",
        "model",
        "network",
        "preprocessing",
        "search",
        "vocabulary",
    )

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        preprocessing: Preprocessing,
        search: Search | None = None,
        map_name: str | None = None,
        kernels: bool | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        if model.decoder.vocab_size != len(vocabulary):
            raise InputError(
                f"the decoder has {model.decoder.vocab_size} words, the vocabulary "
                f"{len(vocabulary)}"
            )
        [self.default_map] = resolve_map_names([map_name or default_map(model)], model)
        self.model = model
        self.network = InferenceNetwork(model, kernels)
        self.vocabulary = vocabulary
        self.preprocessing = preprocessing
        self.search = search or BeamSearch()
        self.calibration = calibration

    def __repr__(self) -> str:
        """The classes of its parts, and the number of its words."""
        parts = (self.model.encoder, self.model.decoder, self.search)
        names = ", ".join(type(part).__name__ for part in parts)
        return f"Captioner({names}, {len(self.vocabulary):,} words)"

    @property
    def config(self) -> dict[str, Any]:
        """Plain values from which `from_config` builds the same captioner, without parameters."""
        return CaptionerParts(
            self.model,
            self.vocabulary,
            self.preprocessing,
            self.search,
            self.default_map,
            self.calibration,
        ).config

    @classmethod
    def from_config(
        cls, config: Any, kernels: bool | None = None, device: str = "cpu"
    ) -> "Captioner":
        """Build the captioner of a `config`, with random parameters on a device.

        Raises:
            InputError: a part is missing, has the wrong type, or does not fit the others.
        """
        return cls(**build_parts(config, device)._asdict(), kernels=kernels)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.network.device

    def to(self, device: str | torch.device) -> "Captioner":
        """Move the model to a device; returns this object.

        On a GPU, TF32 is off from now on, whose annotation vectors differ by 1 % from a CPU's.
        """
        if torch.device(device).type == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        self.model.to(device)
        return self

    def has_confidence(self, search: Search | None = None) -> bool:
        """Whether the calibration was fitted on captions by a search, by default the own one.

        Captions by other searches have no confidence.
        """
        search = search or self.search
        return self.calibration is not None and self.calibration.search == search.config

    @property
    def review_calibration(self) -> ReviewCalibration | None:
        """The calibration of reviews; None if there is none."""
        return None if self.calibration is None else self.calibration.review

    def freeze(self) -> "Captioner":
        """Prepare for inference: evaluation mode, no gradients, faster encoding."""
        self.network.freeze()
        return self

    @overload
    def __call__(self, photos: Photo, *args: Any, **options: Any) -> Caption: ...

    @overload
    def __call__(self, photos: Iterable[Photo], *args: Any, **options: Any) -> list[Caption]: ...

    def __call__(
        self,
        photos: Any,
        search: Search | None = None,
        maps: Sequence[str] = (),
        runners_up: int = 0,
        most: int | None = 1,
    ) -> Caption | list[Caption]:
        """Caption a photo or several photos; see `stream`.

        Raises:
            PhotoError: a photo cannot be read.
        """
        captions = list(raise_errors(self.stream(photos, search, maps, runners_up, most)))
        return captions[0] if is_one_photo(photos) else Captions(captions)

    def stream(
        self,
        photos: Photo | Iterable[Photo],
        search: Search | None = None,
        maps: Sequence[str] = (),
        runners_up: int = 0,
        most: int | None = 1,
        batch_size: int = BATCH_SIZE,
        tokens: Sequence[Sequence[int]] | None = None,
        photo_side: int | None = None,
        texts: Sequence[str] | None = None,
    ) -> Iterator[Caption | PhotoError]:
        """Yield the caption of each photo, in order, or why the photo cannot be read.

        Args:
            photos: any iterable of `Photo`, which may be endless; an array (N, H, W, 3) or a tensor
                (N, 3, H, W).
            search: how words are chosen; defaults to the captioner's search.
            maps: names of maps to compute for the whole batch at once; ``heads`` stands for those
                of every layer and head. Other maps are computed by `Caption.map`.
            runners_up: number of alternatives to each word. They, or a confidence, cost one more
                pass over the captions.
            most: number of captions per photo to keep, the others as `Caption.others`; None for
                all that the search finds.
            batch_size: the most photos per batch.
            tokens: a caption of each photo as word ids, which is read and not searched.
            photo_side: keep each photo as `Caption.photo`, with at most so many pixels on its
                longer side, to draw on without reading the file again.
            texts: instead of `tokens`, captions as text, whose words may be unknown. They are
                reviewed, too, if the model is calibrated for it.

        Raises:
            InputError: the model's numbers overflow, or it has no such map.
        """
        search = search or self.search
        search = search.for_words(self.vocabulary, self.network.device)
        map_names = resolve_map_names(maps, self.model)
        if texts is not None:
            tokens = [self.vocabulary.encode(text)[1:] for text in texts]
        reviewer = None
        if texts is not None and self.review_calibration is not None:
            reviewer = Reviewer(self.network, self.vocabulary, self.review_calibration)
        builder = CaptionBuilder(
            network=self.network,
            vocabulary=self.vocabulary,
            calibration=self.calibration,
            image_side=self.preprocessing.size,
            search=search,
            has_confidence=tokens is None and self.has_confidence(search),
            map_names=map_names,
            shown_maps=map_names or (self.default_map,),
            runners_up=runners_up,
            most=most,
            tokens=tokens,
            texts=texts,
            reviewer=reviewer,
        )
        for captions in self.batches(
            photos, builder.batch_captions, batch_size, in_turn=search.draws, photo_side=photo_side
        ):
            yield from captions

    def batches(
        self,
        photos: Photo | Iterable[Photo],
        work: Callable[[Sequence[StreamedPhoto | PhotoError]], Result],
        batch_size: int = BATCH_SIZE,
        in_turn: bool = False,
        photo_side: int | None = None,
    ) -> Iterator[Result]:
        """Yield the result of `work` for each batch of photos, in order; `stream` is made of it.

        Threads read the photos of the next batches. On a CPU several batches are worked on at once.

        Args:
            photos: as for `stream`.
            work: gets what the model sees of each photo of a batch, or why it cannot be read.
            batch_size: the most photos per batch.
            in_turn: one batch after another on a CPU, too.
            photo_side: as for `stream`.

        Raises:
            InputError: `photos` are neither a photo nor several.
        """
        device = self.network.device
        batches = photo_batches(
            photos,
            self.preprocessing,
            batch_size=batch_size,
            threads=None if in_turn else thread_count(device),
            photo_side=photo_side,
        )
        yield from in_threads(work, batches, device, in_turn=in_turn)

    def read(
        self, photo: Photo, text: str, runners_up: int = 0, maps: Sequence[str] = ()
    ) -> Caption:
        """Return a caption with these words, and the probabilities that the model gives them.

        It has a review, too, if the model is calibrated for it.

        Args:
            photo: as for `stream`.
            text: words of the vocabulary.
            runners_up: number of alternatives to each word, which the model would have said.
            maps: names of the maps that pictures and pages show.

        Raises:
            PhotoError: the photo cannot be read.
            InputError: a word is unknown, or there is no such map.
        """
        check_words(
            text,
            photo,
            vocabulary=self.vocabulary,
            preprocessing=self.preprocessing,
            network=self.network,
        )
        captions = self.stream([photo], maps=maps, runners_up=runners_up, texts=[text])
        [caption] = raise_errors(captions)
        return caption

    def review(
        self, photo: Photo, text: str, doubt: float = 0.5, wrong_share: float = 0.5
    ) -> Review:
        """Review a caption: does the photo bear it out, and each of its words?

        Args:
            photo: as for `stream`.
            text: the caption; its words may be unknown.
            doubt: words with a smaller chance are doubtful.
            wrong_share: how many captions like this one are expected to be wrong; between 0 and 1.

        Raises:
            PhotoError: the photo cannot be read.
            InputError: there are no words, or the model has no calibration of reviews.
        """
        [[review]] = raise_errors(self.reviews([photo], [[text]], doubt, wrong_share))
        return review

    def reviews(
        self,
        photos: Sequence[Photo],
        texts: Sequence[Sequence[str]],
        doubt: float = 0.5,
        wrong_share: float = 0.5,
        batch_size: int = BATCH_SIZE,
        judge_words: bool = True,
    ) -> Iterator[list[Review] | PhotoError]:
        """Yield the reviews of each photo's captions, or why the photo cannot be read.

        A model without a calibration of reviews takes that of the model that comes with the
        package, and the means of the first photos as its priors.

        Args:
            photos: the photos.
            texts: the captions of each photo.
            doubt: as for `review`.
            wrong_share: as for `review`.
            batch_size: as for `stream`.
            judge_words: whether words have chances, which take most of the time.

        Raises:
            InputError: a caption has no words, or there is one photo and no calibration.
        """
        calibration = self.review_calibration or default_review(
            self.network, self.preprocessing, photos
        )
        reviewer = Reviewer(
            self.network, self.vocabulary, calibration, doubt, wrong_share, judge_words
        )
        for reviews in self.batches(photos, partial(reviewer.review, texts=texts), batch_size):
            yield from reviews

    def constrained(
        self,
        begin: str = "",
        avoid: Sequence[str] = (),
        must_say: Sequence[str] = (),
        search: Search | None = None,
        width: int | None = None,
    ) -> Search:
        """Return a search for captions that have, or do not have, these words.

        Args:
            begin: the beginning of every caption.
            avoid: words and phrases that no caption contains. Words match as a whole: captions
                without ``dog`` may have ``dogs``. Unknown words are never said.
            must_say: words and phrases that every caption contains.
            search: the search to take other settings from; defaults to the captioner's search.
            width: number of captions to follow; by default the width of `search` for each bank of
                captions that need equally many words.

        Raises:
            InputError: a word to say is unknown, or no caption can be as asked.
        """
        search = search or self.search
        return constrained_search(search, self.vocabulary, begin, avoid, must_say, width)

    def find_captions(
        self, annotations: Float[Tensor, "B L D"], search: Search | None = None
    ) -> Decoded:
        """Find captions from annotation vectors of `InferenceNetwork.encode`.

        The search defaults to the captioner's search.
        """
        search = search or self.search
        search = search.for_words(self.vocabulary, self.network.device)
        memory = self.network.remember(self.network.adapt(annotations))
        return self.network.find_captions(memory, search)

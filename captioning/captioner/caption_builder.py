"""Captions of a batch of photos, with probabilities, alternatives and maps of their words.

Shapes: B images, N captions per image, T words, k alternatives.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.captioner.calibration import Calibration, confidence_features
from captioning.captioner.caption import Caption, RunnerUp
from captioning.captioner.decoded_batch import DecodedBatch, decode_batch, encode_batch
from captioning.captioner.inference_network import InferenceNetwork
from captioning.captioner.photo_stream import StreamedPhoto
from captioning.captioner.review import Reviewer
from captioning.data.preprocessing import View
from captioning.data.vocabulary import EOS, PAD, Vocabulary
from captioning.errors import PhotoError
from captioning.maps import ATTENTION, word_maps
from captioning.search import Search
from captioning.search.search import find_alternatives, token_log_probs


@dataclass(frozen=True)
class Chances:
    """Probabilities of a batch's captions and words, calibrated if the model is.

    Attributes:
        words: the probability of each word, and of the end.
        confidences: the probability that each caption is good.
        photo_kinds: `Calibration.photo_kind` of each photo.
        runners_up: the alternatives to each word, as token ids, and their probabilities.
    """

    words: Float[Tensor, "B N T"]
    confidences: Float[Tensor, "B N"] | None
    photo_kinds: Float[Tensor, " B"] | None
    runners_up: tuple[Int[Tensor, "B N T k"], Float[Tensor, "B N T k"]] | None


@dataclass(frozen=True)
class CaptionBuilder:
    """Builds the captions of a stream, batch by batch.

    Attributes:
        network: the model that captions the photos, and computes maps later.
        vocabulary: the words.
        calibration: of the model; None if it is not calibrated.
        image_side: side of the model's images in pixels.
        search: how words are chosen.
        has_confidence: whether the calibration holds for the search that finds the captions.
        map_names: the maps to compute for the whole batch at once.
        shown_maps: the maps that pictures and pages show.
        runners_up: number of alternatives to each word.
        most: the most captions per photo; None for all that the search finds.
        tokens: a caption of each photo of the stream as word ids, which is read and not searched;
            None to search.
        texts: the same captions as text; None if they are not to be reviewed.
        reviewer: reviews the texts; None if the model is not calibrated for it.
    """

    network: InferenceNetwork
    vocabulary: Vocabulary
    calibration: Calibration | None
    image_side: int
    search: Search
    has_confidence: bool
    map_names: Sequence[str]
    shown_maps: tuple[str, ...]
    runners_up: int
    most: int | None
    tokens: Sequence[Sequence[int]] | None
    texts: Sequence[str] | None
    reviewer: Reviewer | None

    @torch.no_grad()  # in inference mode, autocast would cast all weights again at every word
    def batch_captions(
        self, photos: Sequence[StreamedPhoto | PhotoError]
    ) -> list[Caption | PhotoError]:
        """Return the best caption of each photo of a batch, or why it cannot be read."""
        streamed_photos = [photo for photo in photos if isinstance(photo, StreamedPhoto)]
        if not streamed_photos:
            return [photo for photo in photos if isinstance(photo, PhotoError)]
        reference_tokens = None
        if self.tokens is not None:
            ids = [torch.tensor(self.tokens[photo.number]) for photo in streamed_photos]
            reference_tokens = pad_sequence(ids, batch_first=True, padding_value=PAD)[:, None]
        needs_logits = self.calibration is not None or self.runners_up > 0
        batch = decode_batch(
            self.network, streamed_photos, self.search, reference_tokens, needs_logits, self.most
        )
        captions = self._captions(streamed_photos, batch)
        if self.texts is not None and self.reviewer is not None:
            photo_texts = [[self.texts[photo.number]] for photo in streamed_photos]
            reviews = self.reviewer.review_vectors(batch.adapted, photo_texts)
            pairs = zip(captions, reviews, strict=True)
            captions = (caption.reviewed(review) for caption, [review] in pairs)
        return [photo if isinstance(photo, PhotoError) else next(captions) for photo in photos]

    def _captions(self, photos: Sequence[StreamedPhoto], batch: DecodedBatch) -> Iterator[Caption]:
        """Yield the best caption of each photo of a decoded batch, with the others as `others`."""
        chances = self._chances(batch)
        model, side = self.network.model, self.image_side
        attention = batch.captions.weights.float()
        maps = {ATTENTION: attention.unflatten(3, model.encoder.grid(side, side)).cpu()}
        if set(self.map_names) - {ATTENTION}:
            captioned = batch.captioned(self.network, batch.captions.tokens, attention)
            for name in self.map_names:
                if name != ATTENTION:
                    maps[name] = word_maps(name, captioned).float().cpu()
        scores = batch.captions.scores.cpu()
        for index, photo in enumerate(photos):
            count = max(int((~scores[index].isneginf()).sum()), 1)  # empty beams score -inf
            captions = [
                self._caption(photo, batch, chances, maps, index, rank) for rank in range(count)
            ]
            yield replace(captions[0], others=tuple(captions[1:]))

    def _chances(self, batch: DecodedBatch) -> Chances:
        """Compute the probabilities of captions and words."""
        calibration, captions = self.calibration, batch.captions
        logits, log_probs = batch.logits, captions.log_probs
        confidences = photo_kinds = alternatives = None
        if calibration is not None and logits is not None:
            photo_kinds = calibration.photo_kind(batch.annotations)
            if self.has_confidence:
                features = confidence_features(captions, logits, photo_kinds, self.vocabulary)
                confidences = calibration.confidence(features).cpu()
            logits = logits / calibration.temperature
            log_probs = token_log_probs(logits, captions.tokens)
        if self.runners_up and logits is not None:
            words, probabilities = find_alternatives(logits, captions.tokens, self.runners_up)
            alternatives = words.cpu(), probabilities.cpu()
        return Chances(log_probs.exp().cpu(), confidences, photo_kinds, alternatives)

    def _caption(
        self,
        photo: StreamedPhoto,
        batch: DecodedBatch,
        chances: Chances,
        maps: Mapping[str, Float[Tensor, "B N T rows columns"]],
        index: int,
        rank: int,
    ) -> Caption:
        """Build one caption.

        Args:
            photo: the photo.
            batch: the decoded batch of the photo.
            chances: of the batch.
            maps: of the batch, by name.
            index: place of the photo in the batch.
            rank: place of the caption among the photo's captions, the best first.
        """
        view, tokens = photo.view, batch.captions.tokens[index, rank].cpu()
        words = self.vocabulary.spelt(tokens.tolist())
        length = len(words)
        probabilities = tuple(chances.words[index, rank, :length].tolist())
        confidence = None
        if chances.confidences is not None and EOS in tokens:  # it was not cut off
            confidence = chances.confidences[index, rank].item()
        named: tuple[float | None, ...] = ()
        calibration = self.calibration
        if calibration is not None and calibration.named and chances.photo_kinds is not None:
            photo_kind = chances.photo_kinds[index].item()
            pairs = zip(words, probabilities, strict=True)
            named = tuple(
                calibration.chance_named(word, chance, photo_kind) for word, chance in pairs
            )
        return Caption(
            words=words,
            probabilities=probabilities,
            named=named,
            score=batch.captions.scores[index, rank].item(),
            crop=view.crop,
            size=view.size,
            maps={name: weights[index, rank, :length].numpy() for name, weights in maps.items()},
            shown_maps=self.shown_maps,
            tokenizer=self.vocabulary.tokenizer,
            joints=self.vocabulary.joints,
            confidence=confidence,
            runners_up=self._runners_up(chances, index, rank, length),
            photo=None if isinstance(photo.photo, View) else photo.photo,
            _compute_map=partial(caption_map, self.network, photo, tokens, length),
            _measure_cell_offset=partial(self.network.model.encoder.cell_offset, self.image_side),
        )

    def _runners_up(
        self, chances: Chances, index: int, rank: int, length: int
    ) -> tuple[tuple[RunnerUp, ...], ...]:
        """Return the alternatives to each word of a caption; None stands for its end."""
        if chances.runners_up is None:
            return ()
        tokens, probabilities = chances.runners_up
        rows = zip(tokens[index, rank, :length], probabilities[index, rank, :length], strict=True)
        runners_up = []
        for word_tokens, word_probabilities in rows:
            alternatives = []
            for token, probability in zip(
                word_tokens.tolist(), word_probabilities.tolist(), strict=True
            ):
                word = None if token == EOS else self.vocabulary.spelt([token])[0]
                alternatives.append(RunnerUp(word, probability))
            runners_up.append(tuple(alternatives))
        return tuple(runners_up)


@torch.no_grad()
def caption_map(
    network: InferenceNetwork,
    photo: StreamedPhoto,
    tokens: Int[Tensor, " T"],
    length: int,
    name: str,
) -> Float[Tensor, "_ rows columns"]:
    """Compute a map of one caption's words, which was not computed with its batch."""
    batch = encode_batch(network, [photo])
    captioned = batch.captioned(network, tokens.to(network.device)[None, None])
    return word_maps(name, captioned)[0, 0, :length].float().cpu()

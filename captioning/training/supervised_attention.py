"""Attention supervised by boxes of the objects that words name.

Shapes: B images, N captions per image, T words, L regions, M words that name objects.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.dataset import Batch, Seen
from captioning.data.preprocessing import Preprocessing
from captioning.data.records import ImageObject, Record
from captioning.data.vocabulary import PAD, Vocabulary
from captioning.errors import InputError
from captioning.evaluation.grounding import Lexicon, categories, named_by_people
from captioning.evaluation.grounding.targets import Area, cell_edges
from captioning.models import Model
from captioning.training.objectives import CrossEntropy, Loss, grid_of


@dataclass(eq=False)
class SupervisedAttention(CrossEntropy):
    """Cross-entropy, with attention that follows boxes (Liu et al. 2017, "Attention
    Correctness in Neural Image Captioning", AAAI).

    Before a word that names an annotated object, the target attention of a region is the share of
    it that boxes of the object's category cover. The cross-entropy of the attention against this
    target, summed over these words, is added to the loss. The words that name objects come from the
    data set (`Record.phrases`) or from a lexicon.

    Args:
        label_smoothing: share of a word's probability spread over the vocabulary.
        attention_penalty: lambda of eq. 14 of Xu et al. 2015, in the paper's proportion.
        boxes: factor of the added loss; 0.1 as published.
        consensus: see `CrossEntropy`.
    """

    needs_seen = True

    attention_penalty: float = 0.0
    boxes: float = 0.1

    def prepare(
        self, records: Sequence[Record], vocabulary: Vocabulary, preprocessing: Preprocessing
    ) -> None:
        super().prepare(records, vocabulary, preprocessing)
        names = categories(records)
        if not names:
            raise InputError(
                "no training photo has objects with boxes, from which attention could learn; set "
                "the objects of data.reader to true, or take another objective"
            )
        if vocabulary.tokenizer != "ptb":
            raise InputError("boxes are found for words of ptb; set data.tokenizer to ptb")
        self._lexicon = Lexicon.of(names)

    def __call__(self, model: Model, annotations: Float[Tensor, "B L D"], batch: Batch) -> Loss:
        loss, weights = self.of_words(model.decoder, model.remember(annotations), batch.tokens)
        size = self.preprocessing.size
        grid, offset = grid_of(model.encoder, size, annotations), model.encoder.cell_offset(size)
        places, shares = wanted_attention(batch, self.vocabulary, self._lexicon, grid, offset)
        lost = box_loss(weights, places, shares)
        mean = lost.detach() / max(len(places), 1)
        return Loss(loss.total + self.boxes * lost, loss.divisor, {"boxes": mean})


def box_loss(
    weights: Float[Tensor, "B N T L"], places: Int[Tensor, "M 3"], shares: Float[Tensor, "M L"]
) -> Float[Tensor, ""]:
    """The cross-entropy of attention against its targets, in nats, summed over words."""
    image, caption, word = places.to(weights.device).T
    attended = weights[image, caption, word].float().clamp_min(1e-6)
    return -(shares.to(weights.device) * attended.log()).sum()


def wanted_attention(
    batch: Batch,
    vocabulary: Vocabulary,
    lexicon: Lexicon,
    grid: tuple[int, int],
    offset: tuple[float, float] = (0.0, 0.0),
) -> tuple[Int[Tensor, "M 3"], Float[Tensor, "M L"]]:
    """The words that name visible objects: image, caption, position; and attention before them."""
    places, shares = [], []
    for image, (record, seen) in enumerate(zip(batch.records, batch.seen, strict=True)):
        named = named_by_people(record, lexicon)
        objects = defaultdict(list)
        for each in record.objects:
            objects[each.name].append(each)
        of_category = {name: box_shares(its, seen, grid, offset) for name, its in objects.items()}
        ids = [vocabulary.encode(caption) for caption in record.captions] if named else []
        for row, tokens in enumerate(batch.tokens[image].tolist()):
            read = [token for token in tokens if token != PAD]  # a caption, perhaps truncated
            matches = [i for i, its in enumerate(ids) if read and its[: len(read)] == read]
            for number, mention in named:
                share = of_category.get(mention.category)
                is_here = [number] == matches[:1] and mention.stop < len(read)
                if is_here and share is not None:
                    words = range(mention.start, mention.stop)
                    places += [(image, row, word) for word in words]
                    shares += [share] * len(words)
    found = np.array(shares, dtype=np.float32).reshape(len(shares), grid[0] * grid[1])
    return torch.tensor(places, dtype=torch.long).view(-1, 3), torch.from_numpy(found)


def box_shares(
    objects: Sequence[ImageObject],
    seen: Seen,
    grid: tuple[int, int],
    offset: tuple[float, float] = (0.0, 0.0),
) -> Float[np.ndarray, " L"] | None:
    """How much of each region the boxes cover, scaled to sum one; None if no box is in view."""
    down, right = offset
    cells = cell_edges(seen.crop, grid, (down, -right if seen.is_mirrored else right))
    each = [Area.of_boxes([thing.box]).shares(cells) for thing in objects]
    covered = np.sum(each, axis=0).clip(max=1.0)  # 1 where boxes overlap, too
    shares: Float[np.ndarray, " L"] = (covered[:, ::-1] if seen.is_mirrored else covered).flatten()
    return shares / shares.sum() if shares.any() else None

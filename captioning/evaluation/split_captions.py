"""The captions of a split by several processes, the same that one would give."""

from collections.abc import Iterator, Sequence

from captioning.captioner import Captioner
from captioning.data.dataset import Batch
from captioning.data.features import FeatureCache
from captioning.data.records import Record
from captioning.evaluation.split import batches, caption_batch
from captioning.inference.batches import seed_batch
from captioning.inference.work import Processes, Work, results
from captioning.search import Search


class SplitCaptions(Work):
    """Captions for the images of a split, by image id.

    Args:
        captioner: the model.
        records: images with reference captions.
        search: how words are chosen; the captioner's own if none.
        batch_size: images at a time.
        seed: of a search that samples.
        features: annotation vectors to use instead of the photos.
    """

    def __init__(
        self,
        captioner: Captioner,
        records: Sequence[Record],
        search: Search | None = None,
        batch_size: int = 32,
        seed: int = 0,
        features: FeatureCache | None = None,
    ) -> None:
        self.captioner = captioner
        self.records = records
        self.search = search
        self.batch_size = batch_size
        self.seed = seed
        self.features = features
        self._captions: dict[int | str, str] = {}

    def prepare(self, processes: int) -> None:
        """There is nothing to find out: the records say it all."""

    def batches(self, process: int, processes: int) -> Iterator[tuple[int, Batch]]:
        """The numbered batches of one process."""
        return batches(
            self.captioner,
            self.records,
            self.batch_size,
            process=process,
            processes=processes,
            features=self.features,
        )

    def step(self, batch: tuple[int, Batch]) -> None:
        """Caption a batch."""
        number, images = batch
        seed_batch(self.seed, number)
        self._captions |= caption_batch(self.captioner, images, self.search)

    def result(self) -> dict[int | str, str]:
        """The captions of this process's images."""
        return self._captions


def split_captions_together(
    processes: Processes,
    captioner: Captioner,
    records: Sequence[Record],
    search: Search | None = None,
    batch_size: int = 32,
    seed: int = 0,
    features: FeatureCache | None = None,
) -> dict[int | str, str] | None:
    """What `captioning.evaluation.split.split_captions` gives, by several processes.

    Returns:
        The captions in the order of the records; none in all processes but the first.

    Raises:
        InputError: a photo cannot be read.
    """
    work = SplitCaptions(captioner, records, search, batch_size, seed, features)
    found = results(work, processes)
    if found is None:
        return None
    captions = {image: caption for part in found for image, caption in part.items()}
    return {record.image_id: captions[record.image_id] for record in records}

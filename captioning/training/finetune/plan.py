"""How long and how deeply to train, by the number of photos."""

import math
from typing import NamedTuple

NEW_WORDS_FACTOR = 3
"""Epoch multiplier if most words are new."""

MAX_EPOCHS = 90
"""Epochs of the longest plan: enough for a few dozen photos, also in another language."""

CONTENT_PHOTOS = 2_000
"""From this number of training photos on, content is learnt even if the start captions them well.
"""

MANNER_BATCH, MANNER_STEPS = 4, 280
"""Batch size and about the number of steps to learn a manner; with more, the model forgets more."""


class Plan(NamedTuple):
    """Training settings for a data set of a given size; the decoder is always trained."""

    trainable_stages: int  # the last stages of the encoder, to train as well
    epochs: int
    batch_size: int
    lesson: str  # what a data set of this size can teach
    keeps_content: bool = False  # learn a manner only; the start teaches what photos show

    @classmethod
    def of(cls, photo_count: int, epochs: int | None = None, has_new_words: bool = False) -> "Plan":
        """The plan for this number of training photos; `epochs` replaces the plan's.

        Fewer epochs take as many steps, on smaller batches: words are learnt by steps. If most
        words are new, the plan has more epochs.
        """
        plan = next(plan for upper_bound, plan in PLANS if photo_count < upper_bound)
        if epochs is None:
            factor = NEW_WORDS_FACTOR if has_new_words else 1
            return plan._replace(epochs=min(MAX_EPOCHS, factor * plan.epochs))
        batch_size = int(min(1.0, epochs / plan.epochs) * plan.batch_size)
        return plan._replace(epochs=epochs, batch_size=max(4, batch_size))

    def for_manner(self, photo_count: int, epochs: int | None = None) -> "Plan":
        """The plan to learn a manner only, from few photos whose content the start knows.

        It trains the decoder alone and takes about `MANNER_STEPS`, but at least one epoch, unless
        `epochs` are given.
        """
        steps_per_epoch = math.ceil(photo_count / MANNER_BATCH)
        return self._replace(
            trainable_stages=0,
            epochs=epochs or max(1, round(MANNER_STEPS / steps_per_epoch)),
            batch_size=MANNER_BATCH,
            keeps_content=True,
        )

    @property
    def epochs_per_validation(self) -> int:
        """Epochs between validations; a divisor, so that the last epoch is validated.

        There are about ten validations, or four if content is kept, as they choose no epoch then.
        """
        upper_bound = math.ceil(self.epochs / (4 if self.keeps_content else 10))
        return max(count for count in range(1, upper_bound + 1) if self.epochs % count == 0)


PLANS: list[tuple[float, Plan]] = [
    (20, Plan(0, MAX_EPOCHS, 4, "a first try; give more")),
    (100, Plan(0, MAX_EPOCHS, 8, "the words and manner of captions")),
    (250, Plan(0, 40, 8, "the words and manner of captions, and frequent things")),
    (500, Plan(0, 20, 8, "the words and manner of captions, and frequent things")),
    (2_000, Plan(3, 12, 8, "captions of pictures like these")),
    (float("inf"), Plan(6, 8, 32, "captions of pictures of another kind")),
]
"""Plans by exclusive upper bound of the number of photos."""

"""How long and how deeply to train on so many photos."""

from typing import Any, NamedTuple

import numpy as np

NEW_WORDS_FACTOR = 3
"""Factor of the epochs where the model knows few of the captions' words, so that all are learnt."""

MOST_EPOCHS = 90
"""Of a plan: enough for a few dozen photos, also in another language."""


class Plan(NamedTuple):
    """How to train on so many photos; the decoder is always trained."""

    stages: int  # of the encoder, the last ones, to train
    epochs: int
    batch_size: int
    use: str  # what so many photos are usually good for

    @classmethod
    def of(cls, photos: int, epochs: int | None = None) -> "Plan":
        """The plan for this number of training photos; `epochs` replaces its own.

        Fewer epochs take as many steps, on smaller batches: words are learnt by steps.
        """
        plan = next(cls(*plan) for most, *plan in PLANS if photos < most)
        epochs = epochs or plan.epochs
        fewer = min(1.0, epochs / plan.epochs)
        return plan._replace(epochs=epochs, batch_size=max(4, int(fewer * plan.batch_size)))

    @property
    def epochs_per_validation(self) -> int:
        """Epochs between some ten validations; a divisor, so that the last epoch is validated."""
        most = -(-self.epochs // 10)
        return max(count for count in range(1, most + 1) if self.epochs % count == 0)


PLANS: list[Any] = [
    (20, 0, MOST_EPOCHS, 4, "a first try; give more"),
    (100, 0, MOST_EPOCHS, 8, "the words and manner of captions"),
    (250, 0, 40, 8, "the words and manner of captions, and frequent things"),
    (500, 0, 20, 8, "the words and manner of captions, and frequent things"),
    (2_000, 3, 12, 8, "captions of pictures like these"),
    (np.inf, 6, 8, 32, "captions of pictures of another kind"),
]
"""For fewer photos than the first number: the plan."""

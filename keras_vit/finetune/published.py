"""The fine-tuning of table 4 of arXiv 2010.11929, by data set."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """A row of table 4: batches of 512, momentum SGD, cosine decay, no weight decay.

    Attributes:
        steps: weight updates.
        learning_rates: highest learning rates that the paper tries; held-out images decide.
    """

    steps: int
    learning_rates: tuple[float, ...]


RATES = (0.001, 0.003, 0.01, 0.03)
"""The highest learning rates that table 4 tries for data sets other than ImageNet and VTAB."""

FINE_TUNING = {
    "imagenet": FineTuning(20_000, (0.003, 0.01, 0.03, 0.06)),
    "cifar100": FineTuning(10_000, RATES),
    "cifar10": FineTuning(10_000, RATES),
    "oxford_iiit_pet": FineTuning(500, RATES),
    "oxford_flowers102": FineTuning(500, RATES),
    "vtab": FineTuning(2_500, (0.01,)),
}
"""The rows of table 4 of arXiv 2010.11929, by data set."""

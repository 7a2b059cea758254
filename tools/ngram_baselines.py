"""Language models that a trained one has to beat: counted unigrams, and trigrams smoothed by Kneser and Ney.

They read the same tokens as the trained model and predict the same ones, including ends of documents::

    python tools/ngram_baselines.py --vocabulary 1000
    python tools/ngram_baselines.py --vocabulary 1000 --dataset FOLDER
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from collapipe_env.models.architecture import Architecture
from collapipe_env.tasks import Split, TaskSpec, get_task
from collapipe_env.tasks.base import NO_TARGET

DISCOUNTS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Discounts of which the dev part chooses one."""


def stream_of(split: Split) -> list[int]:
    """The tokens of packed rows as one stream, the first one included."""
    rows = split.targets[split.targets != NO_TARGET]
    return [int(split.tokens[0, 0]), *rows.tolist()]


def unigram_nats(train: Sequence[int], asked: Sequence[int], vocabulary: int) -> float:
    """Nats of all tokens of a held-out stream except the first, by their counts in training plus one."""
    counts = Counter(train[1:])
    total = len(train) - 1 + vocabulary
    return -sum(math.log((counts[token] + 1) / total) for token in asked[1:])


class KneserNey:
    """Interpolated Kneser-Ney smoothing with one discount (Chen and Goodman, 1999, section 2.7).

    Orders below the highest count the contexts in which an n-gram occurs. The lowest is mixed with the
    uniform distribution, with the weight ``floor``, so that no token is impossible.

    Args:
        train: Training stream.
        order: Tokens of an n-gram, at least 2.
        discount: Taken off every count, in (0, 1).
        vocabulary: Number of ids.
        floor: Weight of the uniform distribution.
    """

    def __init__(
        self, train: Sequence[int], order: int, discount: float, vocabulary: int, floor: float = 1e-3
    ) -> None:
        self.order, self.discount, self.vocabulary, self.floor = order, discount, vocabulary, floor
        counts = Counter(tuple(train[i : i + order]) for i in range(len(train) - order + 1))
        self._levels = []  # from the highest order down
        for _ in range(order):
            totals: defaultdict[tuple[int, ...], int] = defaultdict(int)
            kinds: defaultdict[tuple[int, ...], int] = defaultdict(int)
            for gram, count in counts.items():
                totals[gram[:-1]] += count
                kinds[gram[:-1]] += 1
            self._levels.append((counts, totals, kinds))
            # The number of contexts in which each shorter n-gram occurs.
            counts = Counter(gram[1:] for gram in counts)

    def probability(self, token: int, context: tuple[int, ...]) -> float:
        """Probability of a token after a context of ``order - 1`` tokens."""
        counts, totals, _ = self._levels[-1]
        found = (1.0 - self.floor) * counts[token,] / totals[()] + self.floor / self.vocabulary
        for n, (counts, totals, kinds) in enumerate(reversed(self._levels[:-1]), 1):
            seen = context[len(context) - n :]
            if total := totals.get(seen, 0):
                count = counts.get((*seen, token), 0)
                found = (max(count - self.discount, 0.0) + self.discount * kinds[seen] * found) / total
        return found

    def nats(self, asked: Sequence[int]) -> float:
        """Nats of all tokens of a stream except the first, before which the stream's first token stands."""
        width = self.order - 1
        padded = [asked[0]] * (width - 1) + list(asked)
        return -sum(
            math.log(self.probability(padded[i], tuple(padded[i - width : i])))
            for i in range(width, len(padded))
        )


def perplexities(dataset: str, vocabulary: int, part: str = "test") -> dict[str, float]:
    """Perplexities of both baselines on the ``dev`` or ``test`` part, and bits per byte of the trigrams.

    Args:
        dataset: As in a scenario's ``learning.dataset``.
        vocabulary: Ids of the byte-pair vocabulary.
        part: Held-out part.
    """
    sizes = Architecture(1, 8, 8, 1, 64, vocabulary, causal=True)
    data = get_task("language-modelling").load(TaskSpec(sizes, vocabulary, dataset=dataset))
    train, dev = stream_of(data.train), stream_of(data.dev)
    split = data.dev if part == "dev" else data.test
    asked = stream_of(split)
    tokens = len(asked) - 1
    best = min(DISCOUNTS, key=lambda discount: KneserNey(train, 3, discount, vocabulary).nats(dev))
    nats = KneserNey(train, 3, best, vocabulary).nats(asked)
    return {
        "unigram perplexity": math.exp(unigram_nats(train, asked, vocabulary) / tokens),
        "trigram perplexity": math.exp(nats / tokens),
        "trigram bits per byte": nats / math.log(2.0) / float(np.sum(split.references)),
        "discount": best,
        "training tokens": float(len(train) - 1),
        "tokens": float(tokens),
    }


def main() -> None:
    """Print the perplexities."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", default="embedded")
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--part", choices=("dev", "test"), default="test")
    for name, value in perplexities(**vars(parser.parse_args())).items():
        print(f"{name}: {value:.3f}")


if __name__ == "__main__":
    main()

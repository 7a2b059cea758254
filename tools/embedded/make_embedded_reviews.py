"""Make the embedded review sentences from the source distribution of vaderSentiment 0.5.

Usage::

    pip download --no-deps --no-binary :all: vaderSentiment==0.5
    python -m zipfile -e vaderSentiment-0.5.zip .
    tar xzf vaderSentiment-0.5/additional_resources/hutto_ICWSM_2014.tar.gz
    python tools/embedded/make_embedded_reviews.py \
        hutto_ICWSM_2014/amazonReviewSnippets_GroundTruth.txt collapipe_env/data/reviews

Each source line is ``review_sentence TAB mean rating in [-4, 4] TAB text``. Sentences rated within
(-``THRESHOLD``, ``THRESHOLD``) are near neutral and left out; the others are labelled 1 (positive) or 0
(negative). Whole reviews go to one part, so no review has sentences in two.
"""

from __future__ import annotations

import argparse
from pathlib import Path

THRESHOLD = 1.0
"""Least absolute mean rating of a sentence that is kept: one step of the raters' scale away from neutral."""

TEST_EVERY = 5
"""Reviews whose number is a multiple of this are test data. Reviews of one product are adjacent in the
source, so every product is in every part."""
DEV_EVERY, DEV_REMAINDER = 10, 6
"""Reviews whose number leaves this remainder are for choosing hyper-parameters. Of all possible
remainders, 6 has the share of positive sentences that is closest to the test data's."""


def split_of(review: int) -> str:
    """Return the part that a review's sentences go to."""
    if review % TEST_EVERY == 0:
        return "test"
    return "dev" if review % DEV_EVERY == DEV_REMAINDER else "train"


def main() -> None:
    """Read the rated sentences, drop the near-neutral ones and write one file per part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path, help="amazonReviewSnippets_GroundTruth.txt")
    parser.add_argument("target", type=Path, help="folder for train.tsv, dev.tsv and test.tsv")
    arguments = parser.parse_args()

    lines: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for line in arguments.source.read_text(encoding="ascii").splitlines():
        identifier, rating, text = line.split("\t")
        text = " ".join(text.split())
        if text and abs(float(rating)) >= THRESHOLD:
            lines[split_of(int(identifier.split("_")[0]))].append(f"{text}\t{int(float(rating) > 0)}\n")

    arguments.target.mkdir(parents=True, exist_ok=True)
    for split, rows in lines.items():
        (arguments.target / f"{split}.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="ascii")
        print(f"{split}: {len(rows)} sentences, {sum(row.endswith('1' + chr(10)) for row in rows)} positive")


if __name__ == "__main__":
    main()

"""Tagging schemes of entity spans, and their translation to BIO2.

=======  ==================================================================================
scheme   tags of an entity of type X
=======  ==================================================================================
IO       ``I-X`` on every word; neighbours of one type cannot be told apart
BIO1     ``I-X``; only an entity right after another of its type begins with ``B-X``
BIO2     ``B-X`` on the first word, ``I-X`` on the others
BIOES    ``B-X``, ``I-X``..., ``E-X``; ``S-X`` on an entity of one word. BILOU's L and U are read as E and S,
         the M of BMES and BMEWO as I, and the W of BMEWO as S
=======  ==================================================================================

Tags are read as the CoNLL-2000 script conlleval does (Tjong Kim Sang and Buchholz, 2000): a tag that cannot
continue the entity before it begins a new one. So no sequence is refused, and nobody need know the scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"
"""Tag of a word that is in no entity."""

_TO_BIOES = {"L": "E", "U": "S", "M": "I", "W": "S"}


class Span(NamedTuple):
    """An entity: words ``start`` to ``stop - 1`` of a sentence, and its type."""

    start: int
    stop: int
    kind: str


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the entities of one sentence, in order, whatever the scheme.

    A tag is ``O``, or one of the prefixes B, I, E, S (L, U, M, W), a hyphen and a type.
    """
    spans: list[Span] = []
    start, before, open_kind = 0, OUTSIDE, ""
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = _TO_BIOES.get(tag[0], tag[0]), tag[2:]
        continues = prefix in {"I", "E"} and before in {"B", "I"} and kind == open_kind
        if not continues:
            if before != OUTSIDE:
                spans.append(Span(start, i, open_kind))
            start = i
        before, open_kind = prefix, kind
    return spans


def to_bio2(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of one sentence in BIO2, whatever their scheme."""
    found = [OUTSIDE] * len(tags)
    for span in spans_of(tags):
        found[span.start : span.stop] = [f"I-{span.kind}"] * (span.stop - span.start)
        found[span.start] = f"B-{span.kind}"
    return tuple(found)

"""Tagging schemes of entity spans: detection, and translation to BIO2.

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
continue the entity before it begins a new one. So no sequence is refused; tags that break the scheme are
counted instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Scheme = Literal["IO", "BIO1", "BIO2", "BIOES"]
"""Names of the schemes."""

OUTSIDE = "O"
"""Tag of a word that is in no entity."""

_TO_BIOES = {"L": "E", "U": "S", "M": "I", "W": "S"}


class Span(NamedTuple):
    """An entity: words ``start`` to ``stop - 1`` of a sentence, and its type."""

    start: int
    stop: int
    kind: str


@dataclass(frozen=True)
class Bio2Tags:
    """Tags of a data set after translation.

    Attributes:
        tags: BIO2 tags, one sequence for each sentence and one tag a word.
        scheme: Scheme that the data set was found to use.
        repaired: Tags that broke that scheme, such as an ``I-`` after ``O`` in BIO2.
    """

    tags: tuple[tuple[str, ...], ...]
    scheme: Scheme
    repaired: int


def split_tag(tag: str) -> tuple[str, str]:
    """Return prefix and type of a tag, ``("O", "")`` for a word outside; L, U, M and W become E, S, I and S.

    A hyphen or an underscore separates the two.
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    return _TO_BIOES.get(tag[0], tag[0]), tag[2:]


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the entities of one sentence, in order, whatever the scheme.

    Args:
        tags: One tag a word: ``O``, or one of the prefixes B, I, E, S (L, U, M, W), a hyphen and a type.
    """
    spans: list[Span] = []
    start, before, open_kind = 0, OUTSIDE, ""
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = split_tag(tag)
        continues = prefix in {"I", "E"} and before in {"B", "I"} and kind == open_kind
        if not continues:
            if before != OUTSIDE:
                spans.append(Span(start, i, open_kind))
            start = i
        before, open_kind = prefix, kind
    return spans


def tags_of(spans: Iterable[Span], length: int, scheme: Scheme = "BIO2") -> list[str]:
    """Return the tags of one sentence.

    Args:
        spans: Its entities, in order, without overlap.
        length: Its words.
        scheme: Scheme of the tags.

    Returns:
        One tag a word.
    """
    tags = [OUTSIDE] * length
    before: Span | None = None
    for span in spans:
        for i in range(span.start, span.stop):
            tags[i] = f"I-{span.kind}"
        touches_its_like = before is not None and (before.stop, before.kind) == (span.start, span.kind)
        if scheme in {"BIO2", "BIOES"} or (scheme == "BIO1" and touches_its_like):
            tags[span.start] = f"B-{span.kind}"
        if scheme == "BIOES":
            tags[span.stop - 1] = f"{'S' if span.stop - span.start == 1 else 'E'}-{span.kind}"
        before = span
    return tags


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Return the scheme that a data set's tags follow.

    E, S, L, U or W anywhere means BIOES, and no B anywhere means IO. Otherwise the entities that do not
    directly follow another of their type decide: they begin with B in BIO2 and with I in BIO1. If a data set
    has both, the more frequent one is the rule and the other an error. Data without any evidence is BIO2.

    Args:
        sentences: Tags of every sentence.
    """
    begins = {"B": 0, "I": 0}
    any_b = False
    for tags in sentences:
        before, kind_before = OUTSIDE, ""
        for tag in tags:
            prefix, kind = split_tag(tag)
            if prefix in {"E", "S"}:
                return "BIOES"
            any_b |= prefix == "B"
            if prefix in begins and (before == OUTSIDE or kind != kind_before):
                begins[prefix] += 1
            before, kind_before = prefix, kind
    if not any_b and begins["I"]:
        return "IO"
    return "BIO1" if begins["I"] > begins["B"] else "BIO2"


def to_bio2(sentences: Sequence[Sequence[str]]) -> Bio2Tags:
    """Translate a data set's tags to BIO2.

    Args:
        sentences: Tags of every sentence, all parts of the data set together: a small part alone may not
            show the scheme.
    """
    scheme = detect_scheme(sentences)
    translated: list[tuple[str, ...]] = []
    repaired = 0
    for tags in sentences:
        spans = spans_of(tags)
        faultless = tags_of(spans, len(tags), scheme)
        repaired += sum(
            split_tag(tag) != split_tag(right) for tag, right in zip(tags, faultless, strict=True)
        )
        translated.append(tuple(tags_of(spans, len(tags))))
    return Bio2Tags(tuple(translated), scheme, repaired)

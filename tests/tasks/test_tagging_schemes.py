"""Tagging schemes: spans survive all that can express them, others are read as conlleval reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.tasks.tagging_schemes import Span, spans_of, to_bio2

SCHEMES = ["IO", "BIO1", "BIO2", "BIOES"]


def tags_of(spans, length, scheme):
    """Tags of one sentence."""
    tags, before = ["O"] * length, None
    for span in spans:
        tags[span.start : span.stop] = [f"I-{span.kind}"] * (span.stop - span.start)
        touches_its_like = before is not None and (before.stop, before.kind) == (span.start, span.kind)
        if scheme in {"BIO2", "BIOES"} or (scheme == "BIO1" and touches_its_like):
            tags[span.start] = f"B-{span.kind}"
        if scheme == "BIOES":
            tags[span.stop - 1] = f"{'S' if span.stop - span.start == 1 else 'E'}-{span.kind}"
        before = span
    return tags


@st.composite
def sentences(draw):
    """Length and spans of a sentence; neighbours may touch and have one type."""
    spans, position = [], 0
    for gap, size, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(["x", "y-z"])), max_size=6)
    ):
        start = position + gap
        position = start + size
        spans.append(Span(start, position, kind))
    return position + draw(st.integers(0, 2)), spans


def merged(spans):
    """Entities as IO tells them: touching ones of one type are one."""
    kept = []
    for span in spans:
        if kept and (kept[-1].stop, kept[-1].kind) == (span.start, span.kind):
            kept[-1] = Span(kept[-1].start, span.stop, span.kind)
        else:
            kept.append(span)
    return kept


@given(sentence=sentences(), scheme=st.sampled_from(SCHEMES))
def test_spans_survive_every_scheme(sentence, scheme):
    length, spans = sentence
    tags = tags_of(spans, length, scheme)
    found = merged(spans) if scheme == "IO" else spans
    assert spans_of(tags) == found
    assert to_bio2(tags) == tuple(tags_of(found, length, "BIO2"))


def conlleval_spans(tags):
    """The chunk rules of the CoNLL-2000 script, as its two tables of tag pairs."""
    starts = {"BB", "IB", "OB", "OI", "EE", "EI", "OE", "EB", "SB", "SE", "SI", "SS", "BS", "IS", "ES", "OS"}
    ends = {"BB", "BO", "IB", "IO", "EE", "EI", "EO", "EB", "SS", "SE", "SI", "SO", "SB", "ES", "BS", "IS"}
    spans, start, before, kind_before = [], None, "O", ""
    for i, tag in enumerate([*tags, "O"]):
        prefix, kind = tag[0], tag[2:]
        changed = kind != kind_before
        if start is not None and (before + prefix in ends or (before != "O" and changed)):
            spans.append(Span(start, i, kind_before))
            start = None
        if before + prefix in starts or (prefix != "O" and changed):
            start = i
        before, kind_before = prefix, kind
    return spans


@given(tags=st.lists(st.sampled_from(["O", *(f"{p}-{k}" for p in "BIES" for k in "xy")]), max_size=12))
def test_any_sequence_is_read_as_conlleval_reads_it(tags):
    assert spans_of(tags) == conlleval_spans(tags)


@pytest.mark.parametrize(
    ("tags", "bio2"),
    [
        ("U-y B-x I-x L-x", "B-y B-x I-x I-x"),
        ("B-x M-x M-x E-x S-y B-y E-y O", "B-x I-x I-x I-x B-y B-y I-y O"),
        ("B-x M-x E-x W-x W-y", "B-x I-x I-x B-x B-y"),
        ("O B_x-z I_x-z B_x_y", "O B-x-z I-x-z B-x_y"),
    ],
)
def test_translation_by_hand(tags, bio2):
    assert to_bio2(tags.split()) == tuple(bio2.split())

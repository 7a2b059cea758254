"""Tagging schemes: spans survive all that can express them, others are read as conlleval reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.tasks.tagging_schemes import Span, detect_scheme, spans_of, tags_of, to_bio2

SCHEMES = ["IO", "BIO1", "BIO2", "BIOES"]


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
    assert len(tags) == length
    assert spans_of(tags) == (merged(spans) if scheme == "IO" else spans)


@given(data=st.lists(sentences(), min_size=1, max_size=5), scheme=st.sampled_from(SCHEMES))
def test_translation_to_bio2_needs_no_repair(data, scheme):
    found = to_bio2([tags_of(spans, length, scheme) for length, spans in data])
    keep = merged if scheme == "IO" else list
    assert found.repaired == 0
    assert list(found.tags) == [tuple(tags_of(keep(spans), length)) for length, spans in data]


@given(data=st.lists(sentences(), min_size=1, max_size=5), scheme=st.sampled_from(["BIO2", "BIOES"]))
def test_schemes_with_b_are_detected_if_there_is_an_entity(data, scheme):
    if any(spans for _, spans in data):
        assert detect_scheme([tags_of(spans, length, scheme) for length, spans in data]) == scheme


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
    ("data", "scheme"),
    [
        (["O I-x I-x O I-y"], "IO"),
        (["O I-x B-x O", "I-y"], "BIO1"),
        (["O B-x I-x O"], "BIO2"),
        (["B-x B-x B-y"], "BIO2"),
        (["B-x O B-x", "B-y", "O I-x"], "BIO2"),
        (["I-x B-x O I-x", "I-y", "O B-x"], "BIO1"),
        (["O B-x I-x", "S-y"], "BIOES"),
        (["B-x L-x O U-y"], "BIOES"),
        (["B-x M-x E-x", "S-y"], "BIOES"),
        (["O B-x", "W-y"], "BIOES"),
        (["O B_x I_x", "B_y"], "BIO2"),
        (["O O", "O"], "BIO2"),
    ],
)
def test_detection(data, scheme):
    assert detect_scheme([text.split() for text in data]) == scheme


@pytest.mark.parametrize(
    ("tags", "bio2", "repaired"),
    [
        # A few valid sentences settle the scheme; the one in question comes last.
        (["B-x", "B-x", "O I-x I-x"], "O B-x I-x", 1),
        (["B-x", "B-x", "B-x I-y I-y"], "B-x B-y I-y", 1),
        (["I-x B-x", "I-x", "I-y", "O B-x"], "O B-x", 1),
        (["B-x E-x", "O B-x O"], "O B-x O", 1),
        (["S-x", "I-x I-x"], "B-x I-x", 2),
        (["B-x L-x", "U-y B-x I-x L-x"], "B-y B-x I-x I-x", 0),
        (["B-x M-x M-x E-x S-y B-y E-y O"], "B-x I-x I-x I-x B-y B-y I-y O", 0),
        (["B-x M-x E-x W-x W-y"], "B-x I-x I-x B-x B-y", 0),
        (["O B_x-z I_x-z B_x_y"], "O B-x-z I-x-z B-x_y", 0),
        (["I-x", "I-x I-y I-x"], "B-x B-y B-x", 0),
    ],
)
def test_repairs_are_counted(tags, bio2, repaired):
    found = to_bio2([text.split() for text in tags])
    assert found.tags[-1] == tuple(bio2.split())
    assert found.repaired == repaired

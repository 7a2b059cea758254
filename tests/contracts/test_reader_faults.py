"""Every fault of a file is told in one line, with the file, its place, the value and a remedy."""

import gzip
import re

import pytest

from collapipe_env.ground.errors import DataError
from collapipe_env.tasks.conll_files import load_tagged
from collapipe_env.tasks.documents import load_documents
from collapipe_env.tasks.labelled_texts import load_splits
from collapipe_env.tasks.parallel_text import load_parallel
from collapipe_env.trace_files import Columns, read_traces

RATE = {"columns": Columns(quantity="rate")}


def load_traces(path, columns=None):
    return read_traces(path, columns or Columns())


FAULTS = {
    # Name of the file, its content, what the message says, and the columns that are asked for, if any.
    load_splits: [
        ("d.tsv", "a film\t1\nno film 0\n", r":2: 1 columns where .*d\.tsv:1 has 2; check the separators"),
        ("d.csv", "good film,1\n\nbad, film,0\n", ":3: 3 columns .* and quotes"),
        ("d.csv", 'a,1\n"b,0\n', ":2: .* quotes of this line"),
        ("d.tsv", "good film\t1\n \t0\n", ":2: the text is empty"),
        ("d.tsv", "good film\t1\nbad film\t\n", ":2: the label is empty"),
        ("d.tsv", "good film\t1\nbad film\t\x1b[31m\n", r":2: label '.x1b\[31m' holds a line break or"),
        ("d.tsv", "text\tlabel\n", "a header and no samples"),
        ("d.tsv", "good film\t1\nbad film\t1\n" * 5, "every label is '1'.*label_column"),
        ("d.tsv", "only text\nmore text\n", ":1: one column only; .* add the labels"),
        ("d.json", "{}", "unknown ending '.json'"),
        ("d.jsonl", '{"text": "\\ud800", "label": 1}\n', ":1: the text is not valid Unicode"),
        (
            "d.jsonl",
            '{"text": "a b", "label": 1, "topic": 1}\n{"text": "c d", "label": 0.5, "topic": 2}\n',
            r":2: 'label' holds 0\.5, which is no .* learning\.label_column to another",
        ),
        ("d.jsonl", '{"text": "a b", "gold": {}, "lang": "x"}\n', r"1: 'gold' holds \{\}", {"label": "gold"}),
        ("d.jsonl", '{"text": ["a"], "id": "x", "label": 1}\n', r"1: 'text' holds .*learning\.text_column"),
        (
            "d.csv",
            "text,rating,sentiment\na b,1,p\nc d,0,n\n",
            r"2 of the 3 columns \(text, rating, sentiment\) .*scenario's learning\.label_column",
        ),
        ("d.csv", "Gut, a b;1\nGut, c d;0\n", "both ',' and ';' give every line 2 columns; .*sep=;"),
        ("d.csv", "Utterance,Intent_name\na b,0\nc d,1\n", ":1: label 'Intent_name' occurs in this line"),
        ("d.csv", "Utterance,Intent_name\n" + "a b,x\nc d,y\n" * 4, ":1: label 'Intent_name' occurs in"),
        (
            "d.csv",
            "Utterance,Intent_name\nonce,z\n" + "a b,x\nc d,y\n" * 10,
            r":1: label 'Intent_name' occurs in this line only; .* scenario's learning\.text_column",
        ),
        ("d.tsv", "p\tq\tlong text one\nq\tp\tlong text two\n", "2 of the 3 columns look like a class label"),
        ("d.tsv", "".join(f"long text {i}\t{i}\n" for i in range(300)), "300 distinct values"),
        (
            "d.tsv",
            "".join(f"text {i}\t{i}\n" for i in range(8)),
            "8 samples of 8 classes .* add more",
        ),
    ],
    load_tagged: [
        ("d.conll", "Anna\tB-per\nsaw\n", r":2: one column only \('saw'\)"),
        ("d.txt", "Anna B-per\n\nNew York B-loc\n", ":3: 3 columns where line 1 has 2; .* by tabs"),
        ("d.conll", "Anna\tO\nsaw\tX-per\n", ":2: tag 'X-per' is neither O nor like"),
        ("d.conll", "Anna\tB-\n", ":1: tag 'B-' is neither"),
        ("d.conll", "Anna\tB-\x1b[31m\n", r":1: tag 'B-.x1b\[31m' is neither"),
        ("d.conll", "Anna\tO\n# id 17\n", ":2: 3 columns where line 1 has 2"),
        ("d.conll", "Anna\tO\n\n#tag\tX-per\n", ":3: tag 'X-per' is neither"),
        ("eng.trial", "Anna\tO\n", r": unknown ending; use one of \.conll, \.txt.* \.testa"),
        ("d.conll", "\n\t\n-DOCSTART- O\n\n", "empty file"),
        ("d.conll", "Anna\tB-x\n\n" * 9, "9 sentences are too few"),
        ("d.conll", "w\tB-x\n\n" * 8 + "w\tB-y\n\nw\tB-z\n", ": every sentence for the dev .* add sentences"),
        ("d.conll", "Anna\tO\n", "no column 'word' for text_column; there is no header", {"words": "word"}),
        ("d.conll", "Anna\tO\n", "label_column 2 is out of range; .* 0 to 1", {"tags": 2}),
        ("d.conll", "Anna\tO\n", "text_column -1 is out of range", {"words": -1}),
        ("d.conll", "O\tO\n", "column 1 is requested both as word and as tag", {"words": 1}),
    ],
    load_documents: [
        ("d.jsonl", "not json\n", r":1: not JSON \(.*write one object a line"),
        ("d.jsonl", '{"text": "a"}\n' + "[1]\n", r":2: \[1\] where an object is expected"),
        ("d.jsonl", '{"txt": "a"}\n', ": no column 'text' for text_column; did you mean 'txt'"),
        ("d.jsonl", '{"text": "a"}\n', "no column 'topic' for label_column", {"kind": "topic"}),
        ("d.jsonl", '\n{"text": 3}\n', ":2: the text is 3; it must be a string"),
        ("d.jsonl", '{"text": " \\n"}\n', ":1: the text is empty; fill it in or drop the line"),
        ("d.jsonl", '{"text": "a \\ud800"}\n', ":1: the text is not valid Unicode"),
        ("d.jsonl", '{"text": "a", "t": [1]}\n', r":1: 't' holds \[1\], which is no", {"kind": "t"}),
        ("d.tsv", "a\tb\n", r": unknown ending '\.tsv'; use \.txt, .* or \.jsonl"),
        ("d.txt", "only one line", "1 sample cannot be split into training and dev and test"),
    ],
    load_parallel: [
        ("t.xlsx", "a,b\n", r": unknown ending .*\.tsv, \.csv or \.jsonl"),
        ("t.tsv", "one, eins\ntwo, zwei\n", ":1: 1 columns where 2 are expected"),
        ("t.tsv", "en\tde\n", ": no pair"),
        ("t.jsonl", '{"en": "one", "de": "eins"}\n{"en": "two"}\n', ":2: the text in 'de' is empty"),
        ("t.tsv", "a\tb\nc\t \n", ":2: the text in 'translation' is empty"),
        ("t.tsv", "a\tb\n\tc\n", ":2: the text in 'sentence' is empty"),
    ],
    load_traces: [
        ("t.csv", "time_s,value\n0,-80\n1,high\n", r":3: 'high' is not a received power in dBm; correct it"),
        (
            "t.csv",
            "time_s,value\n0,1\n1,inf\n",
            ":3: 'inf' is not a rate in Mbit/s; correct .* row out",
            RATE,
        ),
        ("t.csv", "time_s,value\n0,-80\nnow,-81\n", r":3: 'now' is not a time in seconds"),
        ("t.csv", "time_s,value\n0,-80\n2,-80\n\n2,-81\n", ":5: the time 2 s comes after 2 s: .* row_s"),
        ("t.csv", "", ": empty file; give a row for each sample"),
        ("t.csv", "time_s,value\n", ": a header without rows"),
        ("t.csv", "time_s,value\n0,-80\n", ": 1 values over 0 s are too short for a trace; .* 2 s"),
        # Sums over such times are no numbers.
        ("t.csv", "time_s,value\n0,-80\n1e300,-80\n", r": times span 2e\+300 s, more than the 1e\+09 s"),
        (
            "t.csv",
            "time_s,rsrp\n0,-80\n1,-81\n",
            ":1: there is no column 'RSRP'; .*rsrp",
            {"columns": Columns(column="RSRP")},
        ),
        (
            "t.csv",
            "time,value\n0,-80\n1,-81\n",
            r":1: .* 'time_s'; did you mean 'time'\?; set column and time_column",
        ),
        ("t.csv", "time_s,value\n0,-80\n1,-81,7\n", ":3: 3 columns where line 1 has 2; .* delimiter ','"),
        ("t.csv", 'time_s,value\n0,-80\n1,"-81\n', ":3: .*; check the quotes of this line"),
        ("t.csv", "time_s,value\n0,102\n1,99\n", ":2: value = 102 is not a received power, -160 to -20 dBm"),
        (
            "t.csv",
            "time_s,value\n0,5\n1,-1\n",
            r":3: value = -1 Mbit/s is not a rate, 0 to 1e\+12 bit/s",
            RATE,
        ),
        ("t.csv", b"\xff\xfe\x00", "not UTF-8 text; give traces as CSV"),
        ("t.csv.gz", gzip.compress(b"0,1\n" * 99)[:-9], "not a complete gzip file"),
        ("t.csv", None, "cannot be read .* check the path"),
        (
            "n.csv",
            "1.5,Mbits/sec\n997,Gbits/sec\n",
            ":2: the unit 'Gbits/sec' is not known; did you mean",
            {"columns": Columns("nyu-lte", "rate")},
        ),
        (
            "p.csv",
            "timestamp,direction,nr_rsrp_dbm,uplink_mbps\n23.1.2021,uplink,-70,1\n",
            ":2: '23.1.2021' is not a date; write it like",
            {"columns": Columns("radio-power-5g")},
        ),
    ],
}


@pytest.mark.parametrize(("load", "fault"), [(load, fault) for load in FAULTS for fault in FAULTS[load]])
def test_faults_are_named_with_file_and_line(load, fault, tmp_path):
    name, content, message, *columns = fault
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=re.escape(name) + ".*" + message) as caught:
        load(tmp_path / name, **dict(*columns))
    assert "\n" not in str(caught.value)

"""The user's own data, whatever the format: parts, packing, line ends, limits; faults with their place."""

import gzip
import re

import pytest

from collapipe_env.ground import files
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import unpacked_limit
from collapipe_env.tasks import table_files
from collapipe_env.tasks.conll_files import load_tagged
from collapipe_env.tasks.documents import load_documents
from collapipe_env.tasks.labelled_texts import load_splits
from collapipe_env.tasks.parallel_text import load_parallel
from collapipe_env.tasks.table_files import LONGEST_LINE, LONGEST_WORD

FORMATS = {
    # Reader, endings of the files of a part, a sample: {0} names the part, {1} the sample, {2} one of two.
    "tsv": (load_splits, ["tsv"], "{0} film {1}\t{2}\n"),
    "csv": (load_splits, ["csv"], '"{0} film {1}";{2}\n'),
    "jsonl": (load_splits, ["jsonl"], '{{"text": "{0} film {1}", "label": {2}}}\n'),
    "pairs.tsv": (load_parallel, ["tsv"], "{0} en {1}\t{0} de {1}\n"),
    "pairs.jsonl": (load_parallel, ["jsonl"], '{{"en": "{0} en {1}", "de": "{0} de {1}"}}\n'),
    "lines": (load_parallel, ["en", "de"], "{0} text {1}\n"),
    "conll": (load_tagged, ["conll"], "{0}-{1}\tB-x\nsaw\tO\n\n"),
    "txt": (load_documents, ["txt"], "{0} line {1}\n"),
    "documents.jsonl": (load_documents, ["ndjson"], '{{"text": "{0} line {1}"}}\n'),
}
every = pytest.mark.parametrize("kind", FORMATS)
single = pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "lines"])


def content(kind, part, count):
    return "".join(FORMATS[kind][2].format(part, i, i % 2) for i in range(count))


def write(folder, kind, part, count=50, change=lambda data: data, packed=False):
    """Write the files of a part; return the last one."""
    for ending in FORMATS[kind][1]:
        file = folder / f"{part}.{ending}{'.gz' if packed else ''}"
        data = change(content(kind, part, count).encode())
        file.write_bytes(gzip.compress(data) if packed else data)
    return file


def first(samples):
    return list(samples.inputs)


@every
@pytest.mark.parametrize("there", [(), ("dev",), ("test",), ("dev", "test")])
def test_parts_are_found_by_name_and_missing_ones_come_out_of_training(kind, there, tmp_path):
    load = FORMATS[kind][0]
    for part in ("train", *there):
        write(tmp_path, kind, part, 50 if part == "train" else 7)
    (tmp_path / "README.bak").write_text("train, dev, test")
    for ending in FORMATS[kind][1]:
        (tmp_path / f".valid.{ending}").write_bytes(b"\xff")
    parts = dict(zip(("train", "dev", "test"), load(tmp_path), strict=True))
    missing = [part for part in ("dev", "test") if part not in there]
    assert [len(part) for part in parts.values()] == [
        50 - 5 * len(missing), 5 if "dev" in missing else 7, 5 if "test" in missing else 7,
    ]  # fmt: skip
    assert tuple(parts.values()) == load(tmp_path)
    for part in there:
        assert all(part in str(one) for one in first(parts[part]))
    carved = [first(parts[part]) for part in ("train", *missing)]
    orders = [[int(re.search(r"\d+", str(one))[0]) for one in part] for part in carved]
    assert sorted(i for order in orders for i in order) == list(range(50))
    assert all(order == sorted(order) for order in orders)
    # Not simply the first or the last ones.
    assert all(max(order) - min(order) > 5 for order in orders[1:])


@single
def test_a_file_is_split_like_a_folder_with_it(kind, tmp_path):
    load = FORMATS[kind][0]
    # A sole table of a folder is for training, whatever its name.
    file = write(tmp_path, kind, "train" if load in (load_tagged, load_documents) else "captions")
    if load != load_documents:
        (tmp_path / "README.txt").write_text("no data")
    parts = load(file)
    assert [len(part) for part in parts] == [40, 5, 5]
    if kind == "conll":  # in the order of the file
        assert [one for part in parts for one in first(part)] == [(f"train-{i}", "saw") for i in range(50)]
    else:
        assert parts == load(tmp_path)


@every
@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data + b"\n \n",
        lambda data: data.rstrip(b"\n"),
    ],
    ids=["mark", "returns", "blank", "no end"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_what_does_not_count(kind, change, packed, tmp_path):
    parts = []
    for name, how in (("plain", {}), ("other", {"change": change, "packed": packed})):
        (tmp_path / name).mkdir()
        for part in ("train", "dev", "test"):
            write(tmp_path / name, kind, part, 9, **how)
        parts.append([first(part) for part in FORMATS[kind][0](tmp_path / name)])
    assert parts[0] == parts[1]


LONG = {"line": b"ab " * 100_000, "word": b"x" * (LONGEST_WORD + 1), "wide": "😀".encode() * 6000}


@every
@pytest.mark.parametrize(
    ("change", "packed", "message"),
    [
        (lambda data: data.replace(b"9", b"\xff", 1), False, r":{nine}: not UTF-8 text; .*iconv -f LATIN1"),
        (lambda data: data.replace(b"9", b"\xff", 1), True, r"gz:{nine}: not UTF-8"),
        (lambda data: b"\xff\xfe" + data, False, r":1: not UTF-8"),
        (
            lambda data: data + LONG["line"],
            False,
            r":{end}: 300,000 characters in a line, above the limit of",
        ),
        (lambda data: data + LONG["word"], False, r":{end}: 5,001 characters without a space or punctuation"),
        (lambda data: data + LONG["wide"], False, r":{end}: 6,000 characters without a space"),
        (lambda _: b"", False, r": (empty file; it needs|no pair of sentences in it)"),
        (lambda _: b" \n\t\n", True, r": (empty file; it needs|no pair of sentences in it)"),
    ],
    ids=range(8),
)
def test_damage_is_named_with_its_line(kind, change, packed, message, tmp_path):
    before = content(kind, "train", 50)
    lines = {"nine": before[: before.index("9")].count("\n") + 1, "end": before.count("\n") + 1}
    file = write(tmp_path, kind, "train", change=change, packed=packed)
    file = tmp_path / file.name.replace(".de", ".en")
    with pytest.raises(DataError, match=rf"{file.stem}.*{message.format(**lines)}") as caught:
        FORMATS[kind][0](tmp_path)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


@every
@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-10], lambda b: b[:5], lambda b: b"plain" + b, lambda b: b[:20] + bytes(20) + b[40:]],
)
def test_damaged_gzip_is_named(kind, damage, tmp_path):
    file = write(tmp_path, kind, "train", packed=True)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=rf"{file.name}: not a complete gzip file \(.*\); compress it again"):
        FORMATS[kind][0](tmp_path)


@every
def test_files_that_are_too_large_are_not_read(kind, tmp_path, monkeypatch):
    file = write(tmp_path, kind, "train")
    monkeypatch.setattr(table_files, "LARGEST", 100)
    with pytest.raises(DataError, match=r"cannot be read \(it has .* bytes, above the limit of 100"):
        FORMATS[kind][0](tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(files, "UNPACKED_ANYWAY", 2 * 1024**2)
    file.unlink()
    bomb = tmp_path / f"{file.name}.gz"
    bomb.write_bytes(gzip.compress(bytes(50 * 1024**2), 1) * 2)
    most = unpacked_limit(bomb.stat().st_size)
    assert most < 50 * 1024**2
    unpacked = 0
    read = gzip.GzipFile.read

    def counted(self, size=-1):
        nonlocal unpacked
        chunk = read(self, size)
        unpacked += len(chunk)
        return chunk

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(DataError, match=f"it unpacks to more bytes than the limit of {most:,}"):
        FORMATS[kind][0](tmp_path)
    assert unpacked <= most + 1024**2


@every
def test_folders_that_do_not_do(kind, tmp_path):
    load, endings, _ = FORMATS[kind]
    with pytest.raises(DataError, match="no such file or folder; "):
        load(tmp_path / "absent")
    with pytest.raises(DataError, match=r"in this folder|0 files train\.LANGUAGE"):
        load(tmp_path)
    write(tmp_path, kind, "test", 3)
    if kind in ("conll", "lines", "txt", "documents.jsonl"):  # a sole table would be for training
        with pytest.raises(DataError, match=r"no train\.(txt|conll) .*in this folder; add|0 files train"):
            load(tmp_path)
    write(tmp_path, kind, "train")
    write(tmp_path, kind, "train", packed=True)
    both = rf"train\.{endings[0]} and train\.{endings[0]}\.gz"
    with pytest.raises(DataError, match=rf"both {both} (exist|could be the train part); keep one"):
        load(tmp_path)


@single
def test_two_files_for_a_part_are_refused(kind, tmp_path):
    for name in ("train", "dev_a", "dev_b"):
        write(tmp_path, kind, name)
    with pytest.raises(DataError, match=r"both dev_a\.\w+ and dev_b\.\w+ could be the dev part; keep one"):
        FORMATS[kind][0](tmp_path)


@single
@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (("train", "validation", "test"), None),
        (("train", "val", "test", "train_small"), ("train", "val", "test")),
        (("news.train", "news.valid", "news.test"), None),
        (("in_domain_train", "in_domain_dev", "out_of_domain_dev"), None),
        (("Training", "Development", "Testing", "latest"), ("Training", "Development", "Testing")),
    ],
)
def test_names_of_parts(kind, names, parts, tmp_path):
    for name in names:
        write(tmp_path, kind, name)
    found = FORMATS[kind][0](tmp_path)
    assert [part in str(first(one)[0]) for part, one in zip(parts or names, found, strict=True)] == [True] * 3


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "pairs.tsv"])
def test_a_folder_with_several_tables_says_so(kind, tmp_path):
    for name in ("a", "b"):
        write(tmp_path, kind, name)
    with pytest.raises(DataError, match=r"no train\.tsv, .* and 2 tables where a single one could be split"):
        FORMATS[kind][0](tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "word " * (LONGEST_LINE // 5),
        "x" * LONGEST_WORD,
        "这是一个没有空格的很长的文件。" * 1_000,  # punctuation of all scripts ends words
        "a_b-c" * 4_000,
    ],
    ids=["line", "word", "Chinese", "ASCII"],
)
@pytest.mark.parametrize("kind", ["lines", "txt"])
def test_long_lines_of_ordinary_words_are_read(kind, line, tmp_path):
    write(tmp_path, kind, "train", 30, lambda data: data + line.encode())
    found = [len(one) for part in FORMATS[kind][0](tmp_path) for one in first(part)]
    assert max(found) == len(line.strip())


def test_old_line_ends_are_no_long_line(tmp_path):
    table = tmp_path / "table.tsv"
    table.write_bytes(b"good text\t1\rbad text\t0\r" * 20_000)
    assert sum(map(len, load_splits(table))) == 40_000
    # In parallel text it would shift all lines that follow.
    write(tmp_path, "lines", "train", 30, lambda data: b"a\rb\n" + data)
    assert load_parallel(tmp_path)[0].inputs[0] == "a\rb"
    (tmp_path / "train.en").write_text(
        "hello\n" * 30 + "a\r" * 100 + "x" * (LONGEST_LINE + 1) + "\n", newline=""
    )
    with pytest.raises(DataError, match=r"train\.en:31: 200,001 characters in a line"):
        load_parallel(tmp_path)

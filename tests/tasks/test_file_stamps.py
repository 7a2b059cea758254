"""Data that changes while a process runs is read again, and data that does not is not."""

import os
import time

import pytest

from collapipe_env.ground.errors import DataError
from collapipe_env.models.architecture import Architecture
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.file_stamps import stamp_of

SIZES = Architecture(
    blocks=2, width=8, feedforward=16, heads=2, sequence_length=8, vocabulary=300, causal=True
)
TASKS = {
    "classification": ("d.tsv", "{0} film\tp\nno {0}\tn\n", 2, 0),
    "language-modelling": ("d.txt", "a {0} line\n", 300, 0),
    "ner": ("d.conll", "{0} B-x\nruns O\n\n", 3, 0),
    "translation": ("d.tsv", "{0} one\t{0} eins\n", 64, 1),
}


def content(task, word):
    # Lines differ, so that no two translations do.
    return "".join(TASKS[task][1].format(f"{word}{i}") for i in range(20))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("in_folder", [False, True])
def test_a_file_written_anew_is_read_anew(task, in_folder, tmp_path):
    name, _, outputs, decoder_blocks = TASKS[task]
    file = tmp_path / (f"train.{name.partition('.')[2]}" if in_folder else name)
    spec = TaskSpec(SIZES, outputs, decoder_blocks, str(tmp_path if in_folder else file))
    file.write_text(content(task, "good"))
    before = get_task(task).load(spec)
    assert get_task(task).load(spec) is before
    # As long, as old by its time stamp, in the same inode: only the time of the change itself tells.
    old = file.stat()
    time.sleep(0.02)
    file.write_text(content(task, "evil"))
    os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_ino) == (old.st_size, old.st_ino)
    after = get_task(task).load(spec)
    assert after is not before
    assert get_task(task).load(spec) is after


def test_classes_follow_the_file(tmp_path):
    file = tmp_path / "d.tsv"
    spec = TaskSpec(SIZES, 2, 0, str(file))
    file.write_text("good film\tp\nbad film\tn\n" * 9)
    assert get_task("classification").classes(spec) == ("n", "p")
    time.sleep(0.02)
    file.write_text("good film\tp\nbad film\tn\nodd film\to\n" * 9)
    assert get_task("classification").classes(spec) == ("n", "o", "p")
    with pytest.raises(DataError, match="3 classes"):
        get_task("classification").load(spec)


def test_files_that_come_and_go_change_the_stamp(tmp_path):
    stamps = [stamp_of(str(tmp_path / "absent")), stamp_of(str(tmp_path))]
    (tmp_path / "train.tsv").write_text("a\t1\n")
    stamps.append(stamp_of(str(tmp_path)))
    (tmp_path / "test.tsv").write_text("a\t1\n")
    stamps.append(stamp_of(str(tmp_path)))
    (tmp_path / "test.tsv").unlink()
    stamps.append(stamp_of(str(tmp_path)))
    assert stamps[0] == stamps[1] == ()
    assert stamps[2] == stamps[4] != stamps[3]
    assert stamp_of("embedded") == stamp_of("hf:nobody/has-this") == ()
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "data.arrow").write_text("x")
    assert len(stamp_of(f"hf:{tmp_path}")) == 2
    assert stamp_of("embedded", str(tmp_path)) == stamp_of(str(tmp_path))

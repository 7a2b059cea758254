"""What holds for every shipped task: data is kept and read-only, the loss a mean, paths are told apart."""

import os

import numpy as np
import pytest
import torch

from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.models.architecture import Architecture
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.base import NO_TARGET
from collapipe_env.tasks.preparation import stamp_of

# File, its samples ({0} stands for a word), outputs, decoder blocks, target of positions without any.
TASKS = {
    "classification": ("tsv", "{0} film\tp\nno {0}\tn\n", 2, 0, None),
    "language-modelling": ("txt", "a {0} line\n", 300, 0, NO_TARGET),
    "ner": ("conll", "{0} B-x\nruns O\n\n", 3, 0, NO_TARGET),
    "translation": ("tsv", "{0} one\t{0} eins\n", 64, 1, 0),
}
every = pytest.mark.parametrize("task", TASKS)


def spec(task, dataset="embedded", vocabulary=300, **changes):
    outputs, blocks = TASKS[task][2:4]
    sizes = Architecture(2, 8, 16, 2, 8, vocabulary, causal=True)
    return TaskSpec(
        **{"architecture": sizes, "outputs": outputs, "decoder_blocks": blocks} | changes, dataset=dataset
    )


def content(task, word):
    # Lines differ, so that no two translations do.
    return "".join(TASKS[task][1].format(f"{word}{i}") for i in range(20))


def own(folder, task, word, part="train"):
    folder.mkdir(exist_ok=True)
    file = folder / f"{part}.{TASKS[task][0]}"
    file.write_text(content(task, word), encoding="utf-8")
    return file


@every
@pytest.mark.parametrize("in_folder", [False, True])
def test_a_file_written_anew_is_read_anew(task, in_folder, tmp_path):
    file = own(tmp_path, task, "good")
    asked = spec(task, str(tmp_path if in_folder else file))
    before = get_task(task).load(asked)
    assert get_task(task).load(asked) is before
    for array in (before.train.tokens, before.dev.targets, before.strata, before.lengths):
        with pytest.raises(ValueError, match="read-only"):
            array.flat[0] = 1
    # As long, as old by its time stamp, in the same inode: only the time of the change itself tells.
    old = file.stat()
    while file.stat().st_ctime_ns == old.st_ctime_ns:
        own(tmp_path, task, "evil")
        os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_ino) == (old.st_size, old.st_ino)
    after = get_task(task).load(asked)
    assert after is not before
    assert get_task(task).load(asked) is after
    if task == "classification":
        with file.open("a") as more:
            more.write("odd film\to\n" * 9)
        assert get_task(task).classes(asked) == ("n", "o", "p")


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


@every
def test_held_out_data_does_not_shape_the_tokens(task, tmp_path):
    rows = []
    for word in ("zebra", "quartz"):
        own(tmp_path / word, task, "good")
        for part in ("dev", "test"):
            own(tmp_path / word, task, word, part)
        rows.append(get_task(task).load(spec(task, str(tmp_path / word))).train)
    np.testing.assert_array_equal(rows[0].tokens, rows[1].tokens)
    np.testing.assert_array_equal(rows[0].targets, rows[1].targets)


@every
@pytest.mark.parametrize("vocabulary", [64, 300, 2000])
def test_no_id_is_beyond_the_vocabulary(task, vocabulary, tmp_path):
    """Also where more equally frequent characters occur than have tokens of their own."""
    file = tmp_path / f"train.{TASKS[task][0]}"
    words = ["".join(chr(0x4E00 + i + j) for j in range(8)) for i in range(0, 400, 8)]
    file.write_text("".join(TASKS[task][1].format(word) for word in words), encoding="utf-8")
    outputs = {"classification": 2, "ner": 3}.get(task, vocabulary)
    asked = spec(task, str(file), vocabulary=vocabulary, outputs=outputs)
    if task == "language-modelling" and vocabulary == 64:
        with pytest.raises(ScenarioError, match="vocabulary is 64, but language-modelling needs a token"):
            get_task(task).load(asked)
        return
    data = get_task(task).load(asked)
    for part in (data.train, data.dev, data.test):
        assert 0 < part.tokens.max() < vocabulary
        assert part.targets.max() < asked.outputs
        assert (part.tokens[:, 0] != 0).all()


@pytest.mark.parametrize("task", ["classification", "language-modelling", "ner"])
def test_workloads_that_do_not_fit_are_refused(task):
    message = f"decoder_blocks is 2, but {task} has a linear head on the server and no decoder; set .*: 0"
    with pytest.raises(ScenarioError, match=message):
        get_task(task).load(spec(task, decoder_blocks=2))
    if task != "language-modelling":
        fault = r"embedded: \d+ (classes|tags) \(.*\) where the workload has outputs 7; set outputs: \d+"
        with pytest.raises(DataError, match=fault):
            get_task(task).load(spec(task, outputs=7))


@every
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_mean_over_units_and_parts_add_up(task, smoothing, tmp_path):
    name, task, nothing = task, get_task(task), TASKS[task][4]
    own(tmp_path, name, "good")
    own(tmp_path, name, "held", "dev")
    asked = spec(name, str(tmp_path))
    targets = torch.from_numpy(task.load(asked).dev.targets[:9].copy())
    if nothing is not None:
        targets[3, 3:] = nothing
    expected = targets[:, 1:] if name == "translation" else targets
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(*expected.shape, asked.outputs, generator=generator, dtype=torch.float64)

    def loss(part):
        scores = outputs[part].flatten(0, 1) if name == "translation" else outputs[part]
        return task.loss(scores, targets[part], smoothing)

    units = task.units(targets)
    right = torch.ones_like(expected, dtype=torch.bool) if nothing is None else expected != nothing
    assert units.tolist() == right.reshape(9, -1).sum(dim=1).tolist()
    logs, chosen = outputs[right].log_softmax(-1), expected[right]
    by_hand = (smoothing - 1) * logs[torch.arange(len(chosen)), chosen] - smoothing * logs.mean(dim=-1)
    torch.testing.assert_close(loss(slice(None)), by_hand.mean())
    parts = [loss(part) * units[part].sum() for part in (slice(0, 1), slice(1, 4), slice(4, 9))]
    torch.testing.assert_close(sum(parts) / units.sum(), by_hand.mean())


@pytest.mark.parametrize("typed", ["~nobody-has-this-name/d.tsv", "d" * 100_000], ids=["home", "long"])
@every
def test_no_task_trips_over_a_path(task, typed):
    with pytest.raises(DataError, match=r"cannot be looked up \(.*\); check the path") as caught:
        get_task(task).load(spec(task, typed))
    assert len(str(caught.value)) < 1000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@every
def test_what_is_there_but_no_file_is_not_called_missing(task, tmp_path):
    os.mkfifo(tmp_path / "pipe.tsv")
    (tmp_path / "device.tsv").symlink_to("/dev/null")
    (tmp_path / "loop.tsv").symlink_to(tmp_path / "loop.tsv")
    for name, reason in (
        ("pipe.tsv", "it is a pipe, a device or a socket"),
        ("device.tsv", "it is a pipe, a device or a socket"),
        ("loop.tsv", "symbolic links"),
        ("absent.tsv", "no such file or folder"),
        ("a\0b.tsv", "null"),
    ):
        with pytest.raises(DataError, match=reason) as refusal:
            get_task(task).load(spec(task, str(tmp_path / name)))
        assert ("no such file" in str(refusal.value)) == (name == "absent.tsv")

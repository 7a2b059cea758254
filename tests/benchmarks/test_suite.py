"""The suite of benchmarks: runs parts in order, keeps what is done, and goes on where one fails."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import suite
from measuring import INTERRUPTED, RESULTS

BENCHMARKS = Path(suite.__file__).parent
FAKES = {
    "fake_first": "return [Figure('a', 1.0, 's', goal=2.0), Figure('b', 3.0, 's', goal=2.0)]",
    "fake_broken": "raise ValueError('no room\\nmore')",
    "fake_exit": "raise SystemExit(3)",
    "fake_last": "return [Figure('c', 1.0, 's'), Figure('d', None, 's', goal=1.0, note='no such package')]",
    "fake_interrupted": "raise KeyboardInterrupt",
}


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """A folder of scripts; returns how to make some of them the suite's parts."""
    for name, body in FAKES.items():
        text = (
            "from measuring import Figure\nfrom side_by_side import SliceOptions as Options\n\n\n"
            f"def figures(options):\n    {body}\n"
        )
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))

    def use(*names):
        quick = {"slice_seconds": 0.01}
        monkeypatch.setattr(suite, "PARTS", {name: suite.Part("something", quick) for name in names})
        return tmp_path / "results" / "bench.json"

    return use


def test_one_table_and_one_file_of_all_parts(fakes, capsys):
    path = fakes("fake_first", "fake_broken", "fake_exit", "fake_last", "fake_absent")
    assert suite.main(["--quick", "--output", str(path)]) == 0
    printed = capsys.readouterr().out
    content = json.loads(path.read_text())
    found = {f["name"]: f for f in content["figures"]}
    assert list(found) == [
        "fake_first: a", "fake_first: b", "fake_broken", "fake_exit", "fake_last: c", "fake_last: d",
        "fake_absent",
    ]  # fmt: skip
    assert found["fake_first: a"]["verdict"] == "met"
    assert found["fake_first: b"]["verdict"] == "missed by 1.50 x"
    assert (
        found["fake_broken"] | {"verdict": "skipped", "note": "ValueError: no room"} == found["fake_broken"]
    )
    assert found["fake_exit"]["note"] == "SystemExit: 3"
    assert found["fake_absent"]["note"].startswith("ModuleNotFoundError")
    assert content["options"]["quick"] is True
    assert list(content["seconds"]) == list(suite.PARTS)
    table = printed[printed.index("figure ") :]
    assert table.count("\nfake_first: ") == 2
    last = printed.splitlines()[-1]
    assert last.startswith("1 of 3 goals met; skipped: fake_broken, fake_exit, fake_last: d, fake_absent")


def test_interrupt_keeps_what_is_done(fakes, capsys):
    path = fakes("fake_first", "fake_interrupted", "fake_last")
    assert suite.main(["--output", str(path)]) == INTERRUPTED
    assert [f["name"] for f in json.loads(path.read_text())["figures"]] == ["fake_first: a", "fake_first: b"]
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "1 of 2 goals met"


def test_interrupt_before_anything_is_done_writes_nothing(fakes, capsys):
    path = fakes("fake_interrupted")
    assert suite.main(["--output", str(path)]) == INTERRUPTED
    assert not path.exists()
    assert "what was stored before is kept" in capsys.readouterr().err


def test_only_some_parts_run_in_the_order_of_the_suite(fakes):
    path = fakes("fake_first", "fake_broken", "fake_last")
    assert suite.main(["--only", "fake_last", "fake_first", "--output", str(path)]) == 0
    names = [f["name"].partition(":")[0] for f in json.loads(path.read_text())["figures"]]
    assert list(dict.fromkeys(names)) == ["fake_first", "fake_last"]


@pytest.mark.parametrize("name", suite.PARTS)
def test_every_part_is_there_and_takes_its_quick_arguments(name):
    spec = importlib.util.spec_from_file_location(f"checked_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        module.Options(**suite.PARTS[name].quick).check()
        assert module.Options().file == RESULTS / f"{name}.json"
        assert callable(module.figures)
    finally:
        del sys.modules[spec.name]

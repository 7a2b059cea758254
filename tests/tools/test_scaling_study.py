"""The scaling study: fits and memory against closed forms, and a command that goes on and keeps."""

import itertools
import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import generated_parts
import make_scaling_study as study
import scaling_memory
import scaling_pictures
import scaling_points
import scaling_tables
import scaling_times

from collapipe_env.errors import DataError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split

AXIS = {axis.name: axis for axis in scaling_points.AXES}


def test_exponent_is_that_of_the_upper_half():
    """A power law above a fixed cost that hides it at small sizes only."""
    sizes = [2, 4, 8, 16, 32, 64]
    fit = scaling_tables.power_law({n: 1e-6 * max(n, 8) ** 1.5 for n in sizes})
    assert (fit.smallest, fit.largest) == (16, 64)
    assert fit.exponent == pytest.approx(1.5)
    assert fit.low == pytest.approx(fit.high) == pytest.approx(1.5)
    assert 0.0 < fit.whole < 1.5


def test_interval_is_students():
    rng = np.random.default_rng(3)
    sizes = np.array([16, 20, 25, 32, 40, 50, 64])
    values = sizes**0.7 * np.exp(0.1 * rng.standard_normal(7))
    fit = scaling_tables.power_law({2: 1.0, **dict(zip(sizes.tolist(), values.tolist(), strict=True))})
    (slope, _), covariance = np.polyfit(np.log(sizes), np.log(values), 1, cov=True)
    margin = stats.t.ppf(0.975, 5) * np.sqrt(covariance[0, 0])
    assert (fit.low, fit.exponent, fit.high) == pytest.approx((slope - margin, slope, slope + margin))


def test_two_points_have_no_interval():
    fit = scaling_tables.power_law({1: 1.0, 100: 10.0})
    assert fit.exponent == pytest.approx(0.5)
    assert np.isnan(fit.low)
    assert scaling_tables.fit_text(fit) == "0.50"


@pytest.mark.parametrize("axis", scaling_points.AXES, ids=lambda axis: axis.name)
def test_every_size_is_a_feasible_system_and_mediums_is_among_them(axis):
    medium = load_scenario("medium")
    sizes = {"clusters": 4, "devices": 5, "blocks": 12, "samples": 64}
    assert list(axis.values) == sorted(set(axis.values))
    assert sizes.get(axis.name, 64) in axis.values
    for value in (axis.values[0], axis.values[-1]):
        scenario = scaling_points.scenario_at(axis.name, value)
        wanted = sizes | ({axis.name: value} if axis.name in sizes else {})
        assert scenario.clusters == wanted["clusters"]
        assert scenario.max_devices == wanted["devices"]
        assert scenario.workload.blocks == wanted["blocks"]
        assert scenario.workload.batch_size == wanted["samples"]
        assert scenario.dynamics == medium.dynamics
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no budget that cannot be met, no cluster that is too small
            scaling_times.player(scaling_times.environment(scenario, None))(2)


def test_memory_is_that_of_one_environment(monkeypatch):
    """Each environment keeps 800 kB, and the batch a fixed 5 MB."""

    def player(size, store):
        kept = np.zeros(625_000), np.zeros((size, 100_000))
        return lambda calls: kept[1].fill(calls)

    monkeypatch.setattr(scaling_memory, "environment", lambda _, size: size)
    monkeypatch.setattr(scaling_memory, "player", player)
    found = scaling_memory.per_environment("clusters", 2, 2, 12)
    assert found["kept"] == pytest.approx(800_000, rel=0.01)


def test_memory_of_a_failing_process_says_why():
    with pytest.raises(DataError, match="clusters = -1 could not be measured"):
        scaling_memory.measure("clusters", -1, 1, 2)


class EvenSplit:
    """In place of DSSRA, whose search takes long to compile: the even split, and what it was asked."""

    def __init__(self, scenario, **_):
        self.parameters, self.asked = system_parameters(scenario), []

    def allocate(self, state):
        self.asked.append(state)
        return even_split(self.parameters, state)


def test_decisions_go_through_the_states_of_an_episode(monkeypatch):
    made = []
    monkeypatch.setattr(scaling_times, "DSSRA", lambda *a, **k: made.append(EvenSplit(*a, **k)) or made[-1])
    play = scaling_times.decider(load_scenario("small"))
    assert len(made[0].asked) == scaling_times.STORE  # the episode itself
    made[0].asked.clear()
    play(2 * scaling_times.STORE)
    rounds = [int(state.round_index[0]) for state in made[0].asked]
    assert rounds == 2 * list(range(scaling_times.STORE))
    # The stored states are copies: playing on has not changed them.
    assert len({float(state.uplink_gain.sum()) for state in made[0].asked}) == scaling_times.STORE


@pytest.fixture
def small_study(tmp_path, monkeypatch):
    """Two axes of few sizes, no processes for memory; returns how to run the command."""
    axes = (
        replace(AXIS["blocks"], values=(6, 12)),
        replace(AXIS["environments"], values=(1, 2, 4)),
    )
    monkeypatch.setattr(study, "AXES", axes)
    monkeypatch.setattr(scaling_times, "DSSRA", EvenSplit)
    asked = []

    def memory(axis, value, few, many):
        asked.append((axis, value))
        return {"resident": 1000.0 * value, "kept": 500.0 * value}

    monkeypatch.setattr(scaling_memory, "measure", memory)
    page = tmp_path / "docs" / "scaling.md"
    page.parent.mkdir()
    page.write_text(study.PAGE.read_text())
    monkeypatch.setattr(study, "PAGE", page)
    monkeypatch.setattr(study, "PICTURES", page.parent / "images")

    def run(*more):
        axes = () if "--axes" in more else ("--axes", "blocks", "environments")
        places = ("--work", str(tmp_path / "work"), "--peers", str(tmp_path / "peers.json"))
        return study.main([*axes, "--slice-seconds", "0.002", "--repeats", "2", *places, *more])

    return tmp_path, run, asked


PEERS = {
    "options": {"slice_seconds": 0.25, "repeats": 7},
    "interpreters": {"ours": {"gymnasium": "1.4.0"}, "peers": {"mobile-env": "2.1.0"}},
    "environments": {
        "CartPole-v1": {"package": "gymnasium", "about": "pole on a cart", "mine": True},
        "mobile-env small": {"package": "mobile-env", "about": "3 stations", "mine": False},
        "highway-v0": {"package": "highway-env", "about": "motorway", "mine": False},
    },
    "figures": [
        {"name": "CartPole-v1", "value": 1.0, "low": 1.0, "high": 1.0, "note": "100,000 steps/s"},
        {"name": "mobile-env small", "value": 160.2, "low": 150.0, "high": 170.0, "note": "600 steps/s"},
        {"name": "highway-v0", "value": None, "low": None, "high": None, "note": "no network"},
    ],
}


def test_command_fills_the_page_and_goes_on_from_what_is_there(small_study, monkeypatch, capsys):
    folder, run, asked = small_study
    (folder / "peers.json").write_text(json.dumps(PEERS))
    before = study.PAGE.read_text()
    assert run() == 0
    printed = capsys.readouterr().out
    assert "measurements are in" in printed
    assert "encoder blocks L" in printed
    page = study.PAGE.read_text()
    assert generated_words(page) == generated_words(before)
    assert "python tools/make_scaling_study.py --axes blocks environments" in page
    assert "| 12 | " in part(page, "blocks")
    assert part(page, "clusters") == part(before, "clusters")  # not asked for
    assert "| mobile-env small | mobile-env 2.1.0 | 3 stations | 600 | 160 (150…170) |" in page
    assert "Skipped: highway-v0: no network." in page
    pictures = sorted(p.name for p in (study.PICTURES).iterdir())
    assert pictures == ["scaling_memory.png", "scaling_times.png"]

    # Nothing is measured again, and the page comes out the same.
    monkeypatch.setattr(scaling_times, "measure", lambda *_: pytest.fail("measured again"))
    assert run() == 0
    assert asked == [("blocks", 6), ("blocks", 12)]
    assert study.PAGE.read_text() == page
    # Other options are other measurements.
    assert run("--batches", "1", "2") == 0
    assert len(asked) == 4


def test_fresh_measures_again_what_it_is_asked_for(small_study, monkeypatch, capsys):
    folder, run, asked = small_study
    assert run() == 0
    assert "the page keeps its peers" in capsys.readouterr().out
    stored = folder / "work" / "measurements.json"
    before = json.loads(stored.read_text())["measured"]
    monkeypatch.setattr(scaling_times, "measure", lambda *_: {"vector": {"1": [1.0], "2": [0.25]}})
    assert run("--axes", "environments", "--fresh") == 0
    assert len(asked) == 2  # no memory
    after = json.loads(stored.read_text())["measured"]
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"environments: times"}
    # The page shows both what is new and what is not.
    assert "| 2 | 500,000 | 250,000.0 | 0.250 |" in part(study.PAGE.read_text(), "environments")
    assert "| 12 | " in part(study.PAGE.read_text(), "blocks")


def test_interrupt_keeps_what_is_measured(small_study, monkeypatch, capsys):
    folder, run, asked = small_study
    whole = scaling_times.measure

    def interrupted(axis, *timing):
        if axis.name == "environments":
            raise KeyboardInterrupt
        return whole(axis, *timing)

    with monkeypatch.context() as patch:
        patch.setattr(scaling_times, "measure", interrupted)
        assert run() == 130
    assert "what was stored before is kept" in capsys.readouterr().err
    stored = json.loads((folder / "work" / "measurements.json").read_text())["measured"]
    assert set(stored) == {"blocks: times", "blocks: memory 6", "blocks: memory 12"}
    assert run() == 0
    assert len(asked) == 2


def test_half_a_study_has_a_page(small_study, monkeypatch):
    """Interrupted between the memories of two sizes: the page shows what is there."""
    _, run, _ = small_study
    first = scaling_memory.measure

    def memory(axis, value, few, many):
        if value != 6:
            raise KeyboardInterrupt
        return first(axis, value, few, many)

    monkeypatch.setattr(scaling_memory, "measure", memory)
    assert run() == 130
    assert run("--page-only") == 0
    table = part(study.PAGE.read_text(), "blocks")
    assert table.splitlines()[-1].endswith("| – | – |")
    assert "encoder blocks L" in part(study.PAGE.read_text(), "exponents")


def test_quick_leaves_the_documentation_alone(small_study):
    folder, run, _ = small_study
    before = study.PAGE.read_text()
    assert run("--quick") == 0
    assert study.PAGE.read_text() == before
    assert not study.PICTURES.exists()
    assert (folder / "work" / "quick" / "scaling.md").exists()


def test_page_only_measures_nothing(small_study):
    _, run, asked = small_study
    before = study.PAGE.read_text()
    assert run("--page-only") == 0
    assert asked == []
    assert study.PAGE.read_text() == before


@pytest.mark.parametrize(
    "arguments",
    [["--axes", "speed"], ["--slice-seconds", "nan"], ["--repeats", "0"], ["--batches", "4", "2"]],
    ids=lambda arguments: arguments[0],
)
def test_bad_options_are_refused(arguments, capsys):
    assert study.main(arguments) == 2
    assert arguments[0] in capsys.readouterr().err


def test_damaged_peers_are_refused(small_study, capsys):
    folder, run, _ = small_study
    (folder / "peers.json").write_text("{")
    assert run("--page-only") == 2
    assert "peers.json" in capsys.readouterr().err


def test_ticks_keep_apart():
    assert scaling_pictures.ticks([1, 2, 4, 8]) == [1, 2, 4, 8]
    chosen = scaling_pictures.ticks([2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
    assert chosen[0] == 2
    assert all(b / a > 1.5 for a, b in itertools.pairwise(chosen))


def part(page, name):
    begin, end = generated_parts.BEGIN.format(name), generated_parts.END.format(name)
    return page.partition(begin)[2].partition(end)[0]


def generated_words(page):
    """The page without its generated parts."""
    words, inside = [], False
    for line in page.splitlines():
        inside = inside or line.startswith("<!-- generated")
        if not inside:
            words.append(line)
        inside = inside and not line.startswith("<!-- end")
    return words

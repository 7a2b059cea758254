"""Parallel evaluation: the same as in one process, resumable, and clear when a worker fails."""

import dataclasses
import inspect
import zipfile
from pathlib import Path

import numpy as np
import pytest
from even_support import IMPORT, Even

from collapipe_env.evaluation import runner
from collapipe_env.evaluation.episode import PlayedEpisode, pack_allocations
from collapipe_env.evaluation.episode_files import FIGURES, EpisodeFiles, packed_episode
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.runner import decisions_of, evaluate_all
from collapipe_env.ground import files
from collapipe_env.ground.errors import DataError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS, register_scheduler


def evaluate(plan: EvaluationPlan, processes: int = 1) -> dict[str, list[EpisodeResult]]:
    return evaluate_all([plan], processes)[0].results


@pytest.fixture
def plan(tmp_path: Path) -> EvaluationPlan:
    scenario = load_scenario({"base": "small", "dynamics": {"rounds": 3}})
    return EvaluationPlan(scenario, ("pipeline", "random"), (), 2, 3, "surrogate", tmp_path / "episodes")


def test_finished_episodes_are_kept_and_only_the_rest_is_played(plan, played, monkeypatch) -> None:
    counted = runner._work

    def interrupted(unit, on_round):
        if len(played) == 3:
            raise KeyboardInterrupt
        return counted(unit, on_round)

    monkeypatch.setattr(runner, "_work", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(plan)
    assert len(list(plan.folder.glob("*.npz"))) == 3
    monkeypatch.setattr(runner, "_work", counted)
    results = evaluate(plan)
    assert len(played) == len(set(map(str, played))) == 4
    assert {name: [r.episode for r in rs] for name, rs in results.items()} == {
        "pipeline": [0, 1],
        "random": [0, 1],
    }
    evaluate(plan)
    assert len(played) == 4


def test_what_is_played_is_not_read_from_the_disk(plan, monkeypatch) -> None:
    """A scheduler's code may write there, too."""
    write = EpisodeFiles.write

    def forged(files, content, model) -> None:
        write(files, content, model)
        files.path.write_bytes(b"forged")

    monkeypatch.setattr(EpisodeFiles, "write", forged)
    found = evaluate(plan)
    monkeypatch.setattr(EpisodeFiles, "write", write)
    again = evaluate(dataclasses.replace(plan, folder=plan.folder.with_name("again")))
    assert {n: [r.delay for r in rs] for n, rs in found.items()} == {
        n: [r.delay for r in rs] for n, rs in again.items()
    }


def test_an_oracles_mark_stays_whatever_it_says_when_it_is_asked_again(plan) -> None:
    evaluate(plan)
    (unit, *_) = (one for one in runner._units(plan) if one.scheduler == "random")
    result = dataclasses.replace(unit.files.read(), title="mine (sees the truth)")
    content = packed_episode("key", PlayedEpisode(result, decisions_of(plan, "random", 0)))
    assert dataclasses.replace(unit, title="mine").read(content).title == "mine (sees the truth)"
    assert dataclasses.replace(unit, title="ours (sees the truth)").read(content).title.startswith("ours")


def test_episodes_of_other_options_are_played_again(plan, played) -> None:
    evaluate(plan)
    shorter = evaluate(dataclasses.replace(plan, rounds=2))
    assert [len(r.delay) for r in shorter["random"]] == [2, 2]
    played.clear()
    other = plan.scenario.with_overrides({"budgets.tradeoff": 9.0})
    evaluate(dataclasses.replace(plan, scenario=other, rounds=2))
    assert len(played) == 4


def test_a_file_of_another_episode_is_refused(plan) -> None:
    evaluate(plan)
    content = (plan.folder / "random-1.npz").read_bytes()
    with pytest.raises(DataError, match=r"random-0\.npz holds episode 1 of 'random': "):
        EpisodeFiles(plan.folder, "random", 0).read(content)


def test_several_processes_give_the_same_figures(plan, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(SCHEDULERS, "_added", {})
    register_scheduler("own", Even)
    (tmp_path / "helper.py").write_text(IMPORT)
    source = f"from helper import make_scheduler\n{inspect.getsource(Even)}"
    (tmp_path / "mine.py").write_text(source)
    names = ("own", f"{tmp_path / 'mine.py'}:Even")
    alone = evaluate(dataclasses.replace(plan, schedulers=("pipeline",), episodes=1))["pipeline"]
    together = dataclasses.replace(plan, schedulers=names, episodes=1, folder=tmp_path / "parallel")
    for results in evaluate(together, 2).values():
        assert [r.delay for r in results] == [r.delay for r in alone]


def flip(path: Path, name: str) -> None:
    """Change a bit in the middle of a member of an archive."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(name)
    content = bytearray(path.read_bytes())
    content[member.header_offset + 30 + len(name) + member.compress_size // 2] ^= 1
    path.write_bytes(bytes(content))


DAMAGES = {
    "a bit of the decisions": lambda path: flip(path, "blocks.npy"),
    "a bit of the figures": lambda path: flip(path, FIGURES),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_episode_is_noticed_and_measured_again(plan, damage: str, played, capsys) -> None:
    before = evaluate(plan)
    path = plan.folder / "random-1.npz"
    DAMAGES[damage](path)
    played.clear()
    capsys.readouterr()
    after = evaluate(plan)
    assert list(map(str, played)) == ["scheduler 'random', episode 1"]
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert str(path) in line
    assert line.endswith(": measuring this episode again")
    assert [r.delay for r in after["random"]] == [r.delay for r in before["random"]]
    assert len(decisions_of(plan, "random", 1)) == 3


def test_decisions_beyond_what_a_plan_can_need_are_refused_unread(plan) -> None:
    evaluate(plan)
    path = plan.folder / "random-1.npz"
    with np.load(path) as stored:
        whole = {name: stored[name] for name in stored if name != FIGURES}
    cases = {
        "it unpacks to .* bytes, above the limit of": {**whole, "blocks": np.zeros((3, 500_000))},
        "'micro_batches' has the shape .*, not 3 rounds": {
            **whole, "micro_batches": np.repeat(whole["micro_batches"], 2, axis=0)
        },
        "Object arrays cannot be loaded": {**whole, "blocks": np.full(whole["blocks"].shape, None)},
        # Takes no byte, however many rounds it claims to have.
        "'bandwidth' has the shape .*, not 3 rounds": {**whole, "bandwidth": np.zeros((10**12, 0))},
        "'blocks' has the shape .*, not 3 rounds": {**whole, "blocks": np.zeros(())},
    }  # fmt: skip
    for message, arrays in cases.items():
        np.savez_compressed(path, **arrays)
        with pytest.raises(DataError, match=rf"random-1\.npz is damaged \({message}.*run again"):
            decisions_of(plan, "random", 1)


def test_many_equal_plans_with_all_extensions_are_read(plan, monkeypatch) -> None:
    """They compress more than a hundredfold, which is too much for an archive from anywhere."""
    monkeypatch.setattr(files, "UNPACKED_ANYWAY", 0)
    evaluate(plan)
    one = decisions_of(plan, "random", 0)[0]
    one = dataclasses.replace(one, **one.groups._asdict(), **one.schedules._asdict(), **one.server._asdict())
    path = plan.folder / "random-0.npz"
    arrays = pack_allocations([one] * 2_000)
    np.savez_compressed(path, **arrays)
    assert sum(array.nbytes for array in arrays.values()) > files.unpacked_limit(path.stat().st_size)
    read = decisions_of(dataclasses.replace(plan, rounds=2_000), "random", 0)
    assert len(read) == 2_000
    for field in dataclasses.fields(one):
        assert np.array_equal(getattr(read[-1], field.name), getattr(one, field.name))


def test_decisions_are_those_of_the_rounds_until_a_target(tmp_path) -> None:
    scenario = load_scenario("small-target").with_overrides({"dynamics.target_loss": 1.6})
    plan = EvaluationPlan(scenario, ("pipeline",), (), 1, 40, "surrogate", tmp_path, until_target=True)
    (result,) = evaluate(plan)["pipeline"]
    assert 1 < len(result.delay) < 40
    assert len(decisions_of(plan, "pipeline", 0)) == len(result.delay)


def test_an_episode_may_be_shorter_than_its_plan_only_where_a_target_ends_it(plan) -> None:
    evaluate(plan)
    files = EpisodeFiles(plan.folder, "random", 0)
    with zipfile.ZipFile(files.path) as archive:
        key = archive.comment.decode()
    assert files.is_finished(key, plan.scenario, plan.rounds)
    assert files.is_finished(key, plan.scenario, plan.rounds + 1, until_target=True)
    with pytest.raises(DataError, match="damaged"):
        files.is_finished(key, plan.scenario, plan.rounds + 1)

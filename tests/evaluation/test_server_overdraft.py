"""The server's overdraft in results and tables, and what its section of a scenario means."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from collapipe_env.evaluation.comparison import notes
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.labels import BUDGET_NOTE, SERVER_NOTE
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters


def test_what_the_section_says_of_itself() -> None:
    small = load_scenario("small")
    free = small.with_overrides({"server": {"terms": "free", "pue": None}})
    assert free == small
    metered = small.with_overrides({"server.terms": "metered"})
    own = metered.with_overrides({"server.energy_budget_j": 7.0, "server.flops": 1e12, "server.pue": 1.1})
    terms = system_parameters(own).server
    assert (terms.budget_j, terms.pue, terms.memory_bytes) == (7.0, 1.1, 16e9)
    assert (terms.joules_per_flop, terms.idle_w, terms.amplifier_efficiency) == (35e-12, 30.0, 0.3)
    assert system_parameters(own).server_flops == 1e12
    weak = system_parameters(small.with_overrides({"server.terms": "weak"}))
    assert (weak.server_flops, weak.server.memory_bytes, weak.server.budget_j) == (0.2e12, 8e9, 20.0)


def test_the_comparison_draws_the_servers_overdraft() -> None:
    scenario = load_scenario({"base": "small", "server": {"terms": "metered", "energy_budget_j": 0.1}})
    played = play_episode("pipar", SCHEDULERS.get("pipar")(scenario), scenario, 0, 6, "surrogate").result
    c = system_parameters(scenario).costs
    joules = scenario.clusters * played.server_blocks * 3 * c.batch_size * c.block_forward_flops * 49e-12
    ratio = joules * c.local_steps / 0.1
    assert played.server_energy_ratio == pytest.approx(ratio, rel=1e-9)
    assert played.worst_energy_ratio == pytest.approx(ratio, rel=1e-9)
    assert played.largest_backlog == pytest.approx([(t + 1) * (ratio - 1.0) for t in range(6)], rel=1e-9)
    assert played.backlog_slope == pytest.approx(ratio - 1.0, rel=1e-6)
    played = replace(played, metric=[0.0] * 6, progress=[0.0] * 6)  # there is none of either
    assert EpisodeResult.from_json(json.dumps(played.to_dict()), "here") == played


@pytest.mark.parametrize(("ratios", "expected"), [((0.0,), SERVER_NOTE), ((1.2,), BUDGET_NOTE), ((), None)])
def test_the_mark_is_explained_with_what_counts(ratios, expected) -> None:
    episodes = [SimpleNamespace(server_blocks=2, server_energy_ratio=r, title="PiPar") for r in ratios]
    one = SimpleNamespace(plan=None, name="one", results={"pipar": episodes, "dssra": []})
    one.results = {name: found for name, found in one.results.items() if found}
    assert notes([one]) == ([] if expected is None else [expected])

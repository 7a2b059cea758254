"""Digests of scenarios, and the data that they are written as."""

import pytest

from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.scenario.loading import scenario_digest, scenario_from_text
from collapipe_env.scenario.names import scenario_names

LLAMA = {"workload.style": "llama", "workload.learned_positions": 0, "workload.token_types": 0}


def process(name, **fields):
    return {f"dynamics.processes.{name}": fields}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({}, {"budgets.per": "round"}),
        ({}, {"server": {"terms": "free", "pue": None}}),
        ({}, {"dssra_plus": {"migration_weight": 1, "heat_start": 0.5}}),
        ({}, {"dynamics.visibility": "full", "dynamics.time_base": "mixed", "dynamics.processes": {}}),
        ({}, {"radio.max_transmissions": 16, "devices.clock_cap_min": 0.2}),
        ({}, {"workload.train_bits": 32, "workload.moment_bits": 32, "workload.recompute": False}),
        ({}, {"workload.local_steps_choices": [1, 2, 4, 8, 16], "budgets.participation_min": 0.5}),
        ({}, {"decisions": COLLAPIPE[::-1]}),
        ({}, {"workload.kv_heads": 0, "learning.proxy.kv_heads": 0, "workload.rope_theta": 10_000}),
        (LLAMA, {"workload.qkv_bias": False, "workload.norm_epsilon": 1e-5}),
        (process("presence"), process("presence", replication="none")),
        (process("heat"), process("heat", ambient_sd_k=0.0, ambient_tau_s=1800)),
        (process("channel_knowledge", modes=["delayed"]), process("channel_knowledge", delay_rounds=1)),
        ({"cluster.devices": [3, 3]}, {"cluster.devices": (3, 3)}),
    ],
)
def test_scenarios_that_mean_the_same_have_one_digest(overrides, said):
    scenario = load_scenario("small").with_overrides(overrides)
    again = scenario.with_overrides(said)
    assert again == scenario
    assert scenario_digest(again) == scenario_digest(scenario)


@pytest.mark.parametrize(
    ("overrides", "changes"),
    [
        ({}, [{"name": "other"}, {"dynamics.rounds": 7}, {"dynamics.visibility": "realistic"}]),
        ({}, [{"budgets.per": "second"}, {"server.terms": "metered"}, {"dssra_plus.migration_weight": 0.5}]),
        ({}, [{"workload.train_bits": 16, "workload.stored_activation_bits": 16,
               "workload.activation_bits": 16, "workload.gradient_bits": 16},
              {"workload.moment_bits": 8}, {"workload.recompute": True}]),
        ({}, [{"decisions": [*COLLAPIPE, "recompute"]}, {"decisions": [*COLLAPIPE, "participation"]},
              {"workload.local_steps_choices": [1, 3]}, {"budgets.participation_min": 0.25},
              {"devices.clock_cap_min": 0.5}]),
        ({}, [{"learning.proxy": "off"}, {"learning.proxy.width": 64}, {"learning.device": "cpu"}]),
        # A process that is on with its defaults is not one that is off.
        ({}, [process("heat"), process("presence"), process("channel_knowledge"), process("migration")]),
        (process("heat"), [process("heat", ambient_sd_k=2.0), process("heat", levels=(1.0, 0.5))]),
        (LLAMA, [{"workload.kv_heads": 2}, {"workload.qkv_bias": True}, {"workload.rope_theta": 5e5},
                 {"workload.rope_factor": 8.0}, {"workload.rope_original_length": 16},
                 {"workload.norm_epsilon": 1e-6}, {"workload.tied_head": True}]),
    ],
)  # fmt: skip
def test_every_change_changes_the_digest_and_is_written(overrides, changes):
    base = load_scenario("small").with_overrides(overrides)
    made = [base, *(base.with_overrides(one) for one in changes)]
    assert len({scenario_digest(one) for one in made}) == len(made)
    for one in made:
        plain = one.to_dict()
        assert load_scenario(plain) == one == scenario_from_text(one.to_yaml(), "there", "there")


def paths(data, above=()):
    """Every field of plain data."""
    for name, value in data.items():
        yield from paths(value, (*above, name)) if isinstance(value, dict) and value else [(*above, name)]


def test_digests_of_shipped_scenarios_differ_and_all_fields_are_written():
    shipped = [load_scenario(name) for name in scenario_names()]
    assert len({scenario_digest(one) for one in shipped}) == len(shipped)
    free = (("dynamics", "processes"), ("learning", "proxy"))  # a scenario has the processes that are on
    fields = [{path for path in paths(one.to_dict()) if path[:2] not in free} for one in shipped]
    assert all(one == fields[0] for one in fields)
    assert ("server", "pue") in fields[0]
    assert ("dssra_plus", "heat_price") in fields[0]

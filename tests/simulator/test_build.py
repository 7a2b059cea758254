"""What a scenario's system is built of: its numbers for loops, and its reference delay."""

import pytest

from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.layout import fixed_layout
from collapipe_env.simulator.build import mean_state, reference_delay, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split


def test_reference_delay_holds_what_is_charged():
    medium = load_scenario("medium").with_overrides({"workload.local_steps": 2})
    before = reference_delay(medium)
    for field in ({"distribution": "relay"}, {"head": "common"}):
        scenario = medium.with_overrides({f"workload.{name}": value for name, value in field.items()})
        parameters, state = system_parameters(scenario), mean_state(scenario, fixed_layout(scenario))
        after = round_costs(parameters, state, even_split(parameters, state))
        assert reference_delay(scenario) == pytest.approx(float(after.delay))
        # The cluster of the longest local step may be the slowest anyway.
        more = reference_delay(scenario) - before
        assert more >= 0.0 if "head" in field else more > 0.0


def test_numbers_for_loops_are_the_parameters():
    scenario = load_scenario(
        {"base": "small", "radio": {"link_errors": "arq", "max_transmissions": 5, "d2d_duplex": "half"}}
    )
    p = system_parameters(scenario)
    c, numbers = p.costs, p.numbers
    assert numbers is p.numbers
    nested = (*numbers.overheads, *numbers.radio_power, *numbers.link)
    assert all(isinstance(value, int | float | tuple) for value in (*numbers, *nested))
    assert (numbers.lossy, numbers.link.transmissions, numbers.half_duplex) == (True, 5.0, True)
    assert numbers.blocks == scenario.workload.blocks
    assert numbers.server_seconds == pytest.approx(
        c.decoder_forward_flops * scenario.clusters / scenario.cluster.server_flops
    )
    uplink, radio_section = numbers.uplink_noise_w, scenario.radio
    assert uplink == pytest.approx(
        radio_section.noise_w_per_hz * radio_section.uplink_bandwidth_hz
        + radio_section.external_interference_w
    )
    assert numbers.update_bits == pytest.approx(c.blocks * c.block_payload_bits + c.embedding_payload_bits)
    for name in ("power_min_w", "power_max_w", "tradeoff_v", "bandwidth_floor", "link"):
        assert getattr(numbers, name) == getattr(p, name), name

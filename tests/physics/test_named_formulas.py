"""Bits on hops, numbers for loops, and the table of the docs that says where each formula is."""

import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.physics import radio
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters


def test_a_bit_on_a_hop_is_repeated_until_it_arrives_or_is_given_up():
    rate, exponent = np.array([1e6, np.inf]), np.array([np.log(5.0), 0.0])
    np.testing.assert_allclose(radio.seconds_per_bit(rate, exponent, 1.0), [1e-6, 0.0])
    np.testing.assert_allclose(radio.seconds_per_bit(rate, exponent, 2.0), [1.8e-6, 0.0])
    np.testing.assert_allclose(radio.seconds_per_bit(rate, exponent, 1e3), [5e-6, 0.0])


def test_numbers_for_loops_are_the_parameters():
    scenario = load_scenario(
        {"base": "small", "radio": {"link_errors": "arq", "max_transmissions": 5, "d2d_duplex": "half"}}
    )
    p = system_parameters(scenario)
    c, numbers = p.costs, p.numbers
    assert numbers is p.numbers
    nested = (*numbers.overheads, *numbers.radio_power)
    assert all(isinstance(value, int | float | tuple) for value in (*numbers, *nested))
    assert (numbers.lossy, numbers.transmissions, numbers.half_duplex) == (True, 5.0, True)
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
    for name in ("power_min_w", "power_max_w", "tradeoff_v", "bandwidth_floor", "waterfall_threshold"):
        assert getattr(numbers, name) == getattr(p, name), name


def test_the_table_of_the_docs_names_documented_functions():
    notes = (Path(__file__).parents[2] / "docs/modelling_notes.md").read_text()
    section = re.search(r"^## Where each formula is\n(.*?)^## ", notes, re.DOTALL | re.MULTILINE)
    assert section is not None
    rows = [line.split("|")[2] for line in section[1].splitlines() if line.startswith("| ")][2:]
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert len(named) > 25
    for name in named:
        module, _, function = name.rpartition(".")
        found = getattr(import_module(f"collapipe_env.physics.{module}"), function)
        assert callable(found), name
        assert getattr(found, "py_func", found).__doc__, name

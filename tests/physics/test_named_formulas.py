"""Formulas of energy and links on paper numbers, and the table of the docs that says where each one is."""

import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.physics import energy, memory, overheads, radio
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters

PAPER = {
    (energy, "compute_time"): (
        (8.0, 0.25, 2.0),
        6.0,
    ),  # 8 micro-batches of 0.25 s, backward twice that
    (energy, "device_airtime"): ((8.0, 0.25, 1.5), 3.5),
    (energy, "cu_airtime"): ((8.0, 0.25, 0.5, 3.0), 9.0),
    (energy, "device_energy"): ((4.0, 6.0, 0.1, 3.5), 24.35),
    (energy, "cu_energy"): ((0.2, 9.0), 1.8),
    (energy, "radio_power"): ((0.07, 1.0, 0.35), 1.2),
    (overheads, "launch_time"): ((4.0, 3e6, 2e9), 6e-3),  # 3 ms a block at 1 GHz
    (overheads, "update_time"): ((4.0, 4e6, 2e9), 8e-3),
    (radio, "usable_snr"): ((50.0, 20.0), 20.0),
    (radio, "failure_exponent"): ((4.0, 0.1), 0.025),
    (memory, "samples_beside"): ((100.0, 2.0, 20.0, 3.0), 10.0),
    (radio, "survival"): ((np.log(4.0),), 0.25),
    (radio, "full_band_rate"): ((20.0, 3.0, 4.0, 1e6), 4e6),  # W log2(1 + 15)
}


@pytest.mark.parametrize(("module", "name"), PAPER, ids=[name for _, name in PAPER])
def test_numbers_on_paper(module, name):
    arguments, expected = PAPER[module, name]
    arrays = (np.full((2, 3), a) if i == 0 else a for i, a in enumerate(arguments))
    np.testing.assert_allclose(getattr(module, name)(*arrays), np.full((2, 3), expected), rtol=1e-14)


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

"""Path losses by name against the formulas of their standards, and what a scenario makes of them."""

import math

import numpy as np
import pytest
import torch
from oracles.path_losses import ROWS

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.line_of_sight import Antennas
from collapipe_env.physics.path_loss import PATH_LOSSES, Links, PathLoss, path_loss
from collapipe_env.scenario import fixed_layout, load_scenario

METRES = np.concatenate((np.geomspace(1.0, 5000.0, 60), [1.1, 5.1, 6.4, 6.6, 17.9, 48.9, 49.1]))


def decibel(gain):
    return 10.0 * np.log10(gain)


def links(name, carrier=3.5, heights=None, gains_db=0.0):
    law = path_loss(name, 3.0, None)
    return Links(law, Antennas(carrier, *(heights or law.heights_m)), gains_db)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("carrier", [0.9, 3.5, 28.0])
@pytest.mark.parametrize("heights", [None, (12.0, 4.0), (25.0, 20.0), (30.0, 25.0), (1.5, 1.5)])
def test_losses_are_those_of_the_standard(name, carrier, heights):
    in_sight, hidden, sight, deviations = ROWS[name]
    if heights is not None and heights[0] == heights[1] and name in ("uma", "umi"):
        heights = (2.0, 2.0)  # the breakpoint is not at 0
    args = (carrier, *(heights or ()))
    drawn = links(name, carrier, heights)
    wanted = [[-loss(d, *args) for d in METRES] for loss in (in_sight, hidden)]
    ends = [drawn.gain(METRES, np.full(METRES.shape, luck)) for luck in (-1.0, 1.0)]
    np.testing.assert_allclose(decibel(ends), wanted, rtol=1e-12, atol=1e-12)
    for found, kind in zip(ends, ("los", "nlos"), strict=True):
        np.testing.assert_array_equal(links(f"{name}-{kind}", carrier, heights).gain(METRES), found)
    assert drawn.law.shadowing_db == deviations
    seen = drawn.law.sight(METRES, drawn.antennas)
    np.testing.assert_allclose(seen, [sight(d, *args[1:]) for d in METRES], rtol=1e-12)
    as_tensor = drawn.gain(torch.tensor(METRES), torch.full(METRES.shape, 0.5, dtype=torch.float64))
    np.testing.assert_allclose(as_tensor, drawn.gain(METRES, np.full(METRES.shape, 0.5)), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "at", "wanted"),
    [
        ("itu-m1225-vehicular", 500.0, -(128.1 + 37.6 * math.log10(0.5))),
        ("itu-m1225-pedestrian", 20.0, -(148.0 + 40.0 * math.log10(0.02))),
        ("inf-hh", 30.0, -(31.84 + 21.5 * math.log10(30.0) + 19.0 * math.log10(3.5))),
        ("free-space", 100.0, -20.0 * math.log10(4.0 * math.pi * 100.0 * 3.5e9 / 299_792_458.0)),
        ("log-distance", 10.0, -20.0 * math.log10(4.0 * math.pi * 3.5e9 / 299_792_458.0) - 30.0),
    ],
)
def test_other_laws(name, at, wanted):
    assert decibel(links(name).gain(np.array(at))) == pytest.approx(wanted, rel=1e-12)


def test_antennas_and_walls_add_up_and_no_gain_exceeds_one():
    plain, rich = links("umi-los"), links("umi-los", gains_db=7.0)
    np.testing.assert_allclose(decibel(rich.gain(METRES) / plain.gain(METRES)), 7.0, rtol=1e-9)
    near = links("free-space", gains_db=60.0).gain(np.array([0.1, 1.0]))
    np.testing.assert_array_equal(near, 1.0)
    assert rich.range_db(10.0, 100.0) == pytest.approx(tuple(decibel(rich.gain(np.array([10.0, 100.0])))))


def test_a_layout_draws_lines_of_sight_and_a_scenario_adds_the_link_budget():
    drawn = load_scenario(
        {
            "base": "medium",
            "radio": {
                **{"d2e_path_loss": "umi", "d2d_path_loss": "inh-mixed", "carrier_ghz": 3.5},
                **{"bs_antenna_dbi": 8.0, "device_antenna_dbi": 2.0, "penetration_db": 3.0},
                **{"bs_noise_figure_db": 5.0, "device_noise_figure_db": 9.0},
                **{"d2e_shadowing_db": 6.5, "d2d_shadowing_db": None},
            },
        }
    )
    layout = fixed_layout(drawn)
    distance = np.hypot(*layout.cu_position.T)
    either = [[loss(d, 3.5) for d in distance] for loss in ROWS["umi"][:2]]
    apart = np.abs(decibel(layout.d2e_path_gain) - (8.0 + 2.0 - 3.0) + np.array(either))
    np.testing.assert_allclose(apart.min(axis=0), 0.0, atol=1e-9)
    np.testing.assert_array_equal(layout.d2d_path_gain, layout.d2d_path_gain.swapaxes(1, 2))
    # Both kinds of hops are there.
    off = layout.device_position - layout.cu_position[:, None]
    metres = np.maximum(np.hypot(off[..., 0], off[..., 1]), drawn.cluster.hop_min_m)
    seen = [[ROWS["inh-mixed"][0](d, 3.5, 1.0, 1.0) for d in row] for row in metres]
    in_sight = np.abs(decibel(layout.d2d_path_gain[:, 0, 1:]) - 4.0 + seen) < 1e-9
    np.testing.assert_array_equal(layout.d2d_shadowing_db[:, 0, 1:], np.where(in_sight, 3.0, 8.03))
    assert 0 < in_sight.sum() < in_sight.size
    assert drawn.radio.noise_w_per_hz == pytest.approx(10.0 ** ((-174.0 - 30.0 + 9.0) / 10.0))
    assert drawn.radio.bs_noise_w_per_hz == pytest.approx(10.0 ** ((-174.0 - 30.0 + 5.0) / 10.0))
    assert drawn.radio.shadowing_db == (6.5, 8.03)
    np.testing.assert_array_equal(layout.d2e_shadowing_db, 6.5)


def test_a_law_of_ones_own_is_registered_and_what_is_none_is_refused():
    own = PathLoss("ours", lambda distance_m, antennas: 40.0 + 0.0 * distance_m * antennas.carrier_ghz)
    PATH_LOSSES.register("ours", own)
    scenario = load_scenario({"base": "small", "radio": {"d2d_path_loss": "ours"}})
    upper = np.triu_indices(fixed_layout(scenario).d2d_path_gain.shape[-1], 1)
    np.testing.assert_allclose(fixed_layout(scenario).d2d_path_gain[:, upper[0], upper[1]], 1e-4)
    PATH_LOSSES.register("no law", 3.0)
    with pytest.raises(ScenarioError, match=r"'no law' is of type float.*PathLoss"):
        path_loss("no law", 3.0, None)
    with pytest.raises(ScenarioError, match=r"d2d_path_loss.*'umy' is not known.*'umi'"):
        load_scenario({"base": "small", "radio": {"d2d_path_loss": "umy"}})

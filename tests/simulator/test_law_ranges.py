"""Path losses beyond the ranges of their sources are told of, once."""

import warnings

import pytest

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.law_ranges import LawRangeWarning, outside_ranges, warn_of_ranges


def with_radio(cluster=None, **radio):
    return load_scenario({"base": "small", "radio": radio, "cluster": cluster or {}})


AT_2_GHZ = {"d2e_path_loss": "itu-m1225-vehicular", "d2d_path_loss": "itu-m1225-pedestrian"}


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (
            with_radio(**AT_2_GHZ),
            ["2 GHz, carrier_ghz is 3.5"] * 2,
        ),
        (with_radio(d2d_path_loss="umi-nlos"), ["10 to 5000 m, links have 5 to 56.5685 m"]),
        (with_radio({"cu_distance_max_m": 6000}, d2e_path_loss="uma"), ["5000 m, links have 50 to 6000 m"]),
        (
            with_radio(d2e_path_loss="uma", bs_height_m=10.0),
            ["antennas at 25 and 1.5 to 22.5 m, links have 10"],
        ),
        (with_radio(d2d_path_loss="inf-dh-nlos"), ["at 6 to 25 and 0 to 6 m, links have 1.5 and 1.5 m"]),
        (with_radio(d2e_path_loss="umi", d2d_path_loss="inh-open", carrier_ghz=28.0), []),
        (load_scenario("medium"), []),
    ],
)
def test_each_law_is_held_against_its_links(scenario, words):
    found = outside_ranges(scenario)
    assert len(found) == len(words)
    for (place, text), expected in zip(found.items(), words, strict=True):
        assert place.startswith("radio.d2")
        assert expected in text


def test_an_environment_warns_once():
    scenario = with_radio(carrier_ghz=5.0, **AT_2_GHZ)
    warn_of_ranges.cache_clear()
    with pytest.warns(LawRangeWarning, match=r"radio\.d2e_path_loss.* is 5; radio\.d2d"):
        CollaPipeVectorEnv(1, scenario, "surrogate")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CollaPipeVectorEnv(1, scenario, "surrogate")

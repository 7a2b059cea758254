"""Maps in pictures of rounds: places, the pipeline's hops, the way to the base station."""

import dataclasses
import itertools
import math

import numpy as np
from oracles import path_losses

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.rendering import draw_round
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.rendering.site_maps import map_of
from collapipe_env.scenario import fixed_layout
from collapipe_env.simulator.system import walking_side

WALKING = {"base": "small", "dynamics": {"rounds": 6, "processes": {"mobility": {}}}}


def played(scenario, rounds=2):
    env = CollaPipeEnv(scenario, "surrogate", render_mode="rgb_array")
    env.reset(seed=3)
    env.action_space.seed(1)
    for _ in range(rounds):
        env.step(env.action_space.sample())
    return env


def view_of(env):
    return RoundView(env.last_round, "walking", side_m=env.scenario.cluster.area_side_m)


def test_a_map_shows_the_places_of_the_round_and_the_hops_of_the_plan():
    env = played(WALKING)
    record = env.last_round
    view, plan = view_of(env), record.allocation
    gains = fixed_layout(env.scenario).d2e_path_gain
    walk = record.state.processes["mobility"]
    for n in range(len(view.charts)):
        site = map_of(view, n)
        np.testing.assert_allclose(site.east_m, walk["x"][0, n] - 20.0)
        np.testing.assert_allclose(site.north_m, walk["y"][0, n] - 20.0)
        held = [0, *(1 + np.flatnonzero(plan.blocks[0, n])), 0]
        times = plan.micro_batches[0, n] * record.costs.elements.hop_forward[0, n]
        expected = [(i, j, times[i]) for i, j in itertools.pairwise(held)]
        assert sorted(site.links) == sorted(expected)
        # The CU's way to the base station, of 8 dBi, is as long as its path loss says, in sight or not.
        far = math.hypot(*site.station_m)
        decibel = -10.0 * math.log10(gains[n])
        losses = [law(far, 3.5) - 8.0 for law in (path_losses.umi_los, path_losses.umi_nlos)]
        assert min(abs(loss - decibel) for loss in losses) < 1e-9


def test_pictures_hold_maps_only_where_devices_move():
    env = played(WALKING)
    view = view_of(env)
    moving, plain = draw_round(view), draw_round(dataclasses.replace(view, side_m=None))
    assert moving.shape == plain.shape == (800, 1200, 3)
    # Maps take the lower left; what stands beside the pipelines stays where it is.
    np.testing.assert_array_equal(moving[:, 760:], plain[:, 760:])
    assert (moving[600:, :720] != plain[600:, :720]).any()


def test_pictures_of_devices_that_stand_still_hold_none():
    standing = played({"base": "small", "dynamics": {"rounds": 6}})
    without = dataclasses.replace(view_of(standing), side_m=None)
    np.testing.assert_array_equal(draw_round(view_of(standing)), draw_round(without))


def test_a_device_that_moves_moves_in_the_picture():
    view = view_of(played(WALKING))
    state = view.record.state
    walk = dict(state.processes["mobility"])
    walk["x"], walk["y"] = walk["x"].copy(), walk["y"].copy()
    walk["x"][0, 0], walk["y"][0, 0] = walk["x"][0, 0, ::-1], 40.0 - walk["y"][0, 0]
    moved = dataclasses.replace(state, processes={**state.processes, "mobility": walk})
    record = dataclasses.replace(view.record, state=moved)
    changed = draw_round(view) != draw_round(dataclasses.replace(view, record=record))
    rows, columns = np.nonzero(changed.any(axis=-1))
    # Only the first map, 116 pixels wide at the left edge of the pipelines.
    assert rows.min() > 640
    assert rows.max() < 780
    assert columns.min() >= 100
    assert columns.max() <= 224


def test_every_row_has_its_map_and_open_areas_have_their_circle():
    walk = {"processes": {"mobility": {"area": "open", "roaming": 1.6}}}
    budgets = {"device_energy_j": 20, "cu_energy_j": 20}
    fields = {"cluster": {"devices": [3, 2]}, "budgets": budgets, "dynamics": walk}
    env = CollaPipeVectorEnv(2, {"base": "small", **fields}, "surrogate", render_mode="rgb_array")
    env.reset(seed=1)
    first, second = env.render()  # a preview
    assert (first[640:, :720] != second[640:, :720]).any()
    env.step(env.action_space.sample())
    view = RoundView(env.last_round, "leaving", side_m=walking_side(env.scenario), reach_m=10.0)
    assert (draw_round(view) != draw_round(dataclasses.replace(view, reach_m=None))).any()

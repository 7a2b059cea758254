"""The layout of graph observations: names, quantities, tables, and the way back to physical units."""

import re
from pathlib import Path

import array_api_strict
import numpy as np
import pytest
import torch
from environments_support import make_actions, single

from collapipe_env.envs.graph_layout import GraphLayout
from collapipe_env.simulator.build import system_parameters


def graph(scenario):
    return single(scenario, observation="graph")


DOCS = Path(__file__).parents[2] / "docs" / "environment.md"


def test_physical_undoes_the_form_of_every_feature():
    env = graph("priced")
    env.reset(seed=1)
    layout = env.observation_layout
    observation = [env.step(action)[0] for action in make_actions(env, 3, seed=1)][-1]
    physical, s = layout.physical(observation), env.state
    for name, part in layout.items():
        assert list(physical[name]) == ([feature.quantity for feature in part.features] or [name])
        for i, feature in enumerate(part.features):
            found = physical[name][feature.quantity]
            assert (found.dtype == np.bool_) == feature.form.flag
            shown, there = feature.form.of(1.0 * found), ~np.isnan(found)
            close = {"rtol": 1e-6, "atol": 1e-6, "err_msg": feature.name}
            np.testing.assert_allclose(shown[there], observation[name][..., i][there], **close)
    np.testing.assert_allclose(physical["device"]["backlog"], s.backlog[0, :, 1:], rtol=1e-6, atol=1e-9)
    flops = (
        3 * 3 * env.scenario.workload.batch_size * system_parameters(env.scenario).costs.block_forward_flops
    )
    np.testing.assert_allclose(physical["device"]["block_s"], flops / s.speed[0], rtol=1e-6)
    assert physical["context"]["latency_s"] == pytest.approx(3 * 0.003, rel=1e-6)


def test_constants_that_were_added_are_taken_away_again():
    env = graph({"base": "small", "overheads": {"message_s": 0.0, "latency_s": 0.0, "block_s": 0.0}})
    physical = env.observation_layout.physical(env.reset(seed=0)[0])
    for name in ("message_s", "latency_s", "moments_ratio", "relay_ratio"):
        assert 0.0 <= physical["context"][name] < 1e-9, name
    assert (physical["device"]["launch_s"] < 1e-9).all()
    assert (physical["device"]["launch_s"] >= 0.0).all()
    assert (physical["cu"]["backlog"] == 0.0).all()


@pytest.mark.parametrize("convert", [np.asarray, torch.asarray, array_api_strict.asarray])
def test_physical_knows_no_absent_devices_and_keeps_libraries_and_axes(convert):
    env = graph("uneven")
    observation, _ = env.reset(seed=0)
    layout, present = env.observation_layout, env.state.present[0]
    single = layout.physical(observation)
    batch = {name: convert(np.stack([array, array])) for name, array in observation.items()}
    found = layout.physical(batch)
    for part, quantities in single.items():
        for name, values in quantities.items():
            assert type(found[part][name]) is type(convert(np.zeros(1)))
            np.testing.assert_allclose(np.asarray(found[part][name])[1], values, rtol=1e-14, err_msg=name)
    for values in single["device"].values():
        np.testing.assert_array_equal(np.isnan(values), ~present)
    there = np.concatenate([np.ones((4, 1), bool), present], axis=-1)
    both = there[:, :, None] & there[:, None] & ~np.eye(6, dtype=bool)
    for values in single["hop"].values():
        np.testing.assert_array_equal(np.isnan(values), ~both)
    np.testing.assert_array_equal(single["present"]["present"], present)
    assert not any(np.isnan(values).any() for values in single["cu"].values())


def test_features_are_found_by_name():
    env = graph("moving")
    env.reset(seed=3)
    layout = env.observation_layout
    observation = env.step(env.action_space.sample())[0]
    parts = layout.unpack(observation)
    for part, features in parts.items():
        if part == "present":
            assert features == {"present": observation["present"]}
            continue
        for name, values in features.items():
            np.testing.assert_array_equal(values, observation[part][..., layout[part].place(name)])
    assert parts["device"]["log_backlog"].shape == (2, 3)
    with pytest.raises(ValueError, match="log_blocklog"):
        layout["device"].place("log_blocklog")


def test_the_description_names_every_array_and_feature():
    env = graph("uneven")
    layout, text = env.observation_layout, env.observation_layout.describe()
    features = [(name, feature) for name, part in layout.items() for feature in part.features]
    assert len(text.splitlines()) == len(layout) + len(features) == 6 + 8 + 8 + 2 + 1 + 25
    for name, part in layout.items():
        assert f"{name} {env.observation_space[name].shape}: {part.description}" in text.splitlines()
    assert len({(part, feature.name) for part, feature in features}) == len(features)
    for _, feature in features:
        line = rf"^ +\d+ {feature.name} +\[.*\] {feature.unit} +{re.escape(feature.description)}$"
        assert re.search(line, text, re.MULTILINE)
        assert feature.form.log == feature.name.startswith("log_")


def test_the_page_holds_the_table_of_all_features():
    table = GraphLayout.markdown()
    assert table in DOCS.read_text(), "paste what GraphLayout.markdown() returns into docs/environment.md"
    for features in (part.features for part in GraphLayout(2, 3, 4).values()):
        for feature in features:
            assert f"| `{feature.name}` | {feature.unit} | {feature.description} |" in table

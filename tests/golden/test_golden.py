"""No id changes its behaviour unnoticed: trajectories equal those stored when its version was raised."""

import json

import numpy as np
import pytest
from make_golden import FOLDER, ROUNDS, golden_ids, play_golden

from collapipe_env.envs.registration import environment_ids

REMEDY = "behaviour changed: if this is intended, raise the ids' version and run `make golden`"
TWINS = [name for name, _ in environment_ids() if "Surrogate" not in name]


def stored(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def assert_same_system(played, golden):
    for t, (now, then) in enumerate(zip(played["rounds"], golden["rounds"], strict=True)):
        assert set(now["system"]) == set(then["system"])
        for key, value in then["system"].items():
            message = f"round {t}, {key}: {REMEDY}"
            np.testing.assert_allclose(now["system"][key], value, rtol=1e-9, atol=1e-12, err_msg=message)
        message = f"round {t}, observation: {REMEDY}"
        np.testing.assert_allclose(now["observation"], then["observation"], atol=1e-6, err_msg=message)


def test_every_id_has_its_file():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(golden_ids())


@pytest.mark.parametrize("name", golden_ids())
def test_golden_trajectory(name):
    played, golden = play_golden(name), stored(name)
    assert len(golden["rounds"]) == ROUNDS
    assert_same_system(played, golden)
    assert played["initial_loss"] == pytest.approx(golden["initial_loss"], rel=1e-9)
    for now, then in zip(played["rounds"], golden["rounds"], strict=True):
        assert now["loss"] == pytest.approx(then["loss"], rel=1e-9), REMEDY


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_real_training_shares_the_system(name):
    assert_same_system(play_golden(name), play_golden(name, learner="surrogate"))

"""Trainings of the pages end well: their code runs in full, and the policy plays held-out episodes."""

import functools
import shlex

import numpy as np
import pages_support as support
import pytest
from test_notebooks import cells

from collapipe_env import load_agent, load_scenario
from collapipe_env.cli.main import main
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.schedulers import SCHEDULERS

README = support.ROOT / "README.md"
EPISODES = 5
PAGES = {"README": "small", "rl_libraries": "small", "learned_agents": "small"}
"""Scenario of each page's training."""
AS_IN_THE_README = {"how_to_scheduler"}
ELSEWHERE = {"views"}
"""Pages whose training needs a library that the package does not install."""


def training(page):
    """The block of a page that trains."""
    (code,) = [text for language, text in support.code(page) if language == "python" and ".learn(" in text]
    return code


def returns(scenario, decide):
    """Returns of held-out episodes under the default reward (EPISODES,)."""
    env, found = CollaPipeEnv(scenario, "surrogate"), []
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=HELD_OUT_SEED + episode)
        total, over = 0.0, False
        while not over:
            decision = decide(observation, env)
            step = env.step if isinstance(decision, np.ndarray) else env.step_allocation
            observation, reward, terminated, truncated, _ = step(decision)
            total, over = total + reward, terminated or truncated
        found.append(total)
    return np.array(found)


@functools.cache
def known(scenario):
    """Mean returns of the even split and of DSSRA."""
    players = [SCHEDULERS.get(name)(load_scenario(scenario)) for name in ("pipeline", "dssra")]
    return [returns(scenario, lambda _, env, who=who: who.allocate(env.state)).mean() for who in players]


def closed(scenario, decide):
    """Share of the way from the even split to DSSRA that it has gone, by the mean return."""
    even, dssra = known(scenario)
    found = returns(scenario, decide).mean()
    print(f"{scenario}: trained {found:.1f}, DSSRA {dssra:.1f}, even split {even:.1f}")
    return (found - even) / (dssra - even)


def of_model(model):
    return lambda observation, _: model.predict(observation, deterministic=True)[0]


def test_every_page_that_trains_is_known():
    pages = [README, *support.DOCS.glob("*.md")]
    pages = [page for page in pages if ".learn(" in page.read_text(encoding="utf-8")]
    trains = {page.stem for page in pages if any(".learn(" in text for _, text in support.code(page))}
    assert trains == set(PAGES) | AS_IN_THE_README | ELSEWHERE
    for name in AS_IN_THE_README:
        assert training(support.DOCS / f"{name}.md").startswith(training(README))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_trains_a_good_policy(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = README if name == "README" else support.DOCS / f"{name}.md"
    names = {}
    exec(training(page), names)
    assert closed(PAGES[name], of_model(names["model"])) > 0.8


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_notebook_trains_a_good_policy():
    names = {"__name__": "__main__"}
    for source in cells(support.ROOT / "notebooks" / "train_ppo.ipynb", "code"):
        exec(source, names)
        if ".learn(" in source:
            break
    assert closed("small", of_model(names["model"])) > 0.8


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_quick_trial_trains_a_policy_better_than_the_even_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = cells(support.ROOT / "notebooks" / "train_ppo.ipynb", "markdown")
    (line,) = {
        line.split("#")[0].strip()
        for text in (README.read_text(encoding="utf-8"), *notebook)
        for line in text.splitlines()
        if line.startswith("collapipe train") and "--steps 20000" in line
    }
    short = ["--learner", "surrogate", "--schedulers", "agent", "--rounds", "1", "--no-figures"]
    assert main([*shlex.split(line)[1:], *short]) == 0
    trained = load_agent("runs/trial/checkpoints/best.safetensors", "small")
    assert closed("small", lambda observation, env: trained.act(observation[None], env.state)[0]) > 0.5

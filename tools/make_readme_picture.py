"""Draw the round of the README's picture: DSSRA on ``medium``, after ten rounds.

Run ``python tools/make_readme_picture.py``; it writes ``docs/images/round.png``.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
from matplotlib.image import imsave

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.env import CollaPipeEnv

TARGET = Path(__file__).parents[1] / "docs" / "images" / "round.png"


def main() -> None:
    """Play ten rounds and draw the last one."""
    env = gym.make("CollaPipeSurrogate-v0", render_mode="rgb_array")
    inner = env.unwrapped
    assert isinstance(inner, CollaPipeEnv)
    scheduler = DSSRA(inner.scenario)
    env.reset(seed=0)
    for _ in range(10):
        inner.step_allocation(scheduler.allocate(inner.state))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    picture = inner.render()
    assert picture is not None
    imsave(TARGET, picture)
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()

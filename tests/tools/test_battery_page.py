"""The page about batteries: its example, what it says of defaults, and the tool that writes its table."""

import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from ruamel.yaml import YAML

from collapipe_env.dynamics.battery_spec import BatterySpec
from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_battery_page as tool  # noqa: E402

PAGE = (ROOT / "docs/batteries.md").read_text()


def test_the_example_is_a_scenario_with_defaults_but_for_the_share() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    scenario = load_scenario(YAML(typ="safe").load(block))
    assert dict(scenario.dynamics.processes)["battery"] == BatterySpec(usable_share=0.01)


def test_the_page_says_the_defaults() -> None:
    own = BatterySpec()
    assert own.usable_share == 0.03
    assert "0.03 by default" in PAGE
    assert int(own.capacity_j / 12.0) == 5197
    assert "5,200 rounds of 12 J" in PAGE
    chargers = (own.charger_min_w, own.charger_max_w, own.charger_on_s / 60.0, own.charger_off_s / 60.0)
    assert "{:g} to {:g} W, {:g} and {:g} minutes".format(*chargers) in PAGE
    sky = (own.panel_w, own.cloud_mean, own.cloud_sd, own.cloud_tau_s)
    assert "Defaults: {:g} W, {:g}, {:g} and {:g} s |".format(*sky) in PAGE


def test_a_few_rounds_of_the_table_and_the_figure(monkeypatch) -> None:
    monkeypatch.setattr(tool, "ROUNDS", 2)
    monkeypatch.setattr(tool, "EPISODES", 1)
    chosen = {"mains": None, "drained": {"usable_share": 1e-4, "harvest": "none", "start_max": 0.5}}
    monkeypatch.setattr(tool, "BATTERIES", chosen)
    monkeypatch.setattr(tool, "RULES", {"pipeline": "even split"})
    _, _, mains, drained = (line.strip("| ").split(" | ") for line in tool.table().splitlines())
    assert mains[3].strip() == ""
    # Six joules and less hold no round's energy of any device.
    assert float(mains[4]) == 0.0
    assert float(drained[4]) == 100.0
    assert float(drained[5]) == 0.0
    drawn = tool.figure("drained")
    assert len(drawn.axes[0].lines) == 7  # five devices and two levels
    plt.close(drawn)

"""The zoo: every file is what its index says, and names lead to files that were checked."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from record_support import leaves
from settings_support import SETTINGS
from zoo_support import SCENARIO, trained_agent, use_zoo

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.learned.agent_file import packed_agent, read_agent_file
from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import CheckpointError, DataError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.zoo import shipped_agents as zoo


def put(folder: Path, name: str, content: bytes) -> zoo.ShippedAgent:
    """Write an agent's file and card, and the index with it alone."""
    agent = zoo.ShippedAgent(
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        algorithm="ppo",
        trained_on="tiny",
        description="An example.",
        figures="delay 1 s",
        command="collapipe train",
    )
    (folder / f"{name}.safetensors").write_bytes(content)
    (folder / f"{name}.md").write_text(f"# {name}\n\n{agent.sha256} {agent.command}\n")
    zoo.write_index([agent])
    return agent


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    checkpoint = trained_agent(tmp_path_factory.mktemp("agent"), "ppo").best
    return packed_agent(*read_agent_file(checkpoint).playing, "agent")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch, content: bytes) -> Path:
    """A zoo of one agent, ``tiny-ppo``."""
    found = use_zoo(tmp_path / "zoo", monkeypatch)
    put(found, "tiny-ppo", content)
    return found


def test_every_shipped_file_is_the_one_of_the_index() -> None:
    folder = zoo.FOLDER
    entries = json.loads((folder / "index.json").read_text())["agents"]
    files = {path.name for path in folder.iterdir() if path.suffix in (".safetensors", ".md", ".json")}
    listed = {name for entry in entries for name in (f"{entry['name']}.safetensors", f"{entry['name']}.md")}
    assert files == listed | {"index.json"}
    for entry in entries:
        file = folder / f"{entry['name']}.safetensors"
        held = file.read_bytes()
        assert hashlib.sha256(held).hexdigest() == entry["sha256"], entry["name"]
        assert len(held) == entry["size"]
        record, _ = read_agent_file(file)
        assert (record.algorithm, record.trained_on) == (entry["algorithm"], entry["trained_on"])
        card = (folder / f"{entry['name']}.md").read_text()
        assert entry["sha256"] in card
        assert entry["command"] in card
    assert len(entries) == len(zoo.shipped_agents())


@pytest.mark.parametrize("name", zoo.shipped_agents())
def test_every_agent_loads_for_what_it_was_trained_on(name: str) -> None:
    record, _ = read_agent_file(zoo.agent_path(f"zoo:{name}"))
    scheduler = load_agent(f"zoo:{name}", record.scenario or "medium")
    assert callable(scheduler.act)


@pytest.mark.parametrize("name", ["small-ppo", "small-sac", "graph"])
def test_agents_decide_the_same_inside_other_programs(name: str) -> None:
    env = CollaPipeVectorEnv(2, "small", IdleLearner(2))
    observation, _ = env.reset(seed=0)

    def decided() -> list[bytes]:
        answer = load_agent(f"zoo:{name}", "small").act(observation, env.state)
        return [array.tobytes() for _, array in leaves(answer)]

    expected = decided()
    for settings in SETTINGS.values():
        with settings():
            assert decided() == expected


@pytest.mark.parametrize(("name", "scenario"), [("graph", "medium"), ("graph-llm", "llm-boards")])
def test_graph_nets_are_about_as_fast_as_dssra_on_what_they_are_for(name: str, scenario: str) -> None:
    env = CollaPipeVectorEnv(2, scenario, IdleLearner(2), autoreset_mode="Disabled")
    delay = []
    for player in (DSSRA(env.scenario, threads=1), load_agent(f"zoo:{name}", scenario)):
        env.reset(seed=1)
        delay.append(sum(env.step_allocation(player.allocate(env.state))[4]["delay"] for _ in range(30)))
    assert ((delay[1] / delay[0] > 0.95) & (delay[1] / delay[0] < 1.03)).all()


def test_a_name_leads_to_its_file(folder: Path) -> None:
    path = folder / "tiny-ppo.safetensors"
    assert zoo.agent_path("zoo:tiny-ppo") == zoo.agent_path(Path("zoo:tiny-ppo")) == path
    assert zoo.shown_agent(path) == "zoo:tiny-ppo"
    other = Path("runs/best.safetensors")
    assert zoo.agent_path(other) == zoo.agent_path(str(other)) == other
    assert zoo.shown_agent(other) == "runs/best.safetensors"
    assert load_agent("zoo:tiny-ppo", SCENARIO).name == "PPO"
    with pytest.raises(CheckpointError, match=r"^zoo:tiny-ppo was trained on 'tiny'"):
        load_agent("zoo:tiny-ppo", "medium")
    with pytest.raises(CheckpointError, match=r"no agent 'tiny-pp': did you mean 'tiny-ppo'\?"):
        load_agent("zoo:tiny-pp", SCENARIO)
    zoo.write_index([])
    with pytest.raises(CheckpointError, match=r"no agent 'tiny-ppo': no agents are shipped yet"):
        load_agent("zoo:tiny-ppo", SCENARIO)


def test_another_content_is_refused_before_it_is_read(folder: Path, content: bytes, monkeypatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr("collapipe_env.agents.learned.agent_loading.read_agent_file", never)
    changed = content[:-1] + bytes([content[-1] ^ 1])
    for odd in (changed, content[:-4], b""):
        (folder / "tiny-ppo.safetensors").write_bytes(odd)
        sizes = f"it has {len(odd):,} bytes .* the index names {len(content):,} bytes"
        with pytest.raises(CheckpointError, match=rf"is not the file of zoo:tiny-ppo: {sizes}"):
            load_agent("zoo:tiny-ppo", SCENARIO)
    (folder / "tiny-ppo.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*tiny-ppo\.safetensors of zoo:tiny-ppo"):
        load_agent("zoo:tiny-ppo", SCENARIO)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "does not say format = 'collapipe-env zoo'"),
        ({"format_version": 2}, "format_version = 1"),
        ({"agents": {}}, "agents is {}: it should be a valid list"),
        ({"agents": [3]}, "agents[0] is 3: "),
        ({"size": "3"}, "agents[0].size is '3': it should be a valid integer"),
        ({"name": "../tiny"}, "agents[0].name is '../tiny'"),
        (None, "lists an agent twice"),
    ],
)
def test_a_damaged_index_is_named(folder: Path, change: dict | None, message: str) -> None:
    index = json.loads((folder / "index.json").read_text())
    if change is None:
        index["agents"] *= 2
    else:
        (index if change.keys() <= index.keys() else index["agents"][0]).update(change)
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=re.escape(message)):
        zoo.shipped_agents()


def test_the_index_is_read_back(folder: Path, content: bytes) -> None:
    agent = put(folder, "tiny-sac", content)
    assert zoo.shipped_agents() == {"tiny-sac": agent}

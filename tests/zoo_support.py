"""A small agent that was really trained, and zoos in a folder of their own."""

from pathlib import Path

from collapipe_env.agents.learned.agent_file import write_agent_file
from collapipe_env.agents.learned.agent_training import TrainingPlan, train
from collapipe_env.agents.learned.hyperparameters import PPOParameters, SACParameters, usual
from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.zoo import shipped_agents as zoo

SCENARIO = load_scenario({"name": "tiny", "base": "small", "dynamics": {"rounds": 4}})
TINY = {
    "ppo": usual(
        PPOParameters, policy="mlp", credit="round", rollout_steps=4, minibatch=8, epochs=1, hidden_units=(8,)
    ),
    "sac": usual(
        SACParameters,
        policy="mlp",
        buffer_size=200,
        learning_starts=8,
        minibatch=8,
        gradient_steps=1,
        hidden_units=(8,),
    ),
}
COMMAND = "collapipe train --scenario tiny.yaml"


def trained_agent(
    folder: Path, algorithm: str, scenario: Scenario = SCENARIO, seed: int = 0
) -> TrainingFiles:
    """Train a few steps."""
    files = TrainingFiles(folder)
    plan = TrainingPlan(
        scenario=scenario,
        algorithm=algorithm,  # type: ignore[arg-type]
        parameters=TINY[algorithm],
        steps=32,
        envs=2,
        seed=seed,
        learner="surrogate",
        reward="drift_plus_penalty",
        validate_every=8,
        validation_episodes=2,
        command=COMMAND,
    )
    train(plan, files, say=lambda _: None)
    return files


def saved_agent(scenario: Scenario, path: Path, seed: int, *, algorithm: str = "ppo") -> Path:
    """Write an untrained agent with weights of this seed."""
    from collapipe_env.agents.learned.sb3_models import build_model, saved_model

    env = CollaPipeVecEnv(CollaPipeVectorEnv(2, scenario, "surrogate", autoreset_mode="SameStep"))
    parameters = usual(type(TINY[algorithm]), hidden_units=(8,))
    saved = saved_model(build_model(parameters, env, seed), algorithm, parameters, scenario, {}, [])
    write_agent_file(path, *saved.playing)
    return path


def use_zoo(folder: Path, monkeypatch) -> Path:
    """Let the package's zoo be a folder, empty at first."""
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(zoo, "FOLDER", folder)
    zoo.write_index([])
    return folder

"""Contract of every environment's states: where one goes on, what leaves no trace, what damage is refused."""

import copy
from contextlib import suppress

import environments_support as support
import numpy as np
import pytest
from environments_support import KINDS, MODES, Player, assert_close, make_actions, on_host
from record_support import leaves
from state_damage_support import damaged, damaged_bytes, with_text
from state_ways_support import WAYS, assert_same

from collapipe_env.ground.errors import NotResetError, RewardError, StateError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split

GIVEN = [
    ("single", {"observation": "graph", "render_mode": "rgb_array"}),
    ("single", {"scenario": "medium"}),
    ("single", {"scenario": "arq"}),
    ("objectives", {}),
    *((kind, {"autoreset_mode": mode}) for kind in ("vector", "on_tensors") for mode in MODES),
    ("vector", {"scenario": "skewed"}),  # the learner has a schedule of step sizes
    ("on_tensors", {"scenario": "skewed", "dtype": "float32", "observation": "graph"}),
    ("vector_objectives", {}),
]
every_one = pytest.mark.parametrize(("kind", "given"), GIVEN)


def out_of_step(kind, given):
    """A player amid an episode, its rows in different rounds and one of them at its end, and what follows."""
    player = Player(KINDS[kind](**given))
    actions = make_actions(player.env, 10)
    player.reset(5)
    player.go_on(actions[:1])
    if player.batched:
        player.reset(mask=[False, True, False])
        player.go_on(actions[1:4])
    return player, actions[4:]


@every_one
@pytest.mark.parametrize("way", WAYS)
def test_it_goes_on_bit_for_bit(way, kind, given, tmp_path):
    player, actions = out_of_step(kind, given)
    other = Player(way(player.env, lambda: KINDS[kind](**given), tmp_path / "state.safetensors"))
    assert_same(dict(leaves(other.env.last_round)), dict(leaves(player.env.last_round)))
    one, two = other.env.last_round.surviving_fraction(), player.env.last_round.surviving_fraction()
    assert_same(one, two)
    ended = [bool(row["ended"]) for row in player.summaries()]
    assert ended == ([True, False, True] if player.batched else [False])
    for _ in range(2):
        assert_close(other.summaries(), player.summaries())
        assert_close(other.go_on(actions), player.go_on(actions))
        assert_same(other.env.get_state(), player.env.get_state())


@every_one
def test_a_state_is_a_copy_that_can_be_set_again_and_again(kind, given):
    player, actions = out_of_step(kind, given)
    env = player.env
    spoil(env.get_state())
    state = env.get_state()
    kept, first = copy.deepcopy(state), player.go_on(actions)
    for asked in (True, False):
        env.set_state(state)
        if asked:  # the last round is worked out then
            assert env.last_round.costs.delay.shape == env.last_round.smoothed_loss.shape
        assert_same(env.get_state(), kept)
        assert_close(player.go_on(actions), first)
    assert_same(state, kept)
    env.set_state(state)
    spoil(state)
    assert_close(player.go_on(actions), first)


def spoil(tree):
    """Write over all arrays of a state."""
    for part in tree.values():
        if isinstance(part, dict):
            spoil(part)
        elif isinstance(part, np.ndarray) and part.size:
            part.fill(1)


@every_one
def test_a_simulation_is_the_step_and_leaves_no_trace(kind, given):
    player, actions = out_of_step(kind, given)
    env, twin = player.env, KINDS[kind](**given)
    for action in actions[:4]:
        before, record, arrays = env.get_state(), env.last_round, dict(leaves(env.state))
        plan = even_split(system_parameters(env.scenario), env.state.map(on_host)).map(np.copy)
        simulated, planned = env.simulate(action), env.simulate(plan)
        assert_same(env.get_state(), before)
        assert env.last_round is record
        assert all(array is arrays[name] for name, array in leaves(env.state))
        twin.set_state(before)
        assert_same(twin.step_allocation(plan), planned)
        assert np.any(np.asarray(planned[1]) != np.asarray(simulated[1]))
        assert_same(env.step(action), simulated)
        ends = np.asarray(simulated[2] | simulated[3])
        if player.mode.value == "Disabled" and ends.any():
            player.reset(mask=ends)


@pytest.mark.parametrize("kind", ["single", "vector", "on_tensors"])
def test_a_failed_round_leaves_no_trace(kind):
    def fails(*_):
        raise KeyError("broken")

    env = KINDS[kind](reward=fails)
    env.reset(seed=0)
    before, action = env.get_state(), np.zeros(env.action_space.shape)
    for play in (env.simulate, env.step):
        with pytest.raises(RewardError, match="broken"):
            play(action)
        assert_same(env.get_state(), before)


@pytest.mark.parametrize("kind", ["single", "vector", "on_tensors"])
def test_a_state_before_the_first_reset_is_one_too(kind):
    env, other = KINDS[kind](), KINDS[kind]()
    other.reset(seed=0)
    other.set_state(env.get_state())
    with pytest.raises(NotResetError, match="before its first reset"):
        other.step(make_actions(env, 1)[0])
    assert other.last_round is None


def test_a_learner_without_states_is_refused_and_plays():
    env = support.single(learner=support.SteadyLearner())
    env.reset(seed=0)
    action = make_actions(env, 1)[0]
    for ask in (env.get_state, lambda: env.simulate(action)):
        with pytest.raises(StateError, match="SteadyLearner has no get_state"):
            ask()
    assert env.step(action)[4]["loss"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("mine", "its", "given", "message"),
    [
        ("single", "single", {"scenario": "medium"}, "scenario = 'custom .*, this environment 'custom"),
        ("single", "single", {"rounds": 5}, "rounds = 4, this environment 5"),
        (
            "single",
            "single",
            {"learner": IdleLearner(1)},
            "'SurrogateLearner', this environment 'IdleLearner'",
        ),
        ("single", "vector", {"num_envs": 1}, "'CollaPipeEnv', this environment 'CollaPipeVectorEnv'"),
        ("single", "objectives", {}, "'CollaPipeEnv', this environment 'MultiObjectiveEnv'"),
        ("vector", "vector", {"num_envs": 2}, "num_envs = 3, this environment 2"),
        ("vector", "vector", {"autoreset_mode": "SameStep"}, "'NextStep', this environment 'SameStep'"),
        ("on_tensors", "vector", {}, "kind = 'CollaPipeTorchVectorEnv', this environment 'Colla"),
        ("on_tensors", "on_tensors", {"dtype": "float32"}, "is float64 .*expected an array float32"),
    ],
)
def test_the_state_of_another_environment_is_refused(mine, its, given, message):
    env, other = KINDS[mine](), KINDS[its](**given)
    env.reset(seed=0)
    other.reset(seed=0)
    before = other.get_state()
    with pytest.raises(StateError, match=message):
        other.set_state(env.get_state())
    assert_same(other.get_state(), before)


class Refusing:
    """A player to which damaged states are given, and its twin that never was."""

    def __init__(self, kind, given):
        self.player, self.actions = out_of_step(kind, given)
        self.actions = self.actions[:2]
        self.env, self.good = self.player.env, self.player.env.get_state()
        self.twin = Player(KINDS[kind](**given))
        self.twin.env.set_state(self.good)

    def refuses(self, attempt, what):
        """Whether a damaged state was refused; one that was not is played."""
        try:
            attempt()
        except StateError as error:
            message = str(error)
        else:
            message = ""
        if message:
            assert len(message) < 1500, what
            assert_same(self.env.get_state(), self.good)
            return True
        # Wild numbers may overflow, and a row may be one before its first reset. Nothing else may stop.
        with np.errstate(all="ignore"), suppress(NotResetError):
            self.player.go_on(self.actions)
        self.env.set_state(self.good)
        return False

    def goes_on(self):
        assert_close(self.player.go_on(self.actions), self.twin.go_on(self.actions))


often = pytest.mark.parametrize("count", [30, pytest.param(800, marks=pytest.mark.slow)])


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("single", {}),
        ("single", {"scenario": "arq"}),
        ("vector", {"autoreset_mode": "SameStep"}),
        ("on_tensors", {"dtype": "float32"}),
    ],
)
@often
def test_random_damages_of_states_are_refused_or_harmless(kind, given, count):
    one, rng = Refusing(kind, given), np.random.default_rng(len(kind) + count)
    refused = 0
    for _ in range(count):
        tree, what = damaged(rng, one.good)
        refused += one.refuses(lambda tree=tree: one.env.set_state(tree), what)
    assert count / 2 < refused < count
    one.goes_on()


@often
def test_random_damages_of_files_are_refused_or_harmless(count, tmp_path):
    one, rng, path = Refusing("single", {}), np.random.default_rng(count), tmp_path / "state.safetensors"
    one.env.save_state(path)
    content = path.read_bytes()
    path.write_bytes(with_text(content, lambda text: text))  # the way of damaging alone does no harm
    one.env.load_state(path)
    refused = 0
    for _ in range(count):
        spoilt, what = damaged_bytes(rng, content)
        path.write_bytes(spoilt)
        refused += one.refuses(lambda: one.env.load_state(path), what)
    assert refused > count / 2
    one.goes_on()

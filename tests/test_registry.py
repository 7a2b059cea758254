"""Registry: names, lazy entries, and what it refuses."""

import importlib
import subprocess
import sys
from fractions import Fraction

import pytest

from collapipe_env.ground.errors import ScenarioError, SchedulerError
from collapipe_env.ground.registry import Registry, origin


def even(number):
    return number % 2 == 0


def odd(number):
    return not even(number)


class Bell:
    """Something to be imported by name."""


@pytest.fixture
def tests() -> Registry:
    return Registry("test", {"even": even, "half": "fractions:Fraction"})


def test_entries_are_found_and_listed_in_order(tests):
    tests.register("odd", odd)
    assert tests.get("odd") is odd
    assert tests.get("even") is even
    assert tests.names() == tuple(tests) == ("even", "half", "odd")
    assert (tests.shipped(), tests.added()) == (("even", "half"), ("odd",))
    assert "odd" in tests
    assert "other" not in tests
    assert 3 not in tests


def test_a_decorator_registers_and_hands_back(tests):
    @tests.decorator("third")
    def third(number):
        return number % 3 == 0

    assert tests.get("third") is third


def test_an_unknown_name_meets_the_nearest(tests):
    with pytest.raises(ScenarioError, match=r"^test 'evn' is not known: did you mean 'even'\?$"):
        tests.get("evn")
    with pytest.raises(ScenarioError, match=r"^test 'zzz' is not known: valid names: even, half$"):
        tests.require("zzz")
    with pytest.raises(ScenarioError, match="test 4 is not known"):
        tests.get(4)  # type: ignore[arg-type]


def test_error_class_hint_and_further_names():
    bells = Registry("bell", {"big": Bell}, error=SchedulerError, hint="one of your own: a:B")
    with pytest.raises(SchedulerError, match=r"did you mean 'big'\? \(one of your own: a:B\)$"):
        bells.get("bigg")
    assert "did you mean 'tiny'" in str(bells.unknown("tinny", more=("tiny",)))


def test_lazy_entries_are_imported_when_asked_for():
    code = (
        "import sys\n"
        "from collapipe_env.ground.registry import Registry\n"
        "lazy = Registry('thing', {'wave': 'wave:Wave_read'})\n"
        "lazy.register('colours', 'colorsys:rgb_to_hsv')\n"
        "assert lazy.names() == ('wave', 'colours')\n"
        "assert not {'wave', 'colorsys'} & set(sys.modules)\n"
        "assert lazy.get('wave').__module__ == 'wave'\n"
        "assert 'colorsys' not in sys.modules\n"
        "assert lazy.get('colours')(0.0, 0.0, 1.0) == (2 / 3, 1.0, 1.0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("collapipe_env.no_such_module:Thing", "No module named"),
        ("collapipe_env.ground.errors:NoSuchThing", "NoSuchThing"),
    ],
)
def test_a_lazy_entry_that_is_not_there(tests, entry, message):
    tests.register("missing", entry)
    with pytest.raises(ScenarioError, match=rf"^test 'missing' cannot be imported from {entry}: .*{message}"):
        tests.get("missing")


@pytest.mark.parametrize("entry", ["fractions.Fraction", "", "fractions:", ":Fraction", "a b:C", "a:b:c"])
def test_text_that_says_no_place_is_refused(tests, entry):
    with pytest.raises(ScenarioError, match=r"write 'package.module:Name'"):
        tests.register("new", entry)
    assert tests.added() == ()


@pytest.mark.parametrize("name", ["", "Upper", "7up", "a-b", "a:b", "a" * 41, "mine.py", None, 7])
def test_names_of_another_form_are_refused(tests, name):
    for register in (lambda: tests.register(name, odd), lambda: tests.decorator(name)):
        with pytest.raises(ScenarioError, match=r"test name .*: use lower-case letters"):
            register()
    assert tests.added() == ()


def test_a_registry_of_free_names():
    free = Registry("task", {"ner": Bell}, names=None)
    free.register("SST-2", Bell)
    assert free.get("SST-2") is Bell
    for name in ("", "  ", "a\nb", "a\x1b[31mb", "a\u202eb", "a" * 41, None):
        with pytest.raises(ScenarioError, match="use one line of 1 to 40 characters"):
            free.register(name, Bell)


def test_nothing_is_overwritten_unless_told(tests):
    tests.register("mine", even)
    with pytest.raises(
        ScenarioError, match=r"test name 'mine' is taken by .*test_registry:even: choose another, or give"
    ):
        tests.register("mine", odd)
    assert tests.get("mine") is even
    tests.register("mine", odd, replace=True)
    assert tests.get("mine") is odd


@pytest.mark.parametrize("replace", [False, True])
def test_the_packages_own_entries_and_reserved_names_stay(replace):
    own = Registry("test", {"even": even}, reserved=("agent",))
    for name in ("even", "agent"):
        with pytest.raises(ScenarioError, match=f"test name '{name}' is taken by the package"):
            own.register(name, odd, replace=replace)
    assert own.get("even") is even


def test_a_definition_may_be_run_again(tests):
    def cell():
        def thing() -> int:
            return 1

        return thing

    tests.register("thing", cell())
    again = tests.register("thing", cell())
    assert tests.get("thing") is again
    tests.register("lazy", "fractions:Fraction")
    tests.register("lazy", "fractions:Fraction")
    tests.register("data", {"a": 1})
    tests.register("data", {"a": 1})
    with pytest.raises(ScenarioError, match=r"taken by \{'a': 1\}"):
        tests.register("data", {"a": 2})
    tests.register("number", Fraction(1, 2))
    tests.register("number", Fraction(2, 4))
    with pytest.raises(ScenarioError, match="test name 'number' is taken by fractions:Fraction"):
        tests.register("number", Fraction(1, 3))


def local(factor=1, kept=None):
    class Thing:
        """Something of which there are several."""

    def scaled(number):
        return number * factor

    return {"class": Thing, "lambda": lambda number, by=kept: (number, by), "closure": scaled}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda number: number + 1, lambda number: number + 2),
        (local()["class"], local()["class"]),
        (local(2)["closure"], local(3)["closure"]),
        (local(kept=even)["lambda"], local(kept=odd)["lambda"]),
        (local()["lambda"], local()["class"]),
    ],
)
def test_namesakes_are_not_taken_for_one_another(tests, before, after):
    tests.register("mine", before)
    tests.register("mine", before)
    with pytest.raises(ScenarioError, match=r"test name 'mine' is taken by .*, or give replace=True"):
        tests.register("mine", after)
    assert tests.get("mine") is before
    tests.register("mine", after, replace=True)
    assert tests.get("mine") is after


def test_a_reloaded_module_may_register_again(tests, tmp_path, monkeypatch):
    """An edited class of the same qualified name takes the former place, a lambda if it is alike."""
    (tmp_path / "reloaded_things.py").write_text(
        "class Thing:\n    size = 1\n\ndouble = lambda number: 2 * number\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("reloaded_things")
    tests.register("thing", module.Thing)
    tests.register("double", module.double)
    (tmp_path / "reloaded_things.py").write_text(
        "class Thing:\n    size = 22\n\ndouble = lambda number: 2 * number\n"
    )
    importlib.reload(module)
    tests.register("thing", module.Thing)
    tests.register("double", module.double)
    assert tests.get("thing").size == 22
    assert tests.get("double") is module.double


def test_things_are_checked_when_added_and_when_imported():
    def check(name, thing):
        if not callable(thing):
            raise ScenarioError(f"{name} cannot be called")

    checked = Registry("test", check=check)
    with pytest.raises(ScenarioError, match="three cannot be called"):
        checked.register("three", 3)
    assert checked.names() == ()
    checked.register("later", "math:pi")
    with pytest.raises(ScenarioError, match="later cannot be called"):
        checked.get("later")


def test_entries_that_are_to_be_called():
    bells = Registry("bell", error=SchedulerError, use="is called at noon")
    bells.register("big", Bell)
    with pytest.raises(SchedulerError, match=r"bell 'three': 3 cannot be called: .* that is called at noon"):
        bells.register("three", 3)
    bells.register("later", "math:pi")
    with pytest.raises(SchedulerError, match=r"bell 'later': 3.14.* cannot be called"):
        bells.get("later")


def test_origins():
    assert origin(even) == f"{__name__}:even"
    assert origin(Bell) == origin(Bell()) == f"{__name__}:Bell"
    assert origin("a:B") == "a:B"
    assert origin({"a": 1}) != origin({"a": 2})
    bells = Registry("bell", {"big": Bell, "lazy": "a:B"})
    assert bells.where("big") == f"{__name__}:Bell"
    assert bells.where("lazy") == "a:B"

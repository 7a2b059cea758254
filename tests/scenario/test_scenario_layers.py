"""Layers of a scenario: preset, what a task needs, a named model, and fields of its own."""

import dataclasses

import numpy as np
import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario, load_scenario, scenario_names
from collapipe_env.scenario.inheritance import task_fields
from collapipe_env.scenario.names import LANGUAGE
from collapipe_env.simulator.build import system_parameters
from collapipe_env.tasks import task_names
from collapipe_env.tasks.base import trained_architecture


def paths(data: dict, before: str = "") -> set[str]:
    return {
        path
        for key, value in data.items()
        for path in (paths(value, f"{before}{key}.") if isinstance(value, dict) else {before + key})
    }


def test_a_task_brings_what_it_needs():
    ner = load_scenario({"base": "small", "workload": {"task": "ner"}})
    translation = load_scenario({"base": "small", "workload": {"task": "translation"}})
    assert ner.workload.outputs > 2
    assert translation.workload.decoder_blocks > 0
    assert ner.blocks == translation.blocks == load_scenario("small").blocks


def test_own_fields_win_over_those_of_the_task():
    own = load_scenario({"base": "small", "workload": {"task": "translation", "decoder_blocks": 5}})
    assert own.workload.decoder_blocks == 5
    changed = load_scenario("small").with_overrides(
        {"workload.decoder_blocks": 5, "workload.task": "translation"}
    )
    assert changed.workload == own.workload
    assert (
        load_scenario("small")
        .with_overrides({"workload": {"task": "translation", "decoder_blocks": 5}})
        .workload
        == own.workload
    )


def test_a_task_without_a_base_stands_on_the_defaults():
    assert load_scenario({"workload": {"task": "ner"}}).workload.outputs == (
        load_scenario("medium").with_task("ner").workload.outputs
    )


def test_all_tasks_set_the_same_fields_so_that_switching_leaves_nothing_behind():
    fields = task_fields()
    assert set(fields) == set(task_names())
    first, *others = (paths(data) for data in fields.values())
    assert all(other == first for other in others)
    small = load_scenario("small")
    back = small.with_task("translation").with_task("ner").with_task("classification")
    assert back.with_overrides({"name": "small"}) == small


def test_a_new_task_does_not_bring_a_proxy_back():
    priced = load_scenario("small").with_overrides({"learning.proxy": None})
    assert priced.with_task("ner").learning.proxy is None
    assert priced.with_task("ner").learning.learning_rate == 5e-3
    both = load_scenario({"base": "small", "workload": {"task": "ner"}, "learning": {"proxy": "off"}})
    assert both.learning.proxy is None


def test_every_scenario_takes_every_task():
    for name in scenario_names():
        own = load_scenario(name).workload.task
        for task in task_names():
            if task == "translation" and name in LANGUAGE:
                with pytest.raises(ScenarioError, match="is a decoder itself"):
                    load_scenario(name).with_task(task)
                continue
            scenario = load_scenario(name).with_task(task)
            assert scenario.workload.task == task
            assert scenario.name == (name if task == own else f"{name}-{task}")
            assert load_scenario(scenario.to_dict()) == scenario


def test_the_same_task_changes_nothing_but_takes_a_data_set():
    small = load_scenario("small")
    assert small.with_task("classification") == small
    other = small.with_task("classification", "reviews.tsv")
    assert other.learning.dataset == "reviews.tsv"
    assert other.with_task("ner").learning.dataset == "embedded"


def test_another_task_does_not_look_for_the_columns_of_the_old_data():
    columns = {"text_column": "review", "label_column": 3, "languages": ("en", "de")}
    own = load_scenario({"base": "small", "learning": {"dataset": "reviews.tsv", **columns}})
    again = own.with_task("classification", "more.tsv").learning
    assert {name: getattr(again, name) for name in columns} == columns
    for dataset in (None, "tags.conll"):
        other = own.with_task("ner", dataset).learning
        assert [getattr(other, name) for name in columns] == [None] * 3


def test_a_named_model_fills_its_sizes_and_is_spelt_out():
    bert = load_scenario({"base": "large", "workload": {"model": "bert-small"}})
    assert (bert.blocks, bert.workload.width, bert.workload.style) == (4, 512, "bert")
    assert "model" not in bert.to_dict()["workload"]
    assert load_scenario(bert.to_dict()) == bert
    shorter = load_scenario({"base": "large", "workload": {"model": "bert-small", "sequence_length": 32}})
    assert shorter.workload.sequence_length == 32
    assert shorter.workload.width == 512
    large = load_scenario("large")
    assert large.with_overrides({"workload.model": "bert-small"}).workload == bert.workload
    assert large.with_overrides({"workload": {"model": "bert-small"}}).workload == bert.workload


def test_a_model_made_for_a_task_brings_the_task():
    scenario = load_scenario({"base": "large", "workload": {"model": "transformer-base", "batch_size": 16}})
    assert (scenario.workload.task, scenario.workload.decoder_blocks) == ("translation", 6)
    assert scenario.learning == load_scenario("large").with_task("translation").learning


def test_an_unknown_model_or_task_is_refused_with_the_nearest_name():
    with pytest.raises(ScenarioError, match=r"workload\.model: .*'bert-smal'.*did you mean 'bert-small'"):
        load_scenario({"base": "large", "workload": {"model": "bert-smal"}})
    with pytest.raises(ScenarioError, match=r"workload\.task: .*'nerr'.*did you mean 'ner'"):
        load_scenario({"workload": {"task": "nerr"}})
    with pytest.raises(ScenarioError, match=r"workload\.model"):
        load_scenario("large").with_overrides({"workload.model": 3})


def test_the_proxy_of_classification_is_in_berts_style_and_the_priced_model_is_not():
    for name in ("small", "medium", "large", "xlarge"):
        scenario = load_scenario(name)
        assert (scenario.workload.style, trained_architecture(scenario).style) == ("pre-ln", "bert")
        priced = scenario.with_overrides({"learning.proxy.style": None})
        assert trained_architecture(priced).style == "pre-ln"
        np.testing.assert_equal(
            dataclasses.asdict(system_parameters(priced)), dataclasses.asdict(system_parameters(scenario))
        )
    wider = load_scenario({"base": "small", "learning": {"proxy": {"width": 64}}})
    assert wider.learning.proxy.style == "bert"


def test_embedding_parameters_count_every_table():
    workload = {"style": "bert", "learned_positions": 64, "token_types": 2, "vocabulary": 100, "width": 8}
    scenario: Scenario = load_scenario({"workload": workload})
    assert scenario.workload.embedding_parameters == (100 + 64 + 2 + 2) * 8

"""Layers of a scenario: base, what a task needs, a named model, fields of its own, and overrides."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.style_fields import LANGUAGE_FIELDS
from collapipe_env.scenario import RadioSpec, load_scenario
from collapipe_env.scenario.inheritance import task_fields
from collapipe_env.simulator.build import system_parameters, workload_costs
from collapipe_env.tasks import task_names
from collapipe_env.tasks.base import trained_architecture

HUGE = 16**5000


def paths(data: dict, before: str = "") -> set[str]:
    return {
        path
        for key, value in data.items()
        for path in (paths(value, f"{before}{key}.") if isinstance(value, dict) else {before + key})
    }


def on_small(**workload):
    return load_scenario({"base": "small", "workload": workload})


def test_a_task_brings_what_it_needs_and_own_fields_win():
    ner, translation = on_small(task="ner"), on_small(task="translation")
    assert ner.workload.outputs > 2
    assert translation.workload.decoder_blocks > 0
    assert ner.blocks == translation.blocks == load_scenario("small").blocks
    own = on_small(task="translation", decoder_blocks=5)
    assert own.workload.decoder_blocks == 5
    for overrides in (
        {"workload.decoder_blocks": 5, "workload.task": "translation"},
        {"workload": {"task": "translation", "decoder_blocks": 5}},
    ):
        assert load_scenario("small").with_overrides(overrides).workload == own.workload
    # Without a base it stands on the defaults.
    on_medium = load_scenario("medium").with_task("ner")
    assert load_scenario({"workload": {"task": "ner"}}).workload.outputs == on_medium.workload.outputs


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


def test_data_sets_and_their_columns_belong_to_a_task():
    small = load_scenario("small")
    assert small.with_task("classification") == small
    other = small.with_task("classification", "reviews.tsv")
    assert other.learning.dataset == "reviews.tsv"
    assert other.with_task("ner").learning.dataset == "embedded"
    columns = {"text_column": "review", "label_column": 3, "languages": ("en", "de")}
    own = load_scenario({"base": "small", "learning": {"dataset": "reviews.tsv", **columns}})
    again = own.with_task("classification", "more.tsv").learning
    assert {name: getattr(again, name) for name in columns} == columns
    for dataset in (None, "tags.conll"):
        found = own.with_task("ner", dataset).learning
        assert [getattr(found, name) for name in columns] == [None] * 3


def test_a_named_model_fills_its_sizes_is_spelt_out_and_brings_its_task():
    large = load_scenario("large")
    bert = load_scenario({"base": "large", "workload": {"model": "bert-small"}})
    assert (bert.blocks, bert.workload.width, bert.workload.style) == (4, 512, "bert")
    assert "model" not in bert.to_dict()["workload"]
    assert load_scenario(bert.to_dict()) == bert
    shorter = load_scenario({"base": "large", "workload": {"model": "bert-small", "sequence_length": 32}})
    assert (shorter.workload.sequence_length, shorter.workload.width) == (32, 512)
    for overrides in ({"workload.model": "bert-small"}, {"workload": {"model": "bert-small"}}):
        assert large.with_overrides(overrides).workload == bert.workload
    scenario = load_scenario({"base": "large", "workload": {"model": "transformer-base", "batch_size": 16}})
    assert (scenario.workload.task, scenario.workload.decoder_blocks) == ("translation", 6)
    assert scenario.learning == large.with_task("translation").learning


def test_published_models_replace_each_other():
    """Nothing of a former model is left."""
    qwen = load_scenario("bert-base").with_overrides(
        {"workload.model": "qwen2.5-0.5b", "workload.update_compression": "lora", "workload.batch_size": 1,
         "devices.profiles": [{"switched_capacitance": 1e-27, "memory_bytes": [8e9]}]}
    )  # fmt: skip
    assert (qwen.workload.kv_heads, qwen.workload.tied_head, qwen.workload.learned_positions) == (2, True, 0)
    back = qwen.with_overrides({"workload.model": "bert-base"})
    assert back.workload == dataclasses.replace(
        load_scenario("bert-base").workload,
        update_compression="lora", batch_size=1, outputs=qwen.workload.outputs,
        micro_batches=qwen.workload.micro_batches,
    )  # fmt: skip


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


LLAMA = {"style": "llama", "width": 64, "heads": 8, "kv_heads": 2, "qkv_bias": True, "rope_theta": 5e5}


def test_the_trained_architecture():
    def sizes_of(workload, proxy):
        return trained_architecture(load_scenario({"workload": workload, "learning": {"proxy": proxy}}))

    def language(sizes):
        return {name: getattr(sizes, name) for name in LANGUAGE_FIELDS}

    priced = load_scenario({"workload": {**LLAMA, "tied_head": True}, "learning": {"proxy": "off"}})
    sizes = trained_architecture(priced)
    assert language(sizes) == language(priced.workload)
    assert sizes.kv_width == priced.workload.kv_width == 16
    # A proxy shares heads in its own way, and takes everything else that its style reads.
    own = {"style": None, "heads": 4, "kv_heads": 1}
    sizes = sizes_of(LLAMA, own)
    assert (sizes.style, sizes.kv_heads, sizes.qkv_bias, sizes.rope_theta) == ("llama", 1, True, 5e5)
    proxy = load_scenario({"workload": LLAMA, "learning": {"proxy": own}})
    assert workload_costs(proxy) == workload_costs(load_scenario({"workload": LLAMA}))
    sizes = sizes_of(LLAMA, {})  # in BERT's style by default
    assert (sizes.style, sizes.learned_positions, sizes.token_types) == ("bert", 32, 2)
    neutral = {"kv_heads": 0, "qkv_bias": False, "tied_head": False, "norm_epsilon": 1e-5}
    neutral |= {"rope_theta": 10_000.0, "rope_factor": 1.0, "rope_original_length": 8192}
    assert language(sizes) == neutral
    gpt2 = sizes_of({}, {"style": "gpt2"})
    assert (gpt2.style, gpt2.learned_positions, gpt2.token_types) == ("gpt2", 32, 0)


def test_files_and_mappings_inherit_from_their_base(tmp_path: Path):
    path = tmp_path / "rayleigh.yml"
    path.write_text("base: small\nradio:\n  diversity: 1\n", encoding="utf-8")
    small, scenario = load_scenario("small"), load_scenario(path)
    assert scenario == small.with_overrides({"radio.diversity": 1, "name": "rayleigh"})
    assert scenario.radio.uplink_bandwidth_hz == small.radio.uplink_bandwidth_hz == 50e6
    data = {"base": "medium", "radio": RadioSpec(diversity=2), "cluster": {"clusters": 2}}
    scenario = load_scenario(data)
    assert (scenario.name, scenario.radio.diversity, scenario.clusters) == ("custom", 2, 2)
    assert data["cluster"] == {"clusters": 2}
    assert load_scenario("medium").clusters == 4


def test_overrides_change_only_what_they_name():
    medium = load_scenario("medium")
    changed = medium.with_overrides({"devices.profiles.0.weight": 2, "radio": {"diversity": np.int64(1)}})
    assert (changed.devices.profiles[0].weight, changed.radio.diversity) == (2.0, 1)
    assert changed.with_overrides({"devices.profiles.0.weight": 1.0, "radio.diversity": 4}) == medium
    assert medium.radio.diversity == 4
    without = load_scenario("small").with_overrides({"learning.proxy": None})
    assert without.with_overrides({"learning.proxy": {"width": 64}}).learning.proxy is not None


WRONG = [
    ({"radio.diversty": 1}, r"'radio\.diversty'.*did you mean 'diversity'"),
    ({"raido.diversity": 1}, r"'raido\.diversity'.*did you mean 'radio'"),
    ({"devices.profiles.1.weight": 1}, r"'1' is not an index into devices\.profiles, which has 1"),
    ({"radio.diversity.m": 1}, r"radio\.diversity is 4; override it as a whole"),
    ({"workload.model": 3}, r"workload\.model"),
    ({"radio.diversity": HUGE}, "diversity"),
    ({"dynamics.rounds": np.array(HUGE, dtype=object)}, "rounds"),
    ({f"devices.profiles.{'9' * 5000}.weight": 1.0}, "is not an index"),
    ({"devices.profiles.²": 1.0}, "is not an index"),
    ({"a." * 100_000: 1}, "100001 steps, but a scenario has at most"),
    ({"x" * 1_000_000: 1}, "x"),
    ({"radio": HUGE}, "radio"),
]


@pytest.mark.parametrize(("overrides", "words"), WRONG, ids=[str(place) for place in range(len(WRONG))])
def test_bad_overrides_name_the_place(overrides, words):
    with pytest.raises(ScenarioError, match=words) as caught:
        load_scenario("small").with_overrides(overrides)
    assert len(str(caught.value)) < 6_000


def test_nothing_overrides_a_field_of_an_absent_section():
    without = load_scenario("small").with_overrides({"learning.proxy": None})
    with pytest.raises(ScenarioError, match=r"learning\.proxy is None; override it as a whole"):
        without.with_overrides({"learning.proxy.width": 32})


def budgets_of(base: object, **own: object) -> tuple[object, ...]:
    """Budgets of a scenario, once from a mapping and once from overrides."""
    source = load_scenario(base)
    found = source.with_overrides({f"budgets.{name}": value for name, value in own.items()}).budgets
    assert source.with_overrides({"budgets": own}).budgets == found
    if isinstance(base, str):
        assert load_scenario({"base": base, "budgets": own}).budgets == found
    return found.device_energy_j, found.cu_energy_j, found.tightness


def test_joules_of_the_base_give_way_to_a_tightness_and_the_reverse():
    tight = {"base": "medium", "budgets": {"tightness": 0.5}}
    assert budgets_of("medium", tightness=0.5) == (None, None, 0.5)
    assert budgets_of("medium", tradeoff=2.0) == (9.7, 8.5, None)
    assert budgets_of(tight, tradeoff=2.0) == (None, None, 0.5)
    assert budgets_of(tight, tightness=0.25) == (None, None, 0.25)
    assert budgets_of(tight, device_energy_j=3.0, cu_energy_j=2.0) == (3.0, 2.0, None)
    scenario = load_scenario(tight)
    assert load_scenario(scenario.to_dict()) == scenario
    assert dataclasses.replace(scenario.budgets, tradeoff=2.0).tightness == 0.5


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        (
            {"tightness": 0.5, "cu_energy_j": 2.0},
            "cu_energy_j = 2.0 and tightness = 0.5 both set this",
        ),
        ({"device_energy_j": None}, "device_energy_j is null, and no tightness sets it"),
        ({"tightness": 1.5}, "budgets.tightness: got 1.5"),
    ],
    ids=["both", "neither", "range"],
)
def test_a_budget_is_set_in_one_way(budgets, message):
    with pytest.raises(ScenarioError, match=re.escape(message)):
        load_scenario({"base": "medium", "budgets": budgets})
    with pytest.raises(ScenarioError, match=re.escape(message)):
        load_scenario("medium").with_overrides({f"budgets.{name}": value for name, value in budgets.items()})

"""The learning section of a scenario."""

import pytest
from pydantic import TypeAdapter, ValidationError

from collapipe_env.scenario.learning import LearningSpec, ProxySpec

ADAPTER = TypeAdapter(LearningSpec)


@pytest.mark.parametrize("off", ["off", "OFF", False, None])
def test_proxy_off(off):
    assert ADAPTER.validate_python({"proxy": off}).proxy is None


def test_proxy_sizes_and_default():
    assert ADAPTER.validate_python({}).proxy == ProxySpec()
    assert ADAPTER.validate_python({"proxy": {"width": 64}}).proxy == ProxySpec(width=64)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"learning_rat": 1.0}, "learning_rat"),
        ({"proxy": {"width": 30, "heads": 4}}, "heads = 4 does not divide width = 30"),
        ({"learning_rate": 0.0}, "greater than 0"),
        ({"partition": "skewed"}, "dirichlet"),
        ({"evaluate_every": True}, "valid integer"),
        ({"evaluate_every": 0}, "greater than or equal to 1"),
        ({"learning_rate": float("nan")}, "finite|greater than 0"),
    ],
)
def test_bad_fields_are_refused(bad, message):
    with pytest.raises(ValidationError, match=message):
        ADAPTER.validate_python(bad)

"""No record holds a NaN or an infinity: JSON has neither."""

from __future__ import annotations

import json
import math

import pytest
from bench_command import bench
from pydantic import ValidationError

from bench.plain_json import plain_json
from bench.records import CellRecord, GateOutcome, Interval
from bench.records.quality import FloatRollout
from bench.records.quality_reading import read_quality
from cplab.finite_json import finite_json

NOT_FINITE = [math.nan, math.inf, -math.inf]


def strict(text):
    """JSON as its standard has it."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_figure_that_is_not_finite_is_refused_by_the_record_itself(value):
    with pytest.raises(ValidationError):
        Interval(p50=value, lo=1.0, hi=1.0, min=1.0)


@pytest.mark.parametrize("value", NOT_FINITE)
def test_what_has_no_type_of_its_own_is_written_as_null(value):
    data = {"figure": value, "list": [1.5, value], "text": "NaN"}
    wanted = {"figure": None, "list": [1.5, None], "text": "NaN"}
    assert strict(plain_json(data)) == wanted
    assert strict(finite_json(data, indent=1)) == wanted
    record = CellRecord(
        variant="kv_f32", threads=1, model="m", round=0, order=0, phase="timed",
        gate=GateOutcome(status="pass", detail=""), facts=data,
    )  # fmt: skip
    assert strict(record.model_dump_json())["facts"] == wanted
    assert strict(plain_json(record.model_dump(mode="json")))["facts"] == wanted


@pytest.mark.slow
def test_a_rollout_of_one_frame_is_written_and_read(tmp_path):
    result = bench(
        "quality", "--model", "synthetic:tiny", "--variants", "kv_q8_0", "--frames", "2", "--rollout", "1", "-t", "1",
        cwd=tmp_path, timeout=500,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "nan" not in result.stdout.lower()
    (file,) = tmp_path.glob("reports/quality/*/*/quality.json")
    assert strict(file.read_text(encoding="utf-8"))["float_rollout"]["unrelated"] is None
    rollout = read_quality(file).float_rollout
    assert isinstance(rollout, FloatRollout)
    assert rollout.own.frames == 1
    assert "nan" not in file.with_suffix(".md").read_text(encoding="utf-8").lower()

"""What a measurement is, as data: the types behind ``records.jsonl``, ``summary.json`` and ``machine.json``.

This package imports nothing else of the lab, so that reports (and anybody else's scripts) can read results without
being able to run anything. Times are integers in nanoseconds in raw records and floats in milliseconds in
summaries; the unit stands in every name.

The one rule that the types enforce: a record cannot hold a time unless its gate passed (the idea is
flashinfer-bench's; see `CellRecord` and `CellSummary`).
"""

from bench.records.files import UnreadableRecordError
from bench.records.measured import (
    RECORD_SCHEMA,
    CellRecord,
    CheckResult,
    GateOutcome,
    ProfileSamples,
    RoofSample,
    Status,
    Tier,
)
from bench.records.profiled import PART_LABELS, PROFILE_FILE, PROFILE_SCHEMA, PartTime, Profile, read_profile
from bench.records.reading import read_records, read_summary
from bench.records.roofline import (
    ROOFLINE_FILE,
    ROOFLINE_SCHEMA,
    BandwidthPoint,
    PeakPoint,
    Roofline,
    RooflinePoint,
    TeamRoof,
    point_of,
    read_roofline,
)
from bench.records.speculation import (
    SPECULATION_FILE,
    SPECULATION_SCHEMA,
    CurvePoint,
    DraftCounts,
    Speculation,
    SpeculationCurve,
    draft_counts,
    read_speculation,
)
from bench.records.streams import (
    STREAM_RECORDS_FILE,
    STREAMS_FILE,
    STREAMS_SCHEMA,
    Rate,
    StreamPoint,
    StreamRecord,
    Streams,
    read_stream_records,
    read_streams,
)
from bench.records.summarised import (
    PLAIN_VARIANTS,
    SWEEP_SCHEMA,
    CellSummary,
    Comparison,
    Fidelity,
    Interval,
    ModelFacts,
    Ratio,
    Reference,
    Repeatability,
    RunFacts,
    Soak,
    SoakPoint,
    Summary,
    Talker,
    Verdict,
    WithoutTalker,
)

MACHINE_SCHEMA = "cplab.machine/1"

__all__ = [
    "MACHINE_SCHEMA",
    "PART_LABELS",
    "PLAIN_VARIANTS",
    "PROFILE_FILE",
    "PROFILE_SCHEMA",
    "RECORD_SCHEMA",
    "ROOFLINE_FILE",
    "ROOFLINE_SCHEMA",
    "SPECULATION_FILE",
    "SPECULATION_SCHEMA",
    "STREAMS_FILE",
    "STREAMS_SCHEMA",
    "STREAM_RECORDS_FILE",
    "SWEEP_SCHEMA",
    "BandwidthPoint",
    "CellRecord",
    "CellSummary",
    "CheckResult",
    "Comparison",
    "CurvePoint",
    "DraftCounts",
    "Fidelity",
    "GateOutcome",
    "Interval",
    "ModelFacts",
    "PartTime",
    "PeakPoint",
    "Profile",
    "ProfileSamples",
    "Rate",
    "Ratio",
    "Reference",
    "Repeatability",
    "RoofSample",
    "Roofline",
    "RooflinePoint",
    "RunFacts",
    "Soak",
    "SoakPoint",
    "Speculation",
    "SpeculationCurve",
    "Status",
    "StreamPoint",
    "StreamRecord",
    "Streams",
    "Summary",
    "Talker",
    "TeamRoof",
    "Tier",
    "UnreadableRecordError",
    "Verdict",
    "WithoutTalker",
    "draft_counts",
    "point_of",
    "read_profile",
    "read_records",
    "read_roofline",
    "read_speculation",
    "read_stream_records",
    "read_streams",
    "read_summary",
]

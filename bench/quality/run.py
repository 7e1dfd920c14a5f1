"""``bench quality``: the float32 law once, then every variant beside it, in a worker each."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench import machine
from bench.quality.job import LawFound, QualityJob
from bench.quality.launching import TIMEOUT_S, result_of
from bench.quality.rollout import FRAMES
from bench.records.quality import Quality, QualityCell, QualityFacts
from cplab import __version__
from cplab.errors import CplabError
from cplab.formats import FORMATS
from cplab.variant import Variant, variants


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured; paths as the user gave them, None and "" for the usual.

    Attributes:
        model: a path or a name.
        variants: which implementations.
        threads: team size.
        golden: a golden file.
        frames: of the golden and of recorded codes, at most.
        rollout: frames of the rollout; 0 for none.
        talker: in the rollout; "" for the stand-in.
        recorded: a .npy of codes that are pinned besides.
        hidden: a .npy of the hidden states that go with them.
        decoder: folder of a speech tokenizer that makes those codes heard.
        files: of variants that are not installed.
        timeout_s: of one worker.
        least_percent: of the codes that a recommendation must keep; None for what the naive Q8_0 keeps.
    """

    model: str
    variants: Sequence[Variant]
    threads: int
    golden: Path | None = None
    frames: int | None = None
    rollout: int = FRAMES
    talker: str = ""
    recorded: Path | None = None
    hidden: Path | None = None
    decoder: Path | None = None
    files: Sequence[Path] = field(default=())
    timeout_s: float = TIMEOUT_S
    least_percent: float | None = None

    def check(self) -> None:
        """Refuse options that do not go together.

        Raises:
            CplabError: naming them, what a decoder needs and is not installed, or a folder that holds no decoder.
        """
        if self.hidden is not None and self.recorded is None:
            raise CplabError("--hidden goes with --codes")
        if self.decoder is not None and self.recorded is None:
            raise CplabError("--decoder goes with --codes: a loop's frames soon say different things")
        if self.decoder is not None:
            from cplab.official_import import versions
            from cplab.speech import tokenizer_config

            tokenizer_config(self.decoder)
            versions()
        if self.talker and not self.rollout:
            raise CplabError("--talker and --rollout 0: one of them")

    def job(self, shared: Path) -> QualityJob:
        """The task of the worker that asks the float32 law."""
        return QualityJob(
            phase="law",
            shared=str(shared),
            model=self.model,
            golden=str(self.golden or ""),
            threads=self.threads,
            frames=self.frames,
            rollout=self.rollout,
            talker=self.talker,
            recorded=str(self.recorded or ""),
            hidden=str(self.hidden or ""),
            decoder=str(self.decoder or ""),
            variant_files=[str(path) for path in self.files],
            least_percent=self.least_percent,
        )


def measure_quality(
    asked: Asked,
    say: Callable[[str], None] = lambda what: None,
    done: Callable[[QualityCell], None] = lambda cell: None,
) -> Quality:
    """Measure every variant; an interrupt ends it and keeps what there is.

    Args:
        asked: checked already.
        say: told what is being done.
        done: told each variant's figures.

    Raises:
        CplabError: the model, its golden, recorded codes or the talker cannot be had.
        KeyboardInterrupt: before the first variant was measured.
    """
    began, started = time.perf_counter(), datetime.now(UTC)
    commit, dirty = machine.git_state(Path.cwd())
    cells: list[QualityCell] = []
    with tempfile.TemporaryDirectory(prefix="cplab-") as folder:
        job = asked.job(Path(folder) / "law.npz")
        say("float32, as the model has it")
        found = result_of(job, asked.timeout_s)
        if found.law is None:
            raise CplabError(found.error)
        try:
            for variant in asked.variants:
                say(f"{variant.name} x {asked.threads}")
                cell = _cell(job, variant, asked.timeout_s)
                cells.append(cell)
                done(cell)
        except KeyboardInterrupt:
            if not cells:
                raise
    return Quality(
        warning=found.law.warning,
        model=found.law.model,
        facts=_facts(found.law, asked, f"{started:%Y-%m-%dT%H:%M:%SZ}", time.perf_counter() - began, commit, dirty),
        float_rollout=found.law.float_rollout,
        floor=found.law.floor,
        cells=cells,
    )


def _cell(job: QualityJob, variant: Variant, timeout_s: float) -> QualityCell:
    result = result_of(job.model_copy(update={"phase": "cell", "variant": variant.name}), timeout_s)
    if result.cell is not None:
        return result.cell
    return QualityCell(
        variant=variant.name,
        format=variant.format,
        arithmetic=variant.arithmetic,
        tier=variant.tier,
        threads=job.threads,
        status="crash",
        reason=result.error,
    )


def _facts(law: LawFound, asked: Asked, started_utc: str, elapsed_s: float, commit: str, dirty: bool) -> QualityFacts:
    return QualityFacts(
        command=" ".join(["python -m bench", *sys.argv[1:]]),
        started_utc=started_utc,
        elapsed_s=round(elapsed_s, 1),
        commit=commit,
        dirty=dirty,
        tool_version=__version__,
        threads=asked.threads,
        golden=Path(law.golden).name,
        golden_reference=law.golden_reference,
        golden_frames=law.golden_frames,
        golden_distinct=law.golden_distinct,
        recorded=asked.recorded.name if asked.recorded else "",
        recorded_frames=law.recorded_frames,
        law_by=law.law_by,
    )


def usual_variants() -> list[Variant]:
    """One variant of each quantised law, with a KV cache where there is one: the others of a law have the same bits."""
    by_law: dict[str, Variant] = {}
    for one in sorted(variants().values(), key=lambda v: not v.name.startswith("kv_")):
        if one.tier == "exact" and one.arithmetic in FORMATS and FORMATS[one.arithmetic].blocks is not None:
            by_law.setdefault(one.arithmetic, one)
    return list(by_law.values())

"""Phase ``law`` of a worker: what the model says in float32, on the golden's frames, on recorded codes, in a loop."""

from __future__ import annotations

from pathlib import Path

from bench.quality.float_law import FloatLaw
from bench.quality.floor import floor_of
from bench.quality.job import LawFound, QualityJob
from bench.quality.recorded_codes import recorded_frames
from bench.quality.rollout import Said, collapse, rollout, unrelated
from bench.quality.shared_file import Shared
from bench.quality.talkers import rollout_talker
from bench.quality.warning import warning_of
from bench.records.quality import FloatRollout
from bench.records.summarised import ModelFacts
from cplab.errors import BadInputError
from cplab.golden import find_golden_path, load_golden
from cplab.golden_making import golden_for
from cplab.sources import load_model


def run_law(job: QualityJob) -> LawFound:
    """Do it, and write what the variants need to ``job.shared``.

    Raises:
        CplabError: the model, its golden, recorded codes or the talker cannot be had.
    """
    model = load_model(job.model)
    model.check_finite()
    golden = load_golden(Path(job.golden)) if job.golden else golden_for(model)
    law = FloatLaw(model, golden, job.threads)
    own = law.of_golden(job.frames)
    recorded = None
    if job.recorded:
        hidden = Path(job.hidden) if job.hidden else None
        recorded = law.of(*recorded_frames(model, job.model, Path(job.recorded), hidden, job.frames))
    loop, float_rollout = _loop(job, law) if job.rollout else (None, None)
    Shared(own, recorded, loop).save(Path(job.shared))
    return LawFound(
        warning=warning_of(model),
        model=ModelFacts(name=model.name, spec=model.spec.as_dict(), digest=model.digest(), synthetic=model.synthetic),
        golden=job.golden or str(find_golden_path(model) or ""),
        golden_reference=str(golden.provenance.get("reference", "")),
        golden_frames=len(own),
        golden_distinct=golden.distinct_frames,
        recorded_frames=len(recorded) if recorded is not None else 0,
        law_by="the lab's kernels, which give the golden's digests" if law.decoder is not None else "the oracle",
        float_rollout=float_rollout,
        floor=floor_of(job.least_percent, model, own),
    )


def _loop(job: QualityJob, law: FloatLaw) -> tuple[Said, FloatRollout]:
    if law.decoder is None:
        raise BadInputError("a rollout by the oracle would take hours, and the kernels are wrong here; --rollout 0")
    spec = law.model.spec
    with rollout_talker(job.talker, spec, job.threads, job.rollout) as (talker, rules, name):
        said = rollout(law.decoder, law.model, talker, rules, job.rollout)
    if not len(said.codes):
        raise BadInputError(f"the model's own rollout has no frame ({said.stopped}); --rollout 0 leaves it out")
    return said, FloatRollout(talker=name, own=collapse(said), unrelated=unrelated(said))

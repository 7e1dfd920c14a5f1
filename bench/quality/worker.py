"""The worker process: ``python -m bench.quality.worker RESULT_FILE`` with a `QualityJob` on standard input.

A process of its own for each variant, for the reasons that a measured cell has one: an engine that crashes costs its
own figures and nobody else's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.quality.job import QualityJob, QualityResult
from cplab.orphans import die_with_parent


def main() -> int:
    """Read the job, do it, write the result; errors that the lab knows become a result too."""
    die_with_parent()
    job = QualityJob.model_validate_json(sys.stdin.read())
    result = Path(sys.argv[1])
    temporary = result.with_suffix(".tmp")
    temporary.write_text(done(job).model_dump_json(), encoding="utf-8")
    temporary.replace(result)
    return 0


def done(job: QualityJob) -> QualityResult:
    """Do a job in this process."""
    from bench.records.quality import QualityCell
    from cplab.errors import CplabError, RowsNotInBlocksError, VariantUnavailableError
    from cplab.variant import get_variant

    try:
        if job.phase == "law":
            from bench.quality.law_worker import run_law

            return QualityResult(law=run_law(job))
        from bench.quality.cell_worker import run_cell

        return QualityResult(cell=run_cell(job))
    except (CplabError, OSError) as error:
        told = " ".join(str(error).split())
        if job.phase == "law":
            return QualityResult(error=told)
        own = get_variant(job.variant)
        return QualityResult(
            cell=QualityCell(
                variant=own.name,
                format=own.format,
                arithmetic=own.arithmetic,
                tier=own.tier,
                threads=job.threads,
                status="skip" if isinstance(error, (VariantUnavailableError, RowsNotInBlocksError)) else "fail",
                reason=told,
            )
        )


if __name__ == "__main__":
    sys.exit(main())

"""The trials that a command line asks for: a model, and frames with what the float32 law says of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.quality.float_law import FloatLaw
from bench.quality.recorded_codes import recorded_frames
from bench.quality.trials import Trials
from bench.quality.warning import warning_of
from bench.records.summarised import ModelFacts
from cplab.errors import BadInputError
from cplab.formats import format_named
from cplab.golden import load_golden
from cplab.golden_making import golden_for
from cplab.input_energy import input_energies
from cplab.sources import load_model


@dataclass(frozen=True, slots=True)
class Subject:
    """What recipes are tried on.

    Attributes:
        trials: of the model on the frames.
        about: the model.
        warning: what the figures are not about, or "".
    """

    trials: Trials
    about: ModelFacts
    warning: str


def subject(
    model: str,
    golden: Path | None,
    frames: int | None,
    codes: Path | None,
    hidden: Path | None,
    fit: str | None,
    threads: int,
) -> Subject:
    """Load a model and ask the float32 law.

    Args:
        model: a path or a name.
        golden: a golden file; None for the model's own.
        frames: at most; None for all.
        codes: a .npy of recorded codes that are pinned instead of the golden's.
        hidden: a .npy of the hidden states that go with them.
        fit: frames by whose inputs Q4_0 blocks are fitted (`cplab.input_energy`); None for the gguf package's blocks.
        threads: of the kernels.

    Raises:
        CplabError: the model, its golden or the recorded codes cannot be had.
    """
    if hidden is not None and codes is None:
        raise BadInputError("--hidden goes with --codes")
    loaded = load_model(model)
    loaded.check_finite()
    law = FloatLaw(loaded, load_golden(golden) if golden is not None else golden_for(loaded), threads)
    truth = law.of_golden(frames)
    if codes is not None:
        truth = law.of(*recorded_frames(loaded, model, codes, hidden, frames))
    about = ModelFacts(name=loaded.name, spec=loaded.spec.as_dict(), digest=loaded.digest(), synthetic=loaded.synthetic)
    energies = None if fit is None else input_energies(loaded, fit)
    return Subject(Trials(loaded, truth, threads, energies), about, warning_of(loaded))


def formats_of(text: str) -> list[str]:
    """Names of formats out of a comma-separated list.

    Raises:
        BadInputError: none, or one that there is not, or that no file holds.
    """
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise BadInputError(f"--formats {text!r}: names of formats are wanted, such as q8_0,q4_0")
    for name in found:
        if not format_named(name).in_files:
            raise BadInputError(f"--formats {name}: a form of memory that no file holds, so no recipe can ask for it")
    return list(dict.fromkeys(found))

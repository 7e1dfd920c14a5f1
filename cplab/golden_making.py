"""Making goldens: by the oracle alone, or with the official PyTorch class as a second opinion on every code."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from cplab import __version__
from cplab.cachedir import writing_to_cache
from cplab.errors import GoldenError
from cplab.golden import SUBNORMAL_SCALE, Golden, cached_path, find_golden, row_digests
from cplab.golden_choosing import MARGIN_FACTOR, Arrays, Progress, Witness, choose, given_frames, inputs_told
from cplab.model import Model
from cplab.oracle_quantised import oracle_for
from cplab.sources import synthetic

#: Frames of a golden that is made on the spot for somebody's model.
ON_THE_SPOT = 10


def golden_for(model: Model, frames: int = ON_THE_SPOT, arithmetic: str = "f32") -> Golden:
    """The committed or cached golden of a model in an arithmetic, or one made by the oracle now, and cached.

    A golden of the 0.6B shape takes the oracle about ten seconds a frame.
    """
    synthetic.verify(model)
    found = find_golden(model, arithmetic)
    if found is not None:
        return found
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"making an oracle golden of {model.name}, {frames} frames (once) ...", highlight=False)
    ticks = iter(
        track(range(frames), f"oracle golden of {model.name} (once)", console=console, disable=not console.is_terminal)
    )

    def tick() -> None:
        next(ticks, None)

    golden = make_golden(model, frames, arithmetic=arithmetic, progress=tick)
    tick()
    with writing_to_cache(cached_path(model, arithmetic)):
        golden.save(cached_path(model, arithmetic))
    return golden


def make_golden(
    model: Model,
    frames: int,
    *,
    reference: str = "oracle",
    arithmetic: str = "f32",
    hidden: Arrays | None = None,
    cb0_embed: Arrays | None = None,
    about: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Golden:
    """A golden of ``frames`` frames.

    Frames with the codes of another, or with a margin too small to judge the reference by, are passed over. Where
    ``hidden`` is given and does not make up for them, the golden has fewer frames.

    Args:
        model: the weights.
        frames: how many, at least 2.
        reference: ``oracle``, or ``torch`` to have the official class agree on every code.
        arithmetic: the rounding law; other than ``f32`` it wants the model in its format (`in_arithmetic`).
        hidden: ``[>= frames, talker_hidden]`` f32 recorded hidden states; made at the real scale where None.
        cb0_embed: as many recorded embeddings of CB0; made where None.
        about: more for the provenance, such as where ``hidden`` comes from.
        progress: called after each oracle frame.

    Raises:
        BadInputError: no such arithmetic, or a matrix in another format.
        GoldenError: PyTorch and the oracle disagree where the margin says they must not; ``torch`` with another
            arithmetic than ``f32``, of which it knows nothing.
        VariantUnavailableError: ``torch`` is asked for and not installed.
    """
    if frames < 2:
        raise GoldenError(f"{frames} frames asked for; at least 2 are wanted, or stale state cannot be told")
    if reference == "torch" and arithmetic != "f32":
        raise GoldenError(f"PyTorch computes in float32 and cannot agree on arithmetic {arithmetic}; take the oracle")
    synthetic.verify(model)
    given = given_frames(model, frames, hidden, cb0_embed)
    oracle = oracle_for(model, arithmetic)
    provenance: dict[str, object] = {
        "made_by": f"cplab {__version__}",
        "reference": reference,
        "inputs": inputs_told(hidden, cb0_embed),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__},
        "machine": f"{platform.system()} {platform.machine()}",
        "command": " ".join(["python -m cplab", *sys.argv[1:]]),
        **(about or {}),
    }
    witness = None
    if reference == "torch":
        from cplab.official import versions

        witness = _official(model)
        provenance["official"] = versions()
    chosen, kept, largest, passed_over = choose(model, oracle, frames, given, witness, progress)
    provenance |= {"frames_passed_over": passed_over, "margin_factor": MARGIN_FACTOR}
    if given is not None:
        provenance["inputs_kept"] = kept
    if witness is not None:
        provenance["largest_difference_to_reference"] = largest
    codes = np.stack([r.codes for r in chosen.results])
    forced = np.roll(codes, -1, axis=0)
    with ThreadPoolExecutor(2) as pool:
        scored = list(pool.map(oracle.scored, chosen.hidden, chosen.cb0_embed, forced))
    subnormal = oracle.frame(chosen.hidden[0] * SUBNORMAL_SCALE, chosen.cb0_embed[0] * SUBNORMAL_SCALE)
    return Golden(
        chosen.hidden,
        chosen.cb0_embed,
        codes,
        np.stack([row_digests(r.logits) for r in chosen.results]),
        chosen.margins,
        forced,
        np.stack([row_digests(r.logits) for r in scored]),
        row_digests(subnormal.logits),
        model.name,
        model.digest(),
        provenance | {"smallest_margin": float(chosen.margins.min())},
        arithmetic,
    )


def _official(model: Model) -> Witness:
    from cplab import official

    module = official.build(model.spec, {name: t.f32() for name, t in model.tensors.items()})
    return lambda hidden, cb0_embed: official.greedy_codes(module, hidden, cb0_embed)

"""What a variant is, and the registry.

A variant is a named implementation of the code predictor: a module that decorates one factory ::

    @variant("kv_bf16", format="bf16", arithmetic="f32", tier="exact")
    def build(model: Model, threads: int) -> CodePredictor: ...

Variants are found through the entry-point group ``cplab.variants``, the lab's own included, so that an installed
package of anybody's brings its own in the same way. A module that stands on disk only is found with ``--variant-file``
on the command lines, or by importing it before asking.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cplab.errors import UnknownVariantError
from cplab.model import Model
from cplab.sampling import Noise

Tier = Literal["exact", "codes", "quality"]
#: ``drafter`` of variants that guess codes with the model's own later heads (`cplab.speculation.decoder`).
HEADS = "heads"


@dataclass(slots=True)
class Trace:
    """What a call to ``predict`` leaves behind when it is asked to.

    Attributes:
        logits: ``[B, groups-1, vocab]`` f32 of every pass.
        pass_ns: nanoseconds of each pass, ``[groups-1]``; empty where a variant cannot tell.
    """

    logits: NDArray[np.float32] | None = None
    pass_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class WeightStream:
    """One matrix as a kernel streams it: ``rows`` rows of ``row_bytes`` bytes from ``address``."""

    address: int
    rows: int
    row_bytes: int


@runtime_checkable
class CodePredictor(Protocol):
    """What a factory returns.

    ``passes_per_frame`` and ``bytes_per_frame`` say what a frame costs; ``streams()`` lists the packed matrices in
    the order in which one frame reads them (for the roof), and may be empty. A predictor is used by one thread at a
    time and may reuse its buffers; arrays that it returns are the caller's own. ``bytes_per_frame`` is 0 where nobody
    knows. One over an engine that cannot be told which codes to feed back has ``takes_forced = False`` and refuses
    ``forced``; what the gate then leaves out, its report says.
    """

    passes_per_frame: int
    bytes_per_frame: int

    def predict(
        self,
        hidden: NDArray[np.float32],
        cb0_embed: NDArray[np.float32],
        *,
        forced: NDArray[np.int32] | None = None,
        trace: Trace | None = None,
        noise: Noise | None = None,
    ) -> NDArray[np.int32]:
        """``hidden [B, talker_hidden]``, ``cb0_embed [B, talker_hidden]`` f32 -> codes ``[B, groups-1]`` int32.

        Args:
            hidden: the talker's hidden state after its final norm.
            cb0_embed: the talker's embedding of code CB0.
            forced: ``[B, groups-1]`` codes that are fed back instead of the predicted ones (teacher forcing).
            trace: filled with logits and pass times where given.
            noise: greedy where None; else how codes are drawn (`cplab.sampling`): a `Sampling`, or Gumbel samples
                ``[B, groups-1, vocab]`` f32 that are added to the logits. What is drawn is fed back, unless ``forced``
                says otherwise; the trace has the logits as they are before anything is done to them. A variant of tier
                ``exact`` draws by the law (`cplab.arithmetic_sampling`); others may refuse.

        Raises:
            BadInputError: a wrong shape, dtype or value.
            NonFiniteLogitsError: a logit is NaN or infinite.
        """
        ...

    def streams(self) -> list[WeightStream]:
        """The matrices of one frame in reading order."""
        ...


Factory = Callable[[Model, int], CodePredictor]


def takes_forced(predictor: CodePredictor) -> bool:
    """Whether codes can be fed back to a predictor that it did not choose; all can that do not say otherwise."""
    return bool(getattr(predictor, "takes_forced", True))


@dataclass(frozen=True, slots=True)
class Variant:
    """A registered implementation.

    Attributes:
        name: e.g. ``kv_bf16``.
        format: how it holds the matrices (`cplab.formats`).
        arithmetic: id of the rounding law; variants that share it give the same bits.
        tier: what the gate asks: ``exact``, ``codes`` or ``quality``.
        build: the factory.
        summary: first line of the module's docstring.
        extra: name of the optional extra it needs, or "".
        source: the file it stands in.
        drafter: what guesses codes ahead, `HEADS` or another name; "" where nothing does.
    """

    name: str
    format: str
    arithmetic: str
    tier: Tier
    build: Factory
    summary: str
    extra: str
    source: str
    drafter: str = ""


_registry: dict[str, Variant] = {}


def variant(
    name: str, *, format: str, arithmetic: str = "f32", tier: Tier = "exact", extra: str = "", drafter: str = ""
) -> Callable[[Factory], Factory]:
    """Register the decorated factory ``(model, threads) -> CodePredictor`` under a name."""

    def register(build: Factory) -> Factory:
        module = sys.modules[build.__module__]
        summary = (module.__doc__ or build.__doc__ or "").strip().partition("\n")[0]
        source = getattr(module, "__file__", None) or ""
        known = _registry.get(name)
        if known is not None and known.source != source:
            raise ValueError(f"variant {name!r} is registered by {known.source} already; {source} needs another name")
        _registry[name] = Variant(name, format, arithmetic, tier, build, summary, extra, source, drafter)
        return build

    return register


def variants() -> dict[str, Variant]:
    """Every variant that is installed or was registered in this process, by name."""
    for point in entry_points(group="cplab.variants"):
        if point.name not in _registry:
            try:
                point.load()
            except Exception as error:  # noqa: BLE001 -- whatever one package does wrong must not hide the others
                warnings.warn(f"variant {point.name} ({point.value}) cannot be imported: {error}", stacklevel=2)
    return dict(_registry)


def get_variant(name: str) -> Variant:
    """One variant: one that was registered, or somebody's engine as ``external:LIB.so`` or ``external:COMMAND``.

    Raises:
        UnknownVariantError: suggesting the nearest name; an engine that is not there.
    """
    if name.startswith("external:"):
        # By name: engines over this registry are no part of what every variant is made of (`bench.sources`).
        engines = importlib.import_module("cplab.external.naming")
        named: Variant = engines.external_variant(name)
        return named
    found = variants()
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(found)}"
        raise UnknownVariantError(f"no variant {name!r}; {hint}")
    return found[name]


def load_variant_file(path: Path) -> None:
    """Import a module by its path, so that the variants in it are registered.

    Raises:
        UnknownVariantError: the file cannot be imported, or registers nothing.
    """
    path = path.resolve()
    spec = importlib.util.spec_from_file_location(f"cplab_variant_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UnknownVariantError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(spec.name, None)
        raise UnknownVariantError(f"{path}: cannot be imported: {type(error).__name__}: {error}") from error
    if not any(Path(known.source).resolve() == path for known in _registry.values() if known.source):
        raise UnknownVariantError(f"{path}: registers no variant; decorate a factory with cplab.variant.variant(...)")


def checked_inputs(
    model: Model,
    hidden: Any,
    cb0_embed: Any,
    forced: Any,
    noise: Any = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32] | None]:
    """The arguments of ``predict``, contiguous, or BadInputError saying which one is wrong and how.

    A variant that draws codes takes ``noise`` to `cplab.sampling.checked_draws`; one that cannot leaves it here, where
    it is refused.
    """
    from cplab.errors import BadInputError

    width = model.spec.talker_hidden
    arrays = []
    for name, value in (("hidden", hidden), ("cb0_embed", cb0_embed)):
        if not isinstance(value, np.ndarray) or value.dtype != np.float32:
            raise BadInputError(f"{name} is {getattr(value, 'dtype', type(value).__name__)}; float32 is wanted")
        if value.ndim != 2 or value.shape[1] != width or not len(value):
            raise BadInputError(f"{name} has shape {list(value.shape)}; [B, {width}] is wanted")
        if not np.isfinite(value).all():
            raise BadInputError(f"{name} holds NaN or infinite values")
        arrays.append(np.ascontiguousarray(value))
    if len(hidden) != len(cb0_embed):
        raise BadInputError(f"hidden has {len(hidden)} frames and cb0_embed {len(cb0_embed)}")
    if noise is not None:
        raise BadInputError("this variant predicts greedily; noise must be None")
    if forced is not None:
        wanted = (len(hidden), model.spec.passes)
        if not isinstance(forced, np.ndarray) or forced.dtype.kind != "i" or forced.shape != wanted:
            raise BadInputError(f"forced must be an integer array of shape {list(wanted)}")
        if forced.min() < 0 or forced.max() >= model.spec.vocab:
            raise BadInputError(f"forced holds codes outside 0..{model.spec.vocab - 1}")
        forced = np.ascontiguousarray(forced, np.int32)
    return arrays[0], arrays[1], forced

"""A recipe: which format each class of matrices is to have, as a small text.

For example ::

    # what      format
    all         q8_0
    gate_up     q4_0
    gate_up.4   q8_0      # of layer 4
    heads.0     bf16      # of CB1

A class is what a pass streams as one matrix: ``qkv``, ``o``, ``gate_up`` and ``down`` of a layer, ``heads``, and, where
a model has it, ``projection``. ``CLASS.N`` is one of them (layers and heads count from 0), ``all`` is everything. The
narrower line wins, wherever it stands. What no line names stays as it is, and so do norms, biases and embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from cplab.errors import BadInputError
from cplab.formats import STORED, Format, format_named
from cplab.formats.format import differing
from cplab.model import Model, Tensor, is_streamed
from cplab.spec import Spec

ALL = "all"
LAYER_CLASSES = ("qkv", "o", "gate_up", "down")
CLASSES = (*LAYER_CLASSES, "heads", "projection")
_CLASS_OF = {
    "self_attn.q_proj": "qkv",
    "self_attn.k_proj": "qkv",
    "self_attn.v_proj": "qkv",
    "self_attn.o_proj": "o",
    "mlp.gate_proj": "gate_up",
    "mlp.up_proj": "gate_up",
    "mlp.down_proj": "down",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Formats by class or matrix.

    Attributes:
        formats: ``all``, a class or ``CLASS.N`` -> name of a format.

    Raises:
        BadInputError: no such class or format.
    """

    formats: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, name in self.formats.items():
            group, dot, number = key.partition(".")
            one_of_many = group in CLASSES and group != "projection" and number.isdecimal()
            if not (one_of_many if dot else group in (ALL, *CLASSES)):
                raise BadInputError(f"{key}: no class of matrices; there are {ALL}, {', '.join(CLASSES)}, and CLASS.N")
            format_named(name)

    def of(self, tensor: str) -> Format | None:
        """The format for a tensor by its checkpoint name; None where it stays as it is."""
        if not is_streamed(tensor):
            return None
        unit = unit_of(tensor)
        for key in (unit, unit.partition(".")[0], ALL):
            if key in self.formats:
                return format_named(self.formats[key])
        return None

    def by_matrix(self, model: Model) -> dict[str, str]:
        """The format of each matrix by its tensor's name, `cplab.formats.STORED` where it stays as it is."""
        kinds = {name: self.of(name) for name in model.tensors if is_streamed(name)}
        return {name: STORED if kind is None else kind.name for name, kind in kinds.items()}

    def require(self, spec: Spec) -> None:
        """Raise BadInputError where a line names what a model of that shape does not have."""
        known = {ALL, *units_of(spec), *(unit.partition(".")[0] for unit in units_of(spec))}
        for key in self.formats:
            if key not in known:
                raise BadInputError(
                    f"the recipe names {key}; the model has {spec.layers} layers, {spec.passes} heads and "
                    f"{'a' if spec.projected else 'no'} projection"
                )

    def text(self) -> str:
        """The recipe as `parse` reads it."""
        width = max((len(key) for key in self.formats), default=0)
        return "".join(f"{key:<{width}}  {name}\n" for key, name in self.formats.items())


def parse(text: str, where: str = "recipe") -> Recipe:
    """Read a recipe.

    Args:
        text: lines of a class and a format; ``#`` starts a comment.
        where: what to call it in errors.

    Raises:
        BadInputError: naming the line.
    """
    formats: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if len(words) != 2:
                raise BadInputError(f"{line.strip()!r}: a class and a format are wanted")
            if words[0] in formats:
                raise BadInputError(f"{words[0]} has a line already")
            formats.update(Recipe({words[0]: words[1]}).formats)
        except BadInputError as error:
            raise BadInputError(f"{where}, line {number}: {error}") from error
    if not formats:
        raise BadInputError(f"{where}: no line with a class and a format")
    return Recipe(formats)


def read_recipe(path: Path) -> Recipe:
    """Read a recipe's file.

    Raises:
        BadInputError: it cannot be read, or a line says nothing that is known.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: cannot be read as a recipe: {error}") from error
    return parse(text, str(path))


def unit_of(tensor: str) -> str:
    """What a matrix is called in a recipe: ``model.layers.4.mlp.up_proj.weight`` -> ``gate_up.4``."""
    name = tensor.removesuffix(".weight")
    if name.startswith("lm_head."):
        return f"heads.{name.removeprefix('lm_head.')}"
    if not name.startswith("model.layers."):
        return "projection"
    layer, _, inner = name.removeprefix("model.layers.").partition(".")
    return f"{_CLASS_OF[inner]}.{layer}"


def units_of(spec: Spec) -> dict[str, list[str]]:
    """Every ``CLASS.N`` (and ``projection``) of a shape, with its tensors' names, in the order of a pass."""
    found: dict[str, list[str]] = {}
    for tensor in spec.shapes():
        if is_streamed(tensor):
            found.setdefault(unit_of(tensor), []).append(tensor)
    return found


def applied(model: Model, recipe: Recipe) -> tuple[Model, int]:
    """A model with its matrices in the recipe's formats, and how many weights that changed.

    Raises:
        BadInputError: the recipe names what the model does not have.
        UnpackableError: naming the tensor and the weight that a format cannot hold.
    """
    recipe.require(model.spec)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda pair: _in_format(*pair), _wanted(model, recipe)))
    tensors = {**model.tensors, **{tensor.name: tensor for tensor, _ in done}}
    return Model(f"{model.name} by recipe", model.spec, tensors, model.synthetic), sum(count for _, count in done)


def _wanted(model: Model, recipe: Recipe) -> Iterator[tuple[Tensor, Format]]:
    for tensor in model.tensors.values():
        kind = recipe.of(tensor.name)
        if kind is not None and kind is not tensor.format:
            yield tensor, kind


def _in_format(tensor: Tensor, kind: Format) -> tuple[Tensor, int]:
    values = tensor.f32()
    data = tensor.packed_values(kind, values)
    return replace(tensor, format=kind, data=data), differing(kind.unpack(data), values)

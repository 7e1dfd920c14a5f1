"""A part of a checkpoint's config.json, of which nothing that is asked has a default.

RoPE's theta stands in one of two places: ``rope_theta``, as the published checkpoints have it, or
``rope_parameters.rope_theta``, as transformers 5 writes it. A reader that knows one place only would take a default,
and a wrong theta changes every code without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cplab.errors import UnreadableModelError


@dataclass(frozen=True, slots=True)
class Section:
    """A part of config.json; nothing that is asked of it has a default.

    Attributes:
        path: of config.json.
        at: where in it, such as ``talker_config.``.
        values: what stands there.
    """

    path: Path
    at: str
    values: Mapping[str, Any]

    def whole(self, key: str) -> int:
        """A positive integer.

        Raises:
            UnreadableModelError: there is none under that key.
        """
        value = self._value(key)
        if type(value) is not int or value < 1:
            raise UnreadableModelError(f"{self.path}: {self.at}{key} is {value!r}; a positive integer is wanted")
        return value

    def real(self, key: str) -> float:
        """A number.

        Raises:
            UnreadableModelError: there is none under that key.
        """
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnreadableModelError(f"{self.path}: {self.at}{key} is {value!r}; a number is wanted")
        return float(value)

    def section(self, key: str) -> Section:
        """A part of this part.

        Raises:
            UnreadableModelError: there is none under that key.
        """
        value = self._value(key)
        if not isinstance(value, dict):
            raise UnreadableModelError(f"{self.path}: {self.at}{key} is {value!r}; an object is wanted")
        return Section(self.path, f"{self.at}{key}.", value)

    def must_be_plain(self) -> None:
        """Refuse what the lab does not compute: biases, sliding windows, tied heads, other activations and RoPEs."""
        if self._value("hidden_act") != "silu":
            raise UnreadableModelError(f"{self.path}: {self.at}hidden_act is {self.values['hidden_act']!r}, not silu")
        for key in ("attention_bias", "use_sliding_window", "tie_word_embeddings"):
            if self.values.get(key):
                raise UnreadableModelError(f"{self.path}: {self.at}{key} is set; the lab computes models without")
        kinds = self.values.get("layer_types") or []
        if any(kind != "full_attention" for kind in kinds):
            raise UnreadableModelError(f"{self.path}: {self.at}layer_types has others than full_attention")
        for key in ("rope_scaling", "rope_parameters"):
            self._must_be_plain_rope(key)

    def rope_theta(self) -> float:
        """RoPE's theta, from ``rope_theta`` or from ``rope_parameters.rope_theta``.

        Raises:
            UnreadableModelError: it stands in neither, or in both and they differ.
        """
        parameters = self.values.get("rope_parameters")
        if parameters is None:
            return self.real("rope_theta")
        inner = self.section("rope_parameters")
        if self.values.get("rope_theta") is None:
            return inner.real("rope_theta")
        theta = self.real("rope_theta")
        if "rope_theta" in inner.values and inner.real("rope_theta") != theta:
            raise UnreadableModelError(
                f"{self.path}: {self.at}rope_theta is {theta}, {inner.at}rope_theta {inner.real('rope_theta')}; "
                "one of them is wrong"
            )
        return theta

    def _must_be_plain_rope(self, key: str) -> None:
        """Refuse every RoPE but the plain one over the whole head, by the name of its type.

        The talker's "default" with three sections is plain where the three positions are equal, as here.
        """
        said = self.values.get(key) or {}
        where = f"{self.path}: {self.at}{key}"
        if not isinstance(said, dict):
            raise UnreadableModelError(f"{where} is {said!r}; plain RoPE is computed")
        for name in ("rope_type", "type"):
            if said.get(name) not in (None, "default"):
                raise UnreadableModelError(f"{where}.{name} is {said[name]!r}; plain RoPE is computed, type default")
        if said.get("partial_rotary_factor") not in (None, 1):
            raise UnreadableModelError(f"{where}.partial_rotary_factor is set; the lab rotates whole heads")
        each = [name for name, value in said.items() if isinstance(value, dict)]
        if each:
            raise UnreadableModelError(f"{where} differs by type of layer ({', '.join(each)}); one for all is computed")

    def _value(self, key: str) -> Any:
        if key not in self.values:
            raise UnreadableModelError(f"{self.path}: {self.at}{key} is missing, and no default is taken for it")
        return self.values[key]

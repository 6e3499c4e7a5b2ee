"""The parameters of a request, in the same words and units whichever protocol brought them."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.errors import InvalidRequestError
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import SharedPlace
from treadle.types import Priority

_MICROSECONDS = 1e-6
_PLACE = ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")

Value = bool | int | float | str
Parameters = dict[str, Value]


def apply_parameters(
    request: InferenceRequest, parameters: Mapping[str, Value], more: tuple[str, ...] = ()
) -> None:
    """Read the parameters of a whole request.

    Args:
        request: What they are noted in.
        parameters: As the client sent them.
        more: Names that the caller reads itself.

    Raises:
        InvalidRequestError: If one is not known or not possible; says what is allowed.
    """
    for name, value in parameters.items():
        match name:
            case "priority":
                request.priority = _priority(value)
            case "timeout":
                if type(value) is not int or value < 0:
                    raise InvalidRequestError(
                        f"timeout is {value!r}; allowed: microseconds as a whole number from 0"
                    )
                # Zero means, as in Triton, that the model's own limit holds.
                request.timeout_seconds = value * _MICROSECONDS if value else None
            case "binary_data_output":
                request.binary_outputs = flag(name, value)
            case _ if name not in more:
                allowed = ", ".join(("binary_data_output", "priority", "timeout", *more))
                raise InvalidRequestError(f"unknown parameter '{name}'; allowed: {allowed}")


def shared_place(parameters: Mapping[str, Value], where: str, other: str) -> SharedPlace | None:
    """Where in shared memory an input lies or an output is to go, if it says so.

    Args:
        parameters: Of the input or output.
        where: Names it in errors.
        other: The one parameter that it may have besides.

    Raises:
        InvalidRequestError: If a parameter is not known or not possible.
    """
    if not parameters or (len(parameters) == 1 and other in parameters):
        return None
    for name in parameters:
        if name != other and name not in _PLACE:
            raise InvalidRequestError(
                f"{where} has unknown parameter '{name}'; allowed: "
                + ", ".join((*((other,) if other else ()), *_PLACE))
            )
    region, nbytes, offset = (parameters.get(name) for name in _PLACE)
    if not isinstance(region, str) or not region:
        raise InvalidRequestError(
            f"{where} has shared_memory_region {region!r}; allowed: the name of a registered one"
        )
    if type(nbytes) is not int or nbytes < 0:
        raise InvalidRequestError(
            f"{where} has shared_memory_byte_size {nbytes!r}; allowed: a whole number from 0"
        )
    if offset is None:
        offset = 0
    if type(offset) is not int or offset < 0:
        raise InvalidRequestError(
            f"{where} has shared_memory_offset {offset!r}; allowed: a whole number from 0"
        )
    return SharedPlace(region, offset, nbytes)


def place_parameters(place: SharedPlace) -> dict[str, str | int]:
    """The parameters that say where in shared memory an output is."""
    return dict(zip(_PLACE, (place.region, place.nbytes, place.offset), strict=True))


def flag(name: str, value: Value) -> bool:
    """A parameter that is true or false.

    Raises:
        InvalidRequestError: If it is neither.
    """
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name} is {value!r}; allowed: true and false")
    return value


def _priority(value: Value) -> Priority | None:
    """1, 2 and 3 (and anything above) are the three classes; 0 is the model's own."""
    if isinstance(value, str):
        try:
            return Priority.parse(value)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None
    if type(value) is not int or value < 0:
        raise InvalidRequestError(
            f"priority is {value!r}; allowed: 0 (the model's own), 1 (critical), 2 (normal), "
            "3 and above (background), or a name"
        )
    return Priority(min(value - 1, Priority.BACKGROUND)) if value else None

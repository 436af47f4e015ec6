# mxkern/values/value.py: what BlockScaled and PreparedOperand share: fields that stay as they are.
from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, overload

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import TypeVar

    # What comes of NumPy's arrays has dtypes and shapes of its own.
    NumPyArray = npt.NDArray[Any]
    Array = TypeVar("Array", bound=Any, default=Any)
    Array_co = TypeVar("Array_co", bound=Any, default=Any, covariant=True)
else:
    from typing import TypeVar

    NumPyArray = Any
    Array = TypeVar("Array")  # an array or a tensor of any framework
    Array_co = TypeVar("Array_co", covariant=True)


class Value:
    """A record whose fields are its __slots__, in the order of its constructor's arguments. It is
    immutable, and equal to itself alone: arrays have no one answer to ==.

    It is no dataclass: the constructor of one takes more than twice the time, and frozen slots can
    be neither copied nor pickled.
    """

    __slots__ = ("__weakref__",)
    __match_args__: tuple[str, ...] = ()  # the fields

    def replace(self, **fields: Any) -> Self:
        """Another one with these fields in place of its own. Nothing is checked here, but by the
        operations that it is given to."""
        known, own = self.__match_args__, type(self)
        for name in fields:
            if name not in known:
                raise TypeError(
                    f"{own.__name__}.replace: there is no field {name!r}; expected "
                    f"{', '.join(known)}"
                )
        return own(*[fields[name] if name in fields else getattr(self, name) for name in known])

    __replace__ = replace  # copy.replace, from Python 3.13 on
    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)  # BlockScaled[torch.Tensor] in annotations

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(_immutable(self, name))

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(_immutable(self, name))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple([getattr(self, name) for name in self.__match_args__])

    def __iter__(self) -> NoReturn:
        raise TypeError(_no_tuple(self))

    def __getitem__(self, item: Any) -> NoReturn:
        raise TypeError(_no_tuple(self))


if TYPE_CHECKING:

    class ValueOf(Value, Generic[Array_co]):
        """A Value of arrays of one framework."""

else:
    ValueOf = Value


class Part(Generic[Array_co]):
    """The type of a field that is an array."""

    @overload
    def __get__(self, value: ValueOf[NumPyArray], owner: Any) -> NumPyArray: ...
    @overload
    def __get__(self, value: ValueOf[Array], owner: Any) -> Array: ...
    def __get__(self, value: Any, owner: Any) -> Any: ...


def _immutable(value: Value, name: str) -> str:
    kind = type(value).__name__
    if name not in value.__match_args__:
        return f"{kind} has no field {name!r} and takes no others"
    return f"{kind} is immutable; .replace({name}=...) gives another one"


def _no_tuple(value: Value) -> str:
    kind, names = type(value).__name__, value.__match_args__
    return f"{kind} is not a tuple; take its fields: " + ", ".join(f".{name}" for name in names)


def fields_text(value: Value) -> str:
    """The fields as a constructor takes them, without those that are missing."""
    held = [name for name in value.__match_args__ if hasattr(value, name)]
    return ", ".join(f"{name}={getattr(value, name)!r}" for name in held)

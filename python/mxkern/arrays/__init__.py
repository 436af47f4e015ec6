# mxkern/arrays: which adapter an array belongs to. Frameworks are never imported from here before
# an array of theirs arrives: a type that is unknown is looked for in what is already loaded.
from __future__ import annotations

import importlib
import numbers
import sys
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from mxkern.arrays.adapter import CPU, Adapter, TracedCalls, built_with_cuda, collapsed
from mxkern.arrays.later_frameworks import ImportWatch
from mxkern.values import errors
from mxkern.values.block_scaled import BlockScaled, above
from mxkern.values.value import Value

__all__ = [
    "Adapter",
    "adapter_of",
    "collapsed",
    "meet_frameworks",
    "take_jax_calls_from",
    "way_to_array",
]

_adapters: dict[str, Adapter] = {}
_known: dict[type, Adapter] = {}  # frameworks' own classes
# Classes that others make: subclasses, and what speaks DLPack. They end with their last instance.
_others: WeakKeyDictionary[type, Adapter] = WeakKeyDictionary()
_ADAPTERS = {  # by framework: the module here and its class
    "numpy": ("numpy", "NumpyAdapter"),
    "torch": ("torch", "TorchAdapter"),
    "cupy": ("cupy", "CupyAdapter"),
    "jax": ("jax", "JaxAdapter"),
    "jax on CUDA": ("jax_cuda", "JaxCudaAdapter"),
    "dlpack": ("dlpack", "DlpackAdapter"),
}
_FRAMEWORKS = ("cupy", "jax", "jaxlib", "numpy", "torch")
_make_jax_calls: Callable[[], TracedCalls]
_lock = threading.RLock()  # an adapter is made once: JAX is told of the classes here but once


def adapter_of(function: str, argument: str, array: Any) -> Adapter:
    """The adapter of an array's framework. TypeError for what is no array."""
    adapter = _known.get(type(array))
    return _find(function, argument, array) if adapter is None else adapter


def _device_of(codes: Any) -> str:
    """As text, where a framework's arrays do not say it themselves."""
    adapter = adapter_of("BlockScaled.device", "codes", codes)
    index = adapter.device(adapter.enter("BlockScaled.device", "codes", codes))
    return "cpu" if index == CPU else f"cuda:{index}"


def _place(part: Any, device: Any) -> Any:
    return adapter_of("BlockScaled.to", "q", part).placed(part, device)


above.device_of, above.place = _device_of, _place


def take_jax_calls_from(make: Callable[[], TracedCalls]) -> None:
    """What makes them, once an array of JAX arrives: they call operations, which stand above."""
    global _make_jax_calls
    _make_jax_calls = make


def meet_loaded_frameworks() -> None:
    """JAX and PyTorch see into a BlockScaled from now on, and PyTorch loads one from a file, not
    only once an array of theirs has arrived."""
    if _loaded("jax", "Array") != ():
        _adapter("jax")
    if _loaded("torch", "Tensor") != ():
        _adapter("torch")


def meet_frameworks() -> None:
    """Those that are loaded now, and those that will be once they are."""
    meet_loaded_frameworks()
    ImportWatch(("jax", "torch"), meet_loaded_frameworks)


def _adapter(framework: str) -> Adapter:
    known = _adapters.get(framework)
    if known is not None:
        return known
    with _lock:
        if framework in _adapters:
            return _adapters[framework]
        module, name = _ADAPTERS[framework]
        kind = getattr(importlib.import_module(f"mxkern.arrays.{module}"), name)
        made: Adapter = kind(_make_jax_calls()) if framework.startswith("jax") else kind()
        _adapters[framework] = made
        return made


def _loaded(framework: str, name: str) -> Any:
    """A type of a framework that is loaded; an empty tuple, of which nothing is an instance."""
    return getattr(sys.modules.get(framework), name, ())


def _keep(kind: type, adapter: Adapter) -> Adapter:
    is_own = str(kind.__module__).partition(".")[0] in _FRAMEWORKS
    return (_known if is_own else _others).setdefault(kind, adapter)


def _find(function: str, argument: str, array: Any) -> Adapter:
    kind = type(array)
    if (adapter := _others.get(kind)) is not None:
        return adapter
    if isinstance(array, _loaded("numpy", "ndarray")):
        numpy = sys.modules["numpy"]
        if kind is not numpy.ndarray and kind is not numpy.memmap:
            filled = hasattr(kind, "filled")  # a masked array, whose mask asarray would lose
            way_out = f"{argument}.filled(0)" if filled else f"numpy.asarray({argument})"
            raise TypeError(
                f"{function}: {argument} is a {kind.__module__}.{kind.__qualname__}; expected a "
                f"plain NumPy array; convert with {way_out}"
            )
        return _keep(kind, _adapter("numpy"))
    if isinstance(array, _loaded("torch", "Tensor")):
        return _keep(kind, _adapter("torch"))
    if isinstance(array, _loaded("cupy", "ndarray")):
        return _keep(kind, _adapter("cupy"))
    if isinstance(array, _loaded("jax", "Array")):
        return _find_jax(function, argument, array)
    if hasattr(kind, "__dlpack_device__") and hasattr(kind, "__dlpack__"):
        return _keep(kind, _adapter("dlpack"))
    if kind is BlockScaled:
        raise TypeError(
            f"{function}: {argument} is {errors.described(array)}; expected an array; "
            f"mxkern.dequantize({argument}) has its values"
        )
    raise TypeError(
        f"{function}: {argument} is {errors.described(array)}; expected a NumPy or CuPy array, a "
        f"PyTorch tensor or a JAX array{way_to_array(argument, array)}"
    )


def way_to_array(argument: str, value: Any) -> str:
    """How what is no array becomes one, as messages end; nothing where there is no way."""
    # Codes and scales are bytes, which no conversion of numbers makes.
    stored = argument.endswith(("codes", "scales", "data"))
    dtype = "uint8" if stored else "int32" if argument == "ends" else "float32"
    call = f"numpy.asarray({argument}, numpy.{dtype})"
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        shape = "" if argument.endswith("tensor_scale") else ".reshape(1)"
        return f"; convert with {call}{shape}"
    if isinstance(value, (type, Value)):  # a class, or a PreparedOperand
        return ""
    if isinstance(value, (list, tuple)) or (
        hasattr(value, "__array__") and getattr(value, "shape", None) != ()
    ):
        return f"; convert with {call}"
    if _is_memory(value):
        return f"; read it with numpy.frombuffer({argument}, numpy.{dtype}), and reshape that"
    return ""


def _is_memory(value: Any) -> bool:
    """Whether it is bytes, a memoryview, an array.array or the like."""
    try:
        memoryview(value).release()
    except (TypeError, BufferError, ValueError):
        return False
    return not hasattr(value, "__array__")  # a scalar of NumPy's


def _find_jax(function: str, argument: str, array: Any) -> Adapter:
    """JAX has one type for arrays on every device, so it is not the type that decides."""
    jax = sys.modules["jax"]
    own = _adapter("jax")
    if jax.default_backend() == "cpu":
        return _keep(type(array), own)
    if isinstance(array, jax.core.Tracer):
        return own
    if not built_with_cuda or all(device.platform == "cpu" for device in array.devices()):
        return own
    return _adapter("jax on CUDA")

# mxkern/torch/recipes/autocast.py: a recipe for all layers that run inside of a with statement.
from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch

from mxkern.torch.operators.compiler import taken_for
from mxkern.torch.recipes.available import unavailable_reason
from mxkern.values import errors
from mxkern.values.recipe import Operand, Recipe, check_options, mxfp8


@taken_for(check_options)
def _checked_when_it_runs(operand: Operand) -> None:
    """Recipes may be made in compiled code; operators check what they are given."""


class _Active(threading.local):
    """What is active in this thread. PyTorch's compiler sees attributes of the object, and takes
    those of its class for constants."""

    inside: bool
    recipe: Recipe | None  # None inside: layers are plain
    amax_group: Any

    def __init__(self) -> None:
        self.inside, self.recipe, self.amax_group = False, None, None


_active = _Active()


class autocast:  # noqa: N801  # as torch.autocast
    """Within the with statement linear, Linear and GroupedLinear take this recipe instead of their
    own. The innermost one counts.

    recipe      by default mxfp8()
    enabled     False: layers are plain
    amax_group  a process group whose ranks share the amax of NVFP4's inputs and gradients

    One instance serves many with statements, one after the other. It knows only the thread that
    entered it: PyTorch recomputes checkpointed layers in another one, so give checkpoint
    context_fn=checkpoint_contexts, or the layers a recipe of their own.
    Raises TypeError for what is no recipe; on entry RuntimeError where the recipe does not run.
    """

    def __init__(
        self, recipe: Recipe | None = None, enabled: bool = True, *, amax_group: Any = None
    ) -> None:
        check_recipe("autocast", recipe)
        self._recipe = (mxfp8() if recipe is None else recipe) if enabled else None
        self._amax_group = amax_group
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._before is not None:
            raise RuntimeError(
                "autocast: this instance is active already; expected one that is not; make another"
            )
        recipe = None if torch.compiler.is_compiling() else self._recipe
        if recipe is not None and (reason := unavailable_reason(recipe)):
            raise RuntimeError(f"autocast: the recipe does not run here: {reason}")
        self._before = (_active.inside, _active.recipe, _active.amax_group)
        _active.inside, _active.recipe = True, self._recipe
        _active.amax_group = self._amax_group
        return self

    def __exit__(self, *exception: object) -> None:
        _active.inside, _active.recipe, _active.amax_group = self._before
        self._before = None


def current_recipe() -> Recipe | None:
    """The recipe of the innermost autocast; None outside of all, and where it is not enabled."""
    return _active.recipe


def chosen(recipe: Recipe | None) -> tuple[Recipe | None, Any]:
    """The recipe that a layer with its own one takes now, and who shares its amax."""
    if _active.inside:
        return _active.recipe, _active.amax_group
    return recipe, None


class _Again:
    """What was active when it was made, as a context."""

    def __init__(self) -> None:
        self._then = (_active.inside, _active.recipe, _active.amax_group)
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before.append((_active.inside, _active.recipe, _active.amax_group))
        _active.inside, _active.recipe, _active.amax_group = self._then

    def __exit__(self, *exception: object) -> None:
        _active.inside, _active.recipe, _active.amax_group = self._before.pop()


def checkpoint_contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """For torch.utils.checkpoint.checkpoint(..., use_reentrant=False, context_fn=
    checkpoint_contexts): layers are recomputed with the autocast that was active in forward."""
    return nullcontext(), _Again()


def check_recipe(function: str, recipe: Any) -> None:
    """TypeError for what is neither a Recipe nor None."""
    if recipe is not None and not isinstance(recipe, Recipe):
        raise no_recipe(function, recipe)


def no_recipe(function: str, recipe: Any) -> TypeError:
    """The error for what is no Recipe."""
    hint = "; call it: mxfp8()" if callable(recipe) else ""
    if isinstance(recipe, str):
        hint = f"; pass mxkern.torch.{recipe}()" if recipe in ("mxfp8", "nvfp4", "mxfp4") else ""
    return TypeError(
        f"{function}: recipe is {errors.described(recipe)}; expected a Recipe, as "
        f"mxkern.torch.mxfp8() gives{hint}"
    )

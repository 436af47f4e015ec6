# mxkern/values/seeds.py: seeds of stochastic rounding, one for each layer, rank and operand.
from __future__ import annotations

_WORD = 2**64 - 1


def mixed(seed: int, *numbers: int) -> int:
    """A seed of 64 bits that depends on all of its arguments (the finalizer of SplitMix64, after
    Steele, Lea and Flood 2014). Without numbers it is the seed."""
    for number in numbers:
        word = (seed + 0x9E3779B97F4A7C15 * (number + 1)) & _WORD
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
        seed = word ^ (word >> 31)
    return seed


def of_text(seed: int, text: str) -> int:
    """A seed for a name, as that of a layer; the same in every process."""
    data = text.encode()
    words = [int.from_bytes(data[i : i + 7], "little") for i in range(0, len(data), 7)]
    return mixed(seed, len(data), *words)


def operand_seed(seed: int, operand: str) -> int:
    """The seed that an operand of a layer is rounded with: the layer's own for "gradient", others
    for "input" and "weight", which are seldom rounded stochastically."""
    return seed if operand == "gradient" else mixed(seed, {"input": 0, "weight": 1}[operand])

"""fuzz/safetensors_fuzzer.py: damaged safetensors files give a ValueError or tensors, nothing else.

usage: safetensors_fuzzer.py SECONDS. Reproducible: file i comes from seed i.
"""

import json
import random
import sys
import time

from mxkern.files.safetensors import parse_safetensors

INTERESTING = [
    b"0",
    b"-1",
    b"99999999999999999999",
    b'"',
    b"{",
    b"[",
    b"null",
    b"\xff",
    b"1e5",
    b"",
]


def valid_parts() -> tuple[bytes, bytes]:
    """Header and data of a file of three tensors, one of them empty."""
    tensors = {"a": ("F32", [2, 3], 24), "b": ("BF16", [4], 8), "c": ("F8_E8M0", [0, 5], 0)}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape, size) in tensors.items():
        offsets = [offset, offset + size]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        offset += size
    return json.dumps(header).encode(), bytes(range(offset))


def damaged_file(source: random.Random) -> bytes:
    """A file with a damaged header and the right length of it, or damaged anywhere."""
    header, data = valid_parts()
    if source.random() < 0.8:
        header = damaged(header, source)
        return len(header).to_bytes(8, "little") + header + data
    return damaged(len(header).to_bytes(8, "little") + header + data, source)


def damaged(content: bytes, source: random.Random) -> bytes:
    """The content with a few bytes changed, spliced, cut or repeated."""
    for _ in range(source.randint(1, 3)):
        at, to = sorted(source.randrange(len(content) + 1) for _ in range(2))
        replacement = source.choice(
            [
                source.choice(INTERESTING),
                source.randbytes(source.randint(1, 8)),
                content[at:to] * 2,
                content[:at],
            ]
        )
        content = content[:at] + replacement + content[source.choice([at, at + 1, to]) :]
    return content


def read_everything(content: bytes) -> None:
    """Reads each tensor to its last byte."""
    for tensor in parse_safetensors(content).values():
        tensor.tobytes()


def main() -> None:
    seconds = float(sys.argv[1])
    runs, refused = 0, 0
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        content = damaged_file(random.Random(runs))
        try:
            read_everything(content)
        except ValueError:
            refused += 1
        except BaseException:
            print(f"seed {runs}: {content!r}", file=sys.stderr)
            raise
        runs += 1
    print(f"Done {runs} runs in {seconds:g} second(s), {refused} files refused")


if __name__ == "__main__":
    main()

# tests/python/package/test_readme.py: every code block of the README does what it says.
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mxkern
from support import ROOT, available, blocks, mostly_slow

PAGES = ["README.md"] + [
    f"docs/guide/{name}.md"
    for name in (
        "python",
        "formats",
        "migrating",
        "numerics",
        "gemm",
        "cpp",
        "checkpoints",
        "troubleshooting",
    )
]
PAGES += ["docs/guide/jax.md"] if available("jax") else []
PAGES += ["docs/guide/pytorch.md"] if available("torch") else []


def test_there_is_something_to_test():
    assert len(blocks("README.md", "python")) >= 2
    assert len(blocks("README.md", "cpp")) == 1
    assert len(blocks("README.md", "cmake")) == 1
    assert len(blocks("docs/guide/cpp.md", "cpp")) >= 3
    assert len(commands()) >= 5
    known = {"python", "cpp", "cmake", "sh", ""}
    for page in PAGES:
        assert set(re.findall(r"^```(\w*)$", (ROOT / page).read_text(), re.MULTILINE)) <= known


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_and_print_what_their_comments_say(page, capsys):
    """One after the other. A comment after a print begins with what is printed, or says about what
    number it is."""
    namespace = {}
    for block in blocks(page, "python"):
        for statement in re.split(r"\n(?=\S)", block):
            exec(compile(statement, page, "exec"), namespace)
            printed = capsys.readouterr().out.strip()
            said = re.match(r"print\(.*\)\s+# (about )?(.*)$", statement)
            if said and said[1]:
                assert float(printed) == pytest.approx(float(said[2]), rel=0.1), statement
            elif said:
                assert printed and said[2].startswith(printed), (statement, printed)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that the commands name."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 64)).astype(np.float32)
    name = "layer.0.attention.query.weight"
    header = json.dumps({name: {"dtype": "F32", "shape": [8, 64], "data_offsets": [0, x.nbytes]}})
    packed = struct.pack("<Q", len(header)) + header.encode() + x.tobytes()
    (tmp_path / "model.safetensors").write_bytes(packed)
    np.save(tmp_path / "weights.npy", x)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(packed)
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)


def commands():
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("mxkern ")]


@pytest.mark.parametrize("command", mostly_slow(commands(), commands()[0]))
def test_commands_run(command, files):
    if "--plot" in command:
        pytest.importorskip("matplotlib")
    arguments = shlex.split(command, comments=True)[1:]
    finished = subprocess.run(
        [sys.executable, "-m", "mxkern", *arguments], capture_output=True, text=True
    )
    assert finished.returncode == 0 and finished.stdout, finished.stderr


def installation():
    """Where include/ and lib/ of an installed library are, if there is one."""
    if os.environ.get("MXKERN_PREFIX"):
        return Path(os.environ["MXKERN_PREFIX"])
    try:
        return Path(mxkern.cmake_dir()).parent.parent.parent
    except RuntimeError:
        return None


def built(block, folder):
    """What a program prints. Without mxkern.h it has the headers alone, and is not linked."""
    prefix = installation()
    (folder / "main.cc").write_text(block)
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{prefix}/include", "main.cc"]
    if "mxkern/mxkern.h" in block:
        command += [f"-L{prefix}/lib", "-lmxkern", f"-Wl,-rpath,{prefix}/lib"]
    compiled = subprocess.run(
        [*command, "-o", "program"], cwd=folder, capture_output=True, text=True
    )
    assert compiled.returncode == 0, compiled.stderr
    return subprocess.check_output([folder / "program"], text=True)


needs_cpp = [
    pytest.mark.skipif(installation() is None, reason="mxkern runs from a build tree"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"),
]


@pytest.mark.parametrize(
    "block", [pytest.param(b, marks=needs_cpp) for b in blocks("README.md", "cpp")]
)
def test_the_cpp_block_compiles_and_runs(block, tmp_path):
    # 1.5 = 384 * 2^-8: the code of 384 is 0x7c
    assert built(block, tmp_path) == "code 0x7c, scale 2^-8\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "block", [pytest.param(b, marks=needs_cpp) for b in blocks("docs/guide/cpp.md", "cpp")]
)
def test_cpp_blocks_print_what_they_say(block, tmp_path):
    said = re.findall(r"// prints: (.*)$", block, re.MULTILINE)
    assert said and built(block, tmp_path).splitlines() == said


def test_the_table_of_schemes_is_the_library_s():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\d+) \| (\d+) \| (.*?) \| ([\d.]+) \|", text, re.M)
    assert [row[0] for row in rows] == list(mxkern.schemes.names)
    for name, format_name, bits, block, scale, bits_per_element in rows:
        scheme = mxkern.schemes[name]
        assert format_name.lower() == scheme.format and int(bits) == scheme.bits
        assert int(block) == scheme.block and float(bits_per_element) == scheme.bits_per_element
        assert scale.lower().startswith(scheme.scale_format)


def test_the_table_of_functions_is_the_package_s():
    section = (ROOT / "README.md").read_text().split("## Functions\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)[(`]", cell)}
    public = {name for name in mxkern.__all__ if not name[0].isupper()}
    assert named == public - {"__version__", "cmake_dir"}

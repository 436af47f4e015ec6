# tests/python/cli/test_main.py: the command line: what it prints, its exit codes, its one-line
# errors.
import csv
import errno
import os
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import mxkern
from mxkern.analysis import plot
from mxkern.cli.main import main
from mxkern.files.safetensors import read_safetensors
from safetensors_files import write_safetensors


@pytest.fixture
def checkpoint(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {
        "layer.0.weight": rng.standard_normal((8, 64)).astype(np.float32),
        "layer.1.weight": rng.standard_normal((4, 96)).astype(ml_dtypes.bfloat16),
        "layer.1.bias": rng.standard_normal(96).astype(np.float32),
        "position_ids": np.arange(12).reshape(1, 12),
        "codes": np.ones((2, 32), ml_dtypes.float8_e4m3fn),
    }
    return write_safetensors(tmp_path / "model.safetensors", tensors)


def test_a_file_of_codes_is_told_from_one_of_little_tensors(tmp_path, capsys):
    tensors = {
        "w.weight": np.ones((4, 16), np.uint8),
        "w.weight_scale": np.ones((4, 2), ml_dtypes.float8_e4m3fn),
        "w.weight_scale_2": np.float32(1).reshape(()),
    }
    path = write_safetensors(tmp_path / "codes.safetensors", tensors)
    for arguments in ([path], [path, "--tensor", "weight"]):
        assert main(["compare", *arguments]) == 1
        err = capsys.readouterr().err
        assert "among 3 tensors of float32, float8_e4m3fn, uint8" in err
        assert "quantized already" in err


def test_compare_prints_what_it_read_and_a_table(checkpoint, capsys):
    assert main(["compare", checkpoint]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == (
        f"{checkpoint}: 2 tensors, 896 elements; left out: 1 of fewer dimensions or empty, "
        "2 of another dtype"
    )
    assert lines[1].startswith("scheme") and len(lines) == 3 + 6 * 4 + 1
    assert err == "", "the progress bar is for terminals"


def test_compare_aggregates_as_if_all_were_one_tensor(tmp_path, capsys):
    x = np.random.default_rng(1).standard_normal((12, 64)).astype(np.float32)
    parts = write_safetensors(tmp_path / "parts.safetensors", {"a": x[:4], "b": x[4:]})
    np.save(tmp_path / "whole.npy", x)
    chosen = ["--scheme", "mxfp4", "--scheme", "mxint8", "--rule", "even"]
    tables = []
    for path in (parts, str(tmp_path / "whole.npy")):
        assert main(["compare", path, *chosen]) == 0
        tables.append(capsys.readouterr().out.split("\n", 1)[1])
    assert tables[0] == tables[1] == f"{mxkern.compare(x, ['mxfp4', 'mxint8'], 'even')}\n"


def test_compare_one_tensor_of_many_and_each(checkpoint, capsys):
    only = ["--scheme", "mxfp4", "--rule", "rceil"]
    assert main(["compare", checkpoint, "--tensor", r"1\.bias$", *only]) == 0
    assert ": 1 tensor, 96 elements\n" in capsys.readouterr().out
    assert main(["compare", checkpoint, "--per-tensor", *only]) == 0
    out = capsys.readouterr().out
    assert "layer.0.weight [8x64] float32\n" in out
    assert "layer.1.weight [4x96] bfloat16\n" in out
    assert out.count("mxfp4") == 3


def test_names_are_not_for_the_terminal_to_obey(tmp_path, capsys):
    path = write_safetensors(
        tmp_path / "a.safetensors", {"w\x1b[2J\nß": np.ones((2, 32), np.float32)}
    )
    assert main(["compare", path, "--per-tensor", "--scheme", "mxint8"]) == 0
    assert "w\\x1b[2J\\nß [2x32] float32\n" in capsys.readouterr().out
    assert main(["compare", path, "--tensor", "nothing"]) == 1
    said = capsys.readouterr().err
    assert "names are such as w\\x1b[2J\\nß" in said and "\x1b" not in said


def test_float64_beyond_float32_warns_of_nothing(tmp_path, recwarn):
    np.save(tmp_path / "x.npy", np.array([[1e300] + [1.0] * 31]))
    assert main(["compare", str(tmp_path / "x.npy"), "--scheme", "mxint8"]) == 0
    assert not recwarn.list


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_compare_npy_of_every_float(dtype, tmp_path, capsys):
    x = np.random.default_rng(2).standard_normal(100).astype(dtype)
    path = tmp_path / "x.npy"
    np.save(path, x)
    assert main(["compare", str(path), "--scheme", "nvfp4"]) == 0
    table = capsys.readouterr().out.split("\n", 1)[1]
    wanted = x.astype(np.float32) if dtype == np.float64 else x
    assert table == f"{mxkern.compare(wanted, 'nvfp4')}\n"


def test_compare_csv_writes_the_figures(checkpoint, tmp_path, capsys):
    path = tmp_path / "error.csv"
    chosen = ["--scheme", "mxfp4", "--scheme", "nvfp4", "--rule", "even", "--csv", str(path)]
    assert main(["compare", checkpoint, "--per-tensor", *chosen]) == 0
    assert f"wrote {path}" in capsys.readouterr().out
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["tensor"] for row in rows[::2]] == ["layer.0.weight", "layer.1.weight", ""]
    assert [row["scheme"] for row in rows] == ["mxfp4", "nvfp4"] * 3
    x = read_safetensors(checkpoint)["layer.1.weight"]
    for row, record in zip(rows[2:4], mxkern.compare(x, ["mxfp4", "nvfp4"], "even"), strict=True):
        assert float(row["relative_rmse"]) == record.relative_rmse
        assert row["scale_rule"] == (record.scale_rule or "")
        assert int(row["elements"]) == 4 * 96
    assert main(["compare", checkpoint, *chosen]) == 0
    assert len(path.read_text().splitlines()) == 3
    assert main(["compare", "nothing.npy", *chosen]) == 1
    assert len(path.read_text().splitlines()) == 3
    chosen[-1] = str(tmp_path / "no" / "x.csv")
    assert main(["compare", checkpoint, *chosen]) == 1
    assert "no/x.csv: No such file or directory" in capsys.readouterr().err


def test_compare_plot_writes_a_picture(checkpoint, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    for name, magic in (("error.png", b"\x89PNG"), ("error.svg", b"<?xml")):
        picture = tmp_path / name
        assert main(["compare", checkpoint, "--plot", str(picture)]) == 0
        assert picture.read_bytes().startswith(magic) and picture.stat().st_size > 5000
        assert f"wrote {picture}" in capsys.readouterr().out


def test_plot_of_a_file_whose_name_no_font_has(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    path = tmp_path / os.fsdecode(b"b\xff.npy")
    try:
        np.save(path, np.ones((2, 32), np.float32))
    except OSError as error:
        if error.errno != errno.EILSEQ:
            raise
        pytest.skip("names of files are UTF-8 here")
    picture = tmp_path / "error.png"
    options = ["--scheme", "mxfp4", "--plot", str(picture)]
    assert main(["compare", str(path), *options]) == 0
    assert picture.stat().st_size > 5000


def test_plot_of_a_file_whose_name_is_no_formula(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "$\\frac$.npy"
    np.save(path, np.ones((2, 32), np.float32))
    picture = tmp_path / "error.png"
    assert main(["compare", str(path), "--scheme", "mxfp4", "--plot", str(picture)]) == 0
    assert picture.stat().st_size > 5000


def test_the_name_of_a_scheme_stands_at_its_error():
    figure = pytest.importorskip("matplotlib.figure")
    x = np.random.default_rng(3).standard_normal((8, 64)).astype(np.float32)
    comparison = mxkern.compare(x, ["mxfp8", "mxfp4", "nvfp4"], "rceil")
    axes = figure.Figure().add_subplot()
    plot._draw(axes, comparison, "a title")
    heights = {text.get_text(): text.xy[1] for text in axes.texts}
    assert heights == {record.scheme: record.relative_rmse for record in comparison}


def test_plot_needs_matplotlib(checkpoint, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.backend_bases", raising=False)
    assert main(["compare", checkpoint, "--plot", "x.png"]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def broken_npy(path):
    path.write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4',")


def void_npy(path):
    np.save(path, np.zeros(4, np.dtype([("a", "f4")])))


def pickled_npy(path):
    np.save(path, np.array([{}, []], object), allow_pickle=True)


def swapped_npy(path):
    np.save(path, np.ones(4, ">f4"))


def integers_npy(path):
    np.save(path, np.ones((4, 4), np.int32))


def zip_npy(path):
    np.savez(path.with_suffix(""), x=np.ones(3))
    path.with_suffix(".npz").rename(path)


def truncated_npy(path):
    np.save(path, np.ones((40, 40), np.float32))
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize(
    "write",
    [broken_npy, void_npy, pickled_npy, swapped_npy, integers_npy, zip_npy, truncated_npy],
)
def test_bad_npy_files(write, tmp_path, capsys):
    path = tmp_path / "x.npy"
    write(path)
    assert main(["compare", str(path)]) == 1
    assert_one_line_error(capsys, rf"{path}: ")


@pytest.mark.parametrize("name", ["x.npy", "x.safetensors"])
def test_a_device_is_no_file(name, tmp_path, capsys):
    path = tmp_path / name
    path.symlink_to("/dev/zero")
    assert main(["compare", str(path)]) == 1
    assert_one_line_error(capsys, rf"{path}: it is a device; expected a regular file; copy")


@pytest.mark.parametrize("name", ["x.npy", "x.safetensors", "x.safetensors.index.json"])
def test_a_pipe_is_no_file(name, tmp_path, capsys):
    os.mkfifo(tmp_path / name)
    assert main(["compare", str(tmp_path / name)]) == 1
    assert_one_line_error(capsys, rf"{name}: it is a pipe; expected a regular file")


def test_a_folder_is_no_file(tmp_path, capsys):
    assert main(["compare", str(tmp_path)]) == 1
    assert_one_line_error(capsys, rf"{tmp_path}: it is a folder; .* there is none of these in it")
    for name in ("a.npy", "model-1.safetensors", "model.safetensors.index.json"):
        (tmp_path / name).write_bytes(b"")
        assert main(["compare", str(tmp_path)]) == 1
        assert_one_line_error(capsys, rf"{tmp_path}: it is a folder; .*; pass {tmp_path}/{name}")
    (tmp_path / "x.npy").mkdir()
    assert main(["compare", str(tmp_path / "x.npy")]) == 1
    assert_one_line_error(capsys, r"x.npy: it is a folder; expected a file")


def test_an_index_without_end(tmp_path, capsys):
    with open(tmp_path / "model.safetensors.index.json", "wb") as file:
        file.truncate(1 << 40)
    assert main(["compare", str(tmp_path / "model.safetensors.index.json")]) == 1
    assert_one_line_error(capsys, r"index.json: it has 1099511627776 bytes; expected at most 1")


def test_an_npy_file_in_fortran_order(tmp_path, capsys):
    x = np.random.default_rng(4).standard_normal((40, 64)).astype(np.float32)
    tables = []
    for array in (x, np.asfortranarray(x)):
        np.save(tmp_path / "x.npy", array)
        assert main(["compare", str(tmp_path / "x.npy"), "--scheme", "nvfp4"]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]


def assert_one_line_error(capsys, pattern):
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1, err
    assert re.match(rf"mxkern: error: .*{pattern}", err), err


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["missing.npy"], r"missing.npy: No such file or directory"),
        (["README.md"], r"README.md: the name ends in neither .safetensors nor .npy"),
        (["{}", "--tensor", "("], r"--tensor '\(' is no regular expression"),
        (["{}", "--tensor", "decoder"], r"no tensor name has a match .*layer.0.weight"),
        (["{}", "--tensor", "codes|ids"], r"nothing to quantize among 2 tensors of float8_e4m3fn"),
        (["{}", "--scheme", "mxfp5"], r"scheme is 'mxfp5'; .*did you mean"),
        (["{}", "--rule", "ceiling"], r"rules is 'ceiling'; .*did you mean 'ceil'"),
        (["{}", "--plot", "x.jpq"], r"--plot x.jpq: expected a name that ends in"),
        (["{}", "--plot", "no/such/x.png"], r"no/such: No such file or directory"),
    ],
)
def test_mistakes_give_one_line_and_exit_code_1(arguments, pattern, checkpoint, capsys):
    assert main(["compare", *(text.format(checkpoint) for text in arguments)]) == 1
    assert_one_line_error(capsys, pattern)


@pytest.mark.parametrize(
    ("name", "tensors", "pattern"),
    [
        ("a.safetensors", {}, r"there is no tensor in the file"),
        ("a.safetensors", {"x": np.ones((0, 32), "f")}, r"1 tensors, all of which are empty"),
        ("a.npy", np.float32(1), r"1 tensors, all of which are empty or of fewer than 1"),
    ],
)
def test_files_without_a_tensor_to_quantize(name, tensors, pattern, tmp_path, capsys):
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, tensors)
    else:
        path = write_safetensors(path, tensors)
    assert main(["compare", str(path)]) == 1
    assert_one_line_error(capsys, pattern)


def test_truncated_checkpoint(checkpoint, capsys):
    with open(checkpoint, "r+b") as file:
        file.truncate(200)
    assert main(["compare", checkpoint]) == 1
    assert_one_line_error(capsys, r"model.safetensors: .*; expected .*damaged")


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare"],
        ["unknown"],
        ["compare", "x.npy", "--no"],
        ["convert", "a", "b"],
        ["convert", "a", "b", "--scheme", "mxfp4", "--resume", "--force"],
        [],
    ],
)
def test_wrong_usage_has_exit_code_2(arguments, capsys):
    try:
        code = main(arguments)
    except SystemExit as left:
        code = left.code
    assert code == 2
    out, err = capsys.readouterr()
    assert out == "" and "usage: mxkern" in err


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "mxkern", *arguments], capture_output=True, text=True, **options
    )


def test_as_a_program():
    assert run("--version").stdout == f"mxkern {mxkern.__version__}\n"
    info = run("info")
    assert info.returncode == 0 and info.stdout.startswith(f"mxkern {mxkern.__version__}")
    table = run("schemes")
    assert table.returncode == 0 and all(name in table.stdout for name in mxkern.schemes.names)
    missing = run("compare", "missing.npy")
    assert missing.returncode == 1 and missing.stdout == ""
    assert missing.stderr == "mxkern: error: missing.npy: No such file or directory\n"


def test_cmake_dir():
    finished = run("--cmake-dir")
    if finished.returncode == 0:
        assert os.path.isfile(os.path.join(finished.stdout.strip(), "mxkernConfig.cmake"))
    else:  # of a build tree
        assert finished.returncode == 1 and finished.stderr.startswith("mxkern: error: cmake_dir:")


def test_info_and_schemes_need_no_numpy():
    program = (
        "import sys; sys.modules['numpy'] = None; from mxkern.cli.main import main; "
        "main(['info']); main(['schemes'])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_a_closed_pipe_is_no_error(checkpoint):
    command = f"{sys.executable} -m mxkern compare {checkpoint} | head -c 10"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert finished.stderr == "" and len(finished.stdout) == 10


def test_a_closed_error_output_is_no_error(checkpoint):
    command = f"{sys.executable} -m mxkern compare {checkpoint} --scheme mxfp4 2>&-"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert finished.returncode == 0 and "mxfp4" in finished.stdout


def test_a_closed_output_is_no_error():
    command = f"{sys.executable} -m mxkern schemes >&-"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert finished.returncode == 0 and finished.stderr == ""

# mxkern/cli/main.py: the command line: info, schemes, table, compare, analyze, convert.
from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from mxkern import _core
from mxkern.cli.signals import ending_signals
from mxkern.values.about import cmake_dir, info
from mxkern.values.scheme import schemes

EPILOG = "mxkern COMMAND --help says more. Errors leave 1, wrong usage 2, Ctrl-C 130."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.cmake_dir:
        options.command = lambda options: print(cmake_dir())
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        with ending_signals():
            options.command(options)
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()
        return 0
    except BrokenPipeError:
        # or the interpreter complains at its end, when it flushes what is left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        _complain(f"error: {_one_line(error)}", error)
        return 1
    except KeyboardInterrupt as error:
        _complain("interrupted", error)
        return 128 + getattr(error, "number", signal.SIGINT)


def _complain(text: str, error: BaseException) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        line = "; ".join([text, *getattr(error, "__notes__", [])])
        print(f"mxkern: {line}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mxkern", description="OCP MX and NVFP4 quantization.", epilog=EPILOG
    )
    parser.add_argument("--version", action="version", version=f"mxkern {_core.version()}")
    parser.add_argument(
        "--cmake-dir", action="store_true", help="where find_package(mxkern) has to look"
    )
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    about = commands.add_parser("info", help="this build and this machine")
    about.set_defaults(command=lambda options: print(info()))

    table = commands.add_parser("schemes", help="the table of schemes")
    table.set_defaults(command=lambda options: print(schemes))

    _add_table(commands)
    _add_compare(commands)
    _add_analyze(commands)
    _add_convert(commands)
    return parser


def _add_table(commands: Any) -> None:
    codes = commands.add_parser(
        "table",
        help="every code of an element format, its bits and its value",
        description="Prints every code of an element format with its bits and the value that it "
        "stands for, before block scales.",
    )
    codes.add_argument(
        "format",
        metavar="FORMAT",
        help="e4m3, e5m2, e3m2, e2m3, e2m1 or int8; any other eXmY of X exponent and Y mantissa "
        "bits, as e3m4; ueXmY without a sign, intN, uintN; or a scheme, whose elements are shown",
    )
    codes.add_argument("--plot", metavar="PICTURE", help="write a picture, such as out.png")
    codes.add_argument("--csv", metavar="TABLE", help="write the table, such as out.csv")
    codes.set_defaults(command=_table)


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="the error of every scheme on the tensors of a file",
        description="Quantizes the tensors of a file in every scheme and scale rule and shows what "
        "that does to their values, as if they were one tensor: bits per element with scales, "
        "signal to quantization noise, relative root mean square error, largest error, shares of "
        "elements cut off at the largest value and flushed to zero.",
    )
    compare.add_argument(
        "file",
        metavar="FILE",
        help="a .safetensors or .npy file, or the .safetensors.index.json of a model in several "
        "files; float64 in it is rounded to float32, and what is beyond that becomes infinite",
    )
    compare.add_argument(
        "--tensor",
        metavar="REGEX",
        help="only tensors whose name has a match, vectors too; without it every matrix of a "
        ".safetensors file, but no vectors, and the array of a .npy file, which may be one",
    )
    compare.add_argument(
        "--scheme",
        action="append",
        metavar="NAME",
        help=f"one of {', '.join(schemes.names)}; may be repeated; without it all",
    )
    compare.add_argument(
        "--rule",
        action="append",
        metavar="NAME",
        help="scale rule of the MX schemes: rceil, floor, ceil, even; may be repeated; without "
        "it all",
    )
    compare.add_argument(
        "--threshold",
        metavar="ERROR",
        help="the least SQNR, as 25dB, or the largest relative error (RMSE), as 0.05 or 5%%; "
        "prints the narrowest of the schemes that each tensor bears",
    )
    compare.add_argument("--per-tensor", action="store_true", help="one table for each tensor too")
    compare.add_argument(
        "--plot", metavar="PICTURE", help="write a picture of error against bits, such as out.png"
    )
    compare.add_argument(
        "--csv",
        metavar="TABLE",
        help="write the figures, with --per-tensor those of each tensor too, such as out.csv",
    )
    compare.set_defaults(command=_compare)


def _add_analyze(commands: Any) -> None:
    analyze = commands.add_parser(
        "analyze",
        help="what one scheme does to the blocks of a tensor of a file",
        description="Quantizes a tensor of a file in one scheme and shows what that does to it: "
        "signal to quantization noise, largest error, shares of elements cut off and flushed to "
        "zero, bits that the codes use (their entropy), and how many blocks have which scale.",
    )
    analyze.add_argument(
        "file",
        metavar="FILE",
        help="a .safetensors or .npy file, or the .safetensors.index.json of a model in several "
        "files; float64 in it is rounded to float32",
    )
    analyze.add_argument(
        "--tensor",
        metavar="NAME",
        help="the tensor's name, or a regular expression that no other name has a match for; "
        "without it the one of the file",
    )
    analyze.add_argument(
        "--scheme", required=True, metavar="NAME", help=f"one of {', '.join(schemes.names)}"
    )
    analyze.add_argument(
        "--rule",
        metavar="NAME",
        help="scale rule of the MX schemes: rceil, floor, ceil, even; without it rceil",
    )
    analyze.add_argument(
        "--plot", metavar="PICTURE", help="write a picture of the blocks, such as out.png"
    )
    analyze.add_argument(
        "--csv", metavar="TABLE", help="write the figures of each block, such as out.csv"
    )
    analyze.set_defaults(command=_analyze)


def _add_convert(commands: Any) -> None:
    convert = commands.add_parser(
        "convert",
        help="a model with quantized weights",
        description="Writes the checkpoint of a model whose linear layers have quantized weights, "
        "as compressed-tensors stores them and transformers loads them. Embeddings, norms, "
        "routers, vision towers and lm_head stay as they are. Of a gpt-oss model mxfp4 quantizes "
        "the experts, as it was published.",
    )
    convert.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder with config.json, and model.safetensors or the files of "
        "model.safetensors.index.json",
    )
    convert.add_argument("target", metavar="TARGET", help="a folder to make, or an empty one")
    convert.add_argument(
        "--scheme", required=True, metavar="NAME", help="nvfp4, mxfp4, mxfp6 or mxfp8"
    )
    convert.add_argument(
        "--rule",
        default="rceil",
        metavar="NAME",
        help="scale rule of the MX schemes: rceil, floor, ceil, even; without it rceil",
    )
    convert.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="REGEX",
        help="modules whose name has a match stay as they are; may be repeated",
    )
    convert.add_argument(
        "--activations",
        metavar="NAME",
        help="what programs shall quantize the layers' inputs to: mxfp8 beside mxfp8 and mxfp6, "
        "mxfp4 beside mxfp4; without it nothing",
    )
    convert.add_argument(
        "--experts",
        action="store_true",
        help="nvfp4 and mxfp8 quantize experts too, for other programs than transformers, which "
        "does not load them right; mxfp4 and mxfp6 do so without it",
    )
    again = convert.add_mutually_exclusive_group()
    again.add_argument(
        "--resume",
        action="store_true",
        help="go on where a conversion of the same source and options ended early: the files in "
        "TARGET that are finished stay, as its mxkern-convert.json lists them",
    )
    again.add_argument(
        "--force",
        action="store_true",
        help="replace an earlier conversion in TARGET, which may hold nothing else",
    )
    convert.add_argument(
        "--dry-run",
        action="store_true",
        help="write nothing; print the files that would be written, their bytes, and what loads "
        "the model",
    )
    convert.set_defaults(command=_convert)


def _compare(options: argparse.Namespace) -> None:
    # NumPy and the files are only needed here.
    from mxkern.analysis.file_comparison import compare_file

    compare_file(
        options.file,
        pattern=options.tensor,
        schemes=options.scheme,
        rules=options.rule,
        per_tensor=options.per_tensor,
        plot=options.plot,
        csv_file=options.csv,
        threshold=options.threshold,
    )


def _analyze(options: argparse.Namespace) -> None:
    from mxkern.analysis.file_analysis import analyze_file

    analyze_file(
        options.file,
        tensor=options.tensor,
        scheme=options.scheme,
        rule=options.rule,
        plot=options.plot,
        csv_file=options.csv,
    )


def _table(options: argparse.Namespace) -> None:
    from mxkern.analysis.file_analysis import print_table

    print_table(options.format, plot=options.plot, csv_file=options.csv)


def _convert(options: argparse.Namespace) -> None:
    from mxkern.checkpoints.convert import convert_checkpoint

    done = convert_checkpoint(
        options.source,
        options.target,
        options.scheme,
        scale_rule=options.rule,
        ignore=options.ignore,
        activations=options.activations,
        experts=options.experts,
        resume=options.resume,
        force=options.force,
        dry_run=options.dry_run,
    )
    print(done)


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError) and not str(error):
        return "there is not enough memory"
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())

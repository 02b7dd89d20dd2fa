"""Commands and their options.

Functions here read options, call the other modules and print. Torch, scikit-learn and
pyarrow load inside them, so that help is there at once. Tables and JSON go to standard
output, everything else to standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from enum import StrEnum
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sknimo import __version__
from sknimo.cli._errors import guard, say

if TYPE_CHECKING:
    from sknimo.cli._fit import Rows
    from sknimo.cli._tables import TableReader

T = TypeVar("T")

app = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Linear models whose coefficients a neural network bends, row by row.",
    epilog="Tables are CSV, TSV or Parquet, each also gzipped; - stands for standard "
    "input or output.",
)


class Family(StrEnum):
    """Choices of --family."""

    AUTO = "auto"
    GAUSSIAN = "gaussian"
    BINOMIAL = "binomial"
    POISSON = "poisson"
    GAMMA = "gamma"


class Basis(StrEnum):
    """Choices of --basis."""

    LINEAR = "linear"
    POLY2 = "poly2"
    SPLINE = "spline"
    AUTO = "auto"


class Missing(StrEnum):
    """Choices of --missing."""

    ERROR = "error"
    INDICATOR = "indicator"


class Unknown(StrEnum):
    """Choices of --unknown."""

    ERROR = "error"
    REFERENCE = "reference"


class Format(StrEnum):
    """Choices of --format."""

    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"
    JSONL = "jsonl"


class What(StrEnum):
    """Choices of --what."""

    CONTRIBUTIONS = "contributions"
    LOCAL_COEFFICIENTS = "local-coefficients"
    LOCAL_EFFECTS = "local-effects"
    ALL = "all"


class Method(StrEnum):
    """Choices of --method."""

    MIN_ENERGY = "min_energy"
    NATIVE = "native"
    INTEGRATED_GRADIENTS = "integrated_gradients"
    SHAPLEY = "shapley"


ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A saved model.")]
DataFile = Annotated[
    str, typer.Argument(metavar="DATA", help="A table; - reads standard input.")
]
Target = Annotated[
    str, typer.Option("--target", "-t", metavar="COLUMN", help="What to predict.")
]
Weight = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Weights of the rows.")
]
Offset = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Known part of the linear predictor, such as a log exposure.",
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Where to write; - is standard output."
    ),
]
OutputFormat = Annotated[
    Format | None,
    typer.Option("--format", help="Format of the output, else by its ending."),
]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="CHARACTER", help="Between cells, else found in the header."),
]
Encoding = Annotated[str, typer.Option(metavar="NAME", help="Encoding of text.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sknimo {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Linear models whose coefficients a neural network bends, row by row."""


@app.command()
@guard
def fit(
    data: DataFile,
    target: Target,
    family: Annotated[
        Family,
        typer.Option(
            help="Distribution of the target; auto takes binomial for text and for two "
            "values, else gaussian."
        ),
    ] = Family.AUTO,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="FILE", help="Save it here.")
    ] = None,
    report: Annotated[
        str | None,
        typer.Option("--report", "-r", metavar="FILE", help="Write an HTML report."),
    ] = None,
    test: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Hold out this share of the rows to judge the model."
        ),
    ] = None,
    weight: Weight = None,
    offset: Offset = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMNS", help="Leave out; repeat or part by commas."),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS", help="Numbers that stand for categories, as text does."
        ),
    ] = None,
    basis: Annotated[
        Basis, typer.Option(help="How numbers enter: lines, parabolas, curves.")
    ] = Basis.LINEAR,
    missing: Annotated[
        Missing,
        typer.Option(help="Refuse missing cells or give them a coefficient."),
    ] = Missing.ERROR,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows with missing cells.")
    ] = False,
    unknown: Annotated[
        Unknown,
        typer.Option(help="At prediction, refuse new levels or take the baseline."),
    ] = Unknown.ERROR,
    fixed: Annotated[
        bool,
        typer.Option("--fixed", help="Penalties set by hand (--set) instead of found."),
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any other parameter of the estimator."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Governs everything random.")] = 0,
    max_time: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Begin no further restart after this."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes; the answer does not change.")
    ] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit a model to a table and print what it found."""
    from sknimo.cli import _fit
    from sknimo.cli._output import check_output, print_json
    from sknimo.cli._tables import TableReader, TextFormat

    if fixed and (max_time is not None or jobs is not None):
        raise typer.BadParameter(
            "--max-time and --jobs belong to the search, not to --fixed."
        )
    for path in (model, report):
        if path is not None:
            check_output(path)
    with TableReader(data, TextFormat(delimiter, encoding)) as reader:
        table, source = reader.read(), reader.name
    names = table.column_names
    roles = _fit.Roles(
        target=target,
        weight=weight,
        offset=offset,
        drop=_fit.split_names(drop or (), names),
        categorical=_fit.split_names(categorical or (), names),
    )
    rows = _fit.read_roles(table, source, roles)
    if drop_missing:
        n_before = len(rows.y)
        rows = _fit.drop_missing(rows)
        if len(rows.y) < n_before and not quiet:
            say(f"left out {n_before - len(rows.y)} rows with missing cells.")
    chosen = _fit.find_family(rows.y, family.value)
    if family is Family.AUTO and not quiet:
        say(f"{chosen} family, judging by column {target!r} (--family).")
    settings: dict[str, Any] = {
        "basis": basis.value,
        "missing": missing.value,
        "handle_unknown": unknown.value,
        "random_state": seed,
        "verbose": not quiet and sys.stderr.isatty(),
    }
    if roles.categorical:
        settings["categorical"] = list(roles.categorical)
    if not fixed:
        settings |= {"max_time": max_time, "n_jobs": jobs}
    settings |= _fit.read_settings(setting or ())
    est = _fit.make_estimator(chosen, fixed, settings)
    if chosen == "binomial":
        rows = _fit.with_labels(rows)
    held_out = None
    if test is not None:
        rows, held_out = _fit.hold_out(rows, test, seed)
    begin = perf_counter()
    _fit.fit_rows(est, rows)
    seconds = perf_counter() - begin
    judged = None if held_out is None else _fit.judge(est, held_out)
    if model is not None:
        est.save(model)
    if report is not None:
        _write_report(est, report, rows, held_out)
    if json:
        print_json(
            {
                **_describe(est),
                "held_out": judged,
                "seconds": round(seconds, 3),
                "model_file": model,
                "report_file": report,
            }
        )
        return
    print(est.summary())
    if judged is not None and held_out is not None:
        print(f"\nOn {len(held_out.y)} rows held out:")
        for name, value in judged.items():
            print(f"  {name.replace('_', ' '):24} {value:.4g}")
    print()
    print(f"Fitted {len(rows.y)} rows in {seconds:.1f} s.")
    if model is not None:
        print(f"Model saved to {model}; `sknimo predict {model} DATA` uses it.")
    if report is not None:
        print(f"Report written to {report}.")
    if model is None and report is None:
        print("Nothing was saved; --model FILE and --report FILE would.")


@app.command()
@guard
def predict(
    model: ModelFile,
    data: DataFile,
    output: Output = "-",
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMNS", help="Columns of the data to copy."),
    ] = None,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Copy all columns of the data.")
    ] = False,
    offset: Offset = None,
    output_format: OutputFormat = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict every row of a table."""
    from sknimo.cli import _apply
    from sknimo.cli._fit import split_names
    from sknimo.cli._tables import TableReader, TextFormat

    kind = _output_kind(output, output_format, json)
    est = _load(model)
    with TableReader(data, TextFormat(delimiter, encoding)) as reader:
        found = reader.schema.names
        kept = list(found) if keep_all else list(split_names(keep or (), found))
        columns = _apply.find_columns(est, reader)
        more = [*kept, *([offset] if offset else [])]
        parts = _apply.read_parts(est, reader, columns, more)
        tables = (
            _apply.keep_columns(
                part, kept, _apply.predict_part(est, part, columns, offset)
            )
            for part in parts
        )
        n_rows = _write_tables(tables, reader, output, kind, quiet)
    _report_output(output, n_rows, "predicted", json, quiet)


@app.command()
@guard
def explain(
    model: ModelFile,
    data: DataFile,
    output: Output = "-",
    what: Annotated[
        What, typer.Option(help="What to write of every feature.")
    ] = What.CONTRIBUTIONS,
    long: Annotated[
        bool,
        typer.Option(
            "--long/--wide", help="One line per row and feature, or one per row."
        ),
    ] = False,
    row: Annotated[
        list[int] | None,
        typer.Option(metavar="NUMBER", help="Show this row, from 1; may be repeated."),
    ] = None,
    method: Annotated[
        Method, typer.Option(help="How contributions are shared out.")
    ] = Method.MIN_ENERGY,
    offset: Offset = None,
    output_format: OutputFormat = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Explain the prediction of every row: contributions, coefficients, effects."""
    from sknimo.cli import _apply
    from sknimo.cli._tables import TableReader, TextFormat

    kind = _output_kind(output, output_format, json)
    est = _load(model)
    with TableReader(data, TextFormat(delimiter, encoding)) as reader:
        columns = _apply.find_columns(est, reader)
        more = [offset] if offset else []
        parts = _apply.read_parts(est, reader, columns, more)
        explained = (
            (part, _apply.explain_part(est, part, columns, offset, method.value))
            for part in parts
        )
        if row:
            from sknimo.cli._show import show_rows

            show_rows(explained, columns, row, as_json=json)
            return
        make = _apply.explain_long if long else _apply.explain_wide
        tables = (make(found, part, columns, what.value) for part, found in explained)
        n_rows = _write_tables(tables, reader, output, kind, quiet)
    _report_output(output, n_rows, "written", json, quiet)


@app.command()
@guard
def report(
    model: ModelFile,
    data: DataFile,
    target: Target,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write.")
    ] = "report.html",
    test: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A table of rows that the model has not seen."
        ),
    ] = None,
    weight: Weight = None,
    offset: Offset = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a report about a saved model as one HTML file."""
    from sknimo.cli import _apply
    from sknimo.cli._output import check_output, print_json
    from sknimo.cli._tables import TextFormat

    check_output(output)
    est = _load(model)
    text = TextFormat(delimiter, encoding)
    rows = _apply.read_known(est, data, text, target, weight, offset)
    held_out = None
    if test is not None:
        held_out = _apply.read_known(est, test, text, target, weight, offset)
    _write_report(est, output, rows, held_out)
    if json:
        print_json({"report_file": output, "rows": len(rows.y)})
    elif not quiet:
        print(f"Report written to {output}.")


@app.command()
@guard
def info(model: ModelFile, json: Json = False, debug: Debug = False) -> None:
    """Show what a saved model holds."""
    from sknimo.cli._output import print_json
    from sknimo.cli._show import show_model

    est = _load(model)
    facts = {"file": model, "bytes": os.path.getsize(model), **_describe(est)}
    if json:
        print_json(facts)
    else:
        show_model(est, facts)


@app.command()
@guard
def export(
    model: ModelFile,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write.")
    ],
    float32: Annotated[
        bool, typer.Option("--float32", help="Single precision in and out.")
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Export a saved model as an ONNX graph that predicts and explains."""
    from sknimo.cli._output import check_output

    check_output(output)
    _load(model).to_onnx(output, dtype="float32" if float32 else "float64")
    if not quiet:
        print(f"ONNX graph written to {output} ({os.path.getsize(output)} bytes).")


@app.command()
@guard
def demo(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Report to write.")
    ] = "report.html",
    seed: Annotated[int, typer.Option(help="Governs everything random.")] = 0,
    debug: Debug = False,
) -> None:
    """Fit simulated data with a known truth, compare, and write a report."""
    from sknimo.cli._output import check_output
    from sknimo.cli.demo import run_demo

    check_output(output)
    run_demo(output, seed)


def _load(path: str) -> Any:
    from sknimo.estimators import load

    return load(path)


def _write_report(est: Any, path: str, rows: Rows, held_out: Rows | None) -> None:
    from sknimo.cli._errors import count_rows

    test: dict[str, Any] = {}
    if held_out is not None:
        test = {
            "X_test": held_out.X,
            "y_test": held_out.y,
            "sample_weight_test": held_out.weight,
            "offset_test": held_out.offset,
        }
    with count_rows(rows.place):
        est.report(
            path,
            rows.X,
            rows.y,
            sample_weight=rows.weight,
            offset=rows.offset,
            **test,
        )


def _describe(est: Any) -> dict[str, Any]:
    from sknimo.cli._show import describe_model

    return describe_model(est)


def _output_kind(output: str, given: Format | None, json: bool) -> Any:
    from sknimo.cli._output import check_output, choose_format

    check_output(output)
    if given is None and json and output == "-":
        return "jsonl"
    return choose_format(output, None if given is None else given.value)


def _write_tables(
    tables: Iterable[Any], reader: TableReader, output: str, kind: Any, quiet: bool
) -> int:
    """Write tables one after another, with a bar on a terminal; returns the rows."""
    from sknimo.cli._output import open_table
    from sknimo.cli._show import follow

    n_rows = 0
    with open_table(output, kind) as writer:
        for table in follow(tables, reader, quiet or output == "-"):
            writer.write(table)
            n_rows += len(table)
    return n_rows


def _report_output(
    output: str, n_rows: int, done: str, json: bool, quiet: bool
) -> None:
    from sknimo.cli._output import print_json

    if output == "-":
        return
    if json:
        print_json({"output_file": output, "rows": n_rows})
    elif not quiet:
        say(f"{n_rows} rows {done} to {output}.")

"""The commands.

Functions here read options, call the other modules and print. Torch, scikit-learn and
pyarrow load inside them, so that help is there at once. Tables and JSON go to standard
output, remarks to standard error.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sknimo.cli import _options as opt
from sknimo.cli._errors import UserError, guard, say
from sknimo.version import VERSION

if TYPE_CHECKING:
    from sknimo.cli._apply import FeatureColumns
    from sknimo.cli._fit import Fitted, Request
    from sknimo.cli._tables import TableReader, TextFormat
    from sknimo.ranks import Ranks

T = TypeVar("T")


def reads_text(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command the options of how text is read; it takes them as `text`."""

    @functools.wraps(command)
    def run(
        *args: Any,
        delimiter: str | None,
        encoding: str,
        decimal: str,
        thousands: str | None,
        **kwargs: Any,
    ) -> T:
        from sknimo.cli._numbers import Marks
        from sknimo.cli._tables import TextFormat

        text = TextFormat(delimiter, encoding, Marks(decimal, thousands or ""))
        return command(*args, text=text, **kwargs)

    own = inspect.signature(command)
    # Annotations are names of this module's `opt`, which a new signature must resolve.
    kept = [
        each.replace(annotation=getattr(opt, each.annotation.removeprefix("opt.")))
        for name, each in own.parameters.items()
        if name != "text"
    ]
    more = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
        )
        for name, (kind, default) in opt.TEXT_OPTIONS.items()
    ]
    every: Any = run
    every.__signature__ = own.replace(parameters=kept + more)
    every.__annotations__ = {each.name: each.annotation for each in kept + more}
    return run


app = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Tables are CSV, TSV, Parquet (each also gzipped) or Excel; - stands for "
    "standard input or output.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sknimo {VERSION}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Linear models whose coefficients a neural network bends, row by row."""


@app.command()
@guard
@reads_text
def fit(
    text: TextFormat,
    data: opt.DataFile,
    target: opt.TargetOrTime = None,
    time: opt.TimeOption = None,
    event: opt.EventOption = None,
    model: opt.ModelOption = None,
    report: opt.ReportOption = None,
    test: opt.TestRows = None,
    weight: opt.WeightOption = None,
    offset: opt.OffsetOption = None,
    entry: opt.EntryOption = None,
    strata: opt.StrataOption = None,
    drop: opt.DropOption = None,
    categorical: opt.CategoricalOption = None,
    numeric: opt.NumericOption = None,
    family: opt.FamilyOption = opt.FamilyChoice.AUTO,
    basis: opt.BasisOption = None,
    missing: opt.MissingOption = opt.MissingChoice.ERROR,
    drop_missing: opt.DropMissingFlag = False,
    unknown: opt.UnknownOption = None,
    fixed: opt.FixedFlag = False,
    setting: opt.SettingOption = None,
    seed: opt.SeedOption = 0,
    max_time: opt.MaxTimeOption = None,
    jobs: opt.JobsOption = None,
    memory_budget: opt.BudgetOption = None,
    checkpoint: opt.CheckpointOption = None,
    device: opt.DeviceOption = opt.DeviceChoice.AUTO,
    json: opt.JsonFlag = False,
    quiet: opt.QuietFlag = False,
    verbose: opt.VerboseFlag = False,
    debug: opt.DebugFlag = False,
) -> None:
    """Fit a model to a table and print what it found."""
    from sknimo.cli import _apply, _fit
    from sknimo.ranks import join_ranks

    if fixed and (max_time, jobs) != (None, None):
        raise typer.BadParameter("--max-time and --jobs have no meaning with --fixed.")
    _check_outputs(model, report)
    share, test_file = _fit.read_test(test)
    own: dict[str, Any] = {"weight": weight, "offset": offset, "entry": entry}
    own |= {"strata": strata, "drop": drop or (), "categorical": categorical or ()}
    roles = _fit.name_roles(target, time, event=event, **own)
    budget = None if memory_budget is None else _fit.read_size(memory_budget)
    options: dict[str, Any] = {"verbose": False if quiet else verbose or "auto"}
    options |= {"missing": missing, "handle_unknown": unknown, "basis": basis}
    options |= {"random_state": seed, "max_time": max_time, "n_jobs": jobs}
    options |= {"device": device, "memory_budget": budget, "checkpoint": checkpoint}
    settings = _fit.read_settings(options, setting or ())
    how: dict[str, Any] = {"family": family.value, "fixed": fixed, "seed": seed}
    how |= {"skip_missing": drop_missing, "test": share, "wants_rows": bool(report)}
    read = replace(text, numeric=numeric or ())
    request = _fit.Request(data, read, roles, settings=settings, **how)
    if test_file is not None:
        _apply.check_test(test_file, read, roles)
    with join_ranks(device.value) as ranks:
        fitted = _fit_request(request, budget, ranks, _ignore if quiet else say)
    if ranks.first:  # the first process speaks for all
        if test_file is not None:
            fitted = _apply.judge_by(fitted, test_file, read, roles, drop_missing)
        _conclude(fitted, model, report, checkpoint, json)


@app.command()
@guard
@reads_text
def predict(
    text: TextFormat,
    model: opt.ModelFile,
    data: opt.DataFile,
    output: opt.TableOutput = "-",
    output_format: opt.FormatOption = None,
    keep: opt.KeepOption = None,
    keep_all: opt.KeepAllFlag = False,
    at: opt.AtOption = None,
    raw_text: opt.RawTextFlag = False,
    offset: opt.OffsetOption = None,
    interval: opt.IntervalOption = None,
    unknown: opt.UnknownOption = None,
    json: opt.JsonFlag = False,
    quiet: opt.QuietFlag = False,
    debug: opt.DebugFlag = False,
) -> None:
    """Predict every row of a table."""
    from sknimo.cli import _apply
    from sknimo.cli._far import FarRows
    from sknimo.cli._tables import split_names

    far = FarRows()
    kind = _output_kind(output, output_format, json)
    with _open(model, data, text, unknown) as (est, reader, columns):
        found = reader.schema.names
        kept = list(found) if keep_all else list(split_names(keep or (), found))
        tables = (
            _apply.predict_part(
                est, part, columns, offset, kept, far, at or (), interval
            )
            for part in _apply.read_parts(est, reader, columns, [*kept, offset])
        )
        n_rows = _write_tables(tables, reader, output, kind, raw_text, quiet)
    far.tell()
    _tell_output(output, n_rows, "predictions", json, quiet, far_rows=far.n_far)


@app.command()
@guard
@reads_text
def explain(
    text: TextFormat,
    model: opt.ModelFile,
    data: opt.DataFile,
    what: opt.WhatOption = opt.WhatChoice.CONTRIBUTIONS,
    long: opt.LongFlag = False,
    output: opt.TableOutput = "-",
    output_format: opt.FormatOption = None,
    raw_text: opt.RawTextFlag = False,
    row: opt.RowOption = None,
    method: opt.MethodOption = opt.MethodChoice.MIN_ENERGY,
    class_: opt.ClassOption = None,
    offset: opt.OffsetOption = None,
    unknown: opt.UnknownOption = None,
    json: opt.JsonFlag = False,
    quiet: opt.QuietFlag = False,
    debug: opt.DebugFlag = False,
) -> None:
    """Explain every prediction: contributions, local coefficients, local effects."""
    from sknimo.cli import _apply
    from sknimo.cli._show import show_rows

    kind = _output_kind(output, output_format, json)
    with _open(model, data, text, unknown) as (est, reader, columns):
        est = _apply.choose_class(est, class_)
        explained = (
            (part, _apply.explain_part(est, part, columns, offset, method.value))
            for part in _apply.read_parts(est, reader, columns, [offset])
        )
        if row:
            show_rows(est, explained, columns, row, as_json=json)
            return
        tables = (
            _apply.explain_long(explanation, part, columns, what.value)
            if long
            else _apply.explain_wide(est, explanation, what.value)
            for part, explanation in explained
        )
        n_rows = _write_tables(tables, reader, output, kind, raw_text, quiet)
    _tell_output(output, n_rows, "lines", json, quiet)


@app.command()
@guard
@reads_text
def report(
    text: TextFormat,
    model: opt.ModelFile,
    data: opt.DataFile,
    target: opt.TargetOrTime = None,
    time: opt.TimeOption = None,
    event: opt.EventOption = None,
    output: opt.PageOutput = "report.html",
    test: opt.TestFile = None,
    class_: opt.ClassOption = None,
    weight: opt.WeightOption = None,
    offset: opt.OffsetOption = None,
    entry: opt.EntryOption = None,
    strata: opt.StrataOption = None,
    json: opt.JsonFlag = False,
    quiet: opt.QuietFlag = False,
    debug: opt.DebugFlag = False,
) -> None:
    """Write a report about a saved model as one HTML file."""
    from sknimo.cli import _apply
    from sknimo.cli._fit import name_roles, read_test, write_report
    from sknimo.cli._output import print_json

    _check_outputs(output)
    if read_test(test)[0] is not None:
        raise UserError(
            "report --test needs a table: which rows the model has not seen is not "
            "part of its file. `sknimo fit --test SHARE --report FILE` knows."
        )
    est = _load(model)
    own = {"weight": weight, "offset": offset, "entry": entry, "strata": strata}
    roles = name_roles(target, time, event=event, **own)
    rows = _apply.read_known(est, data, text, roles)
    held_out = None if test is None else _apply.read_known(est, test, text, roles)
    if class_ is not None:
        est = _apply.choose_class(est, class_)
    write_report(est, output, rows, held_out)
    if json:
        print_json({"report_file": output, "rows": len(rows.y)})
    elif not quiet:
        print(f"Report written to {output}.")


@app.command()
@guard
@reads_text
def compare(
    text: TextFormat,
    model: opt.ModelFile,
    other: opt.OtherFile,
    data: opt.DataFile,
    target: opt.TargetOption,
    output: opt.PageOption = None,
    weight: opt.WeightOption = None,
    offset: opt.OffsetOption = None,
    json: opt.JsonFlag = False,
    quiet: opt.QuietFlag = False,
    debug: opt.DebugFlag = False,
) -> None:
    """Compare two saved models on rows with a known target; one page."""
    from sknimo.cli import _compare
    from sknimo.cli._fit import ColumnRoles
    from sknimo.cli._output import open_output, print_json

    _check_outputs(output)
    if data == "-":
        raise UserError("Both models read the table; name a file instead of -.")
    roles = ColumnRoles(target, weight, offset)
    pair = _load(model), _load(other)
    _compare.check_pair(*pair)
    names = _compare.short_names(model, other)
    one, two = (
        _compare.assess(est, name, data, text, roles)
        for est, name in zip(pair, names, strict=True)
    )
    verdict = _compare.give_verdict(one, two)
    if output is not None:
        page = _compare.build_page(one, two, data)
        with open_output(output) as file:
            file.write(page.encode())
    if json:
        measures = {each.name: each.judged.describe() for each in (one, two)}
        print_json({**measures, "verdict": verdict, "page": output})
        return
    print(_compare.show_table(_compare.list_measures(one, two)), verdict, sep="\n\n")
    if not quiet:
        say("rows that one of the models was fitted to favour it.")
    if output is not None and not quiet:
        print(f"Page written to {output}.")


@app.command()
@guard
def info(
    model: opt.ModelFile, json: opt.JsonFlag = False, debug: opt.DebugFlag = False
) -> None:
    """Show what a saved model holds and which columns it needs."""
    from sknimo.cli._describe import describe_model
    from sknimo.cli._output import print_json
    from sknimo.cli._show import show_model

    est = _load(model)
    facts = {"file": model, "bytes": os.path.getsize(model), **describe_model(est)}
    if json:
        print_json(facts)
    else:
        print(show_model(est, facts))


@app.command()
@guard
def export(
    model: opt.ModelFile,
    output: opt.PageOutput,
    export_format: opt.ExportOption = None,
    table: opt.TableName = "data",
    data: opt.NearOption = None,
    float32: opt.Float32Flag = False,
    quiet: opt.QuietFlag = False,
    debug: opt.DebugFlag = False,
) -> None:
    """Export a saved model: an ONNX graph, an SQL query or a card of points."""
    from sknimo.cli import _export

    _check_outputs(output)
    given = None if export_format is None else export_format.value
    kind = _export.choose_export(output, given)
    said = _export.write_export(_load(model), output, kind, table, data, float32)
    if not quiet:
        print(said)


@app.command()
@guard
def demo(
    output: opt.PageOutput = "report.html",
    seed: opt.SeedOption = 0,
    debug: opt.DebugFlag = False,
) -> None:
    """Fit simulated data with a known truth, compare, and write a report."""
    from sknimo.cli.demo import run_demo

    _check_outputs(output)
    run_demo(output, seed)


def _load(path: str) -> Any:
    from sknimo.estimators import load

    return load(path)


def _check_outputs(*paths: str | None) -> None:
    """Refuse what cannot be written, before any work is done."""
    from sknimo.cli._output import check_output

    for path in filter(None, paths):
        check_output(path)


@contextmanager
def _open(
    model: str, data: str, text: TextFormat, unknown: opt.UnknownChoice | None
) -> Iterator[tuple[Any, TableReader, FeatureColumns]]:
    """A saved model and the table that it is applied to."""
    from sknimo.cli._apply import find_columns
    from sknimo.cli._tables import TableReader

    est = _load(model)
    if unknown is not None:
        est.set_params(handle_unknown=unknown.value)
    with TableReader(data, text) as reader:
        yield est, reader, find_columns(est, reader)


def _fit_request(
    request: Request, budget: float | None, ranks: Ranks, remark: Any
) -> Fitted:
    """Fit a table that is held, or one that is read part by part."""
    import warnings

    from sknimo.cli import _fit, _stream
    from sknimo.cli._tables import TableReader

    if not ranks.first:
        warnings.simplefilter("ignore")
        remark = _ignore
    source = _stream.find_source(request.data, request.text, budget, ranks)
    if source is not None:
        if request.roles.event is not None:
            raise UserError(
                "Risk sets need the times of all rows at once: give a larger "
                "--memory-budget, and one process."
            )
        return _stream.fit_stream(source, request, ranks, remark)
    with TableReader(request.data, request.text) as reader:
        table, name = reader.read(), reader.name
        if codes := ", ".join(reader.codes):
            remark(f"codes such as 01234, taken for categories (--numeric): {codes}")
    return _fit.fit_table(table, name, request, remark)


def _conclude(
    fitted: Fitted,
    model: str | None,
    report: str | None,
    checkpoint: str | None,
    json: bool,
) -> None:
    """Write the files that were asked for and print what was found."""
    from sknimo.checkpoint import Checkpoint
    from sknimo.cli import _fit
    from sknimo.cli._output import print_json

    if model is not None:
        fitted.est.save(model)
    if report is not None:
        _fit.write_report(fitted.est, report, fitted.rows, fitted.held_out)
    if checkpoint is not None and model is not None:
        Checkpoint(Path(checkpoint), "").clear()
    if json:
        print_json({**fitted.describe(), "model_file": model, "report_file": report})
        return
    print(fitted.show())
    if model is not None:
        print(f"Model saved to {model}; `sknimo predict {model} DATA` uses it.")
    if report is not None:
        print(f"Report written to {report}.")
    if model is None and report is None:
        print("Nothing was saved; --model FILE and --report FILE would.")


def _ignore(remark: str) -> None:
    """Say nothing."""


def _output_kind(output: str, given: opt.FormatChoice | None, json: bool) -> str:
    from sknimo.cli._output import choose_format

    _check_outputs(output)
    if given is not None:
        return given.value
    return "jsonl" if json and output == "-" else choose_format(output)


def _write_tables(
    tables: Iterable[Any],
    reader: TableReader,
    output: str,
    kind: str,
    raw_text: bool,
    quiet: bool,
) -> int:
    """Write tables one after another, with a bar on a terminal; returns the rows."""
    from sknimo.cli._output import open_table
    from sknimo.cli._show import follow

    n_rows = 0
    with open_table(output, kind, raw_text) as writer:
        for table in follow(tables, reader, quiet or output == "-"):
            writer.write(table)
            n_rows += len(table)
    return n_rows


def _tell_output(
    output: str, n_rows: int, what: str, json: bool, quiet: bool, **more: int
) -> None:
    from sknimo.cli._output import print_json

    if output == "-":
        return
    if json:
        print_json({"output_file": output, "rows": n_rows, **more})
    elif not quiet:
        say(f"{n_rows} {what} written to {output}.")

"""What commands print for people: models, single rows, progress."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from sknimo.cli._apply import FeatureColumns, TablePart, name_prediction
from sknimo.cli._errors import UserError
from sknimo.cli._output import print_json
from sknimo.cli._tables import TableReader

T = TypeVar("T")


def show_model(est: Any, facts: dict[str, Any]) -> str:
    """A saved model as text: file, columns that it needs, coefficient table."""
    lines = [f"{facts['file']}: {facts['class']}, {facts['bytes'] / 1000:.1f} kB"]
    if facts["classes"] is not None:
        *others, last = facts["classes"]
        if len(others) == 1:
            lines.append(f"Predicts the chance of {last} against {others[0]}.")
        else:
            every = ", ".join(map(str, others))
            lines.append(f"Predicts the chances of {every} and {last}.")
    lines += ["", f"It needs {len(facts['features'])} columns:"]
    width = max(len(entry["name"]) for entry in facts["features"])
    for entry in facts["features"]:
        lines.append(f"  {entry['name']:{width}}  {_describe_feature(entry)}")
    return "\n".join([*lines, "", str(est.summary())])


def _describe_feature(entry: dict[str, Any]) -> str:
    if entry["kind"] == "category":
        levels = [repr(level) for level in entry["levels"]]
        more = f", ... ({len(levels)} levels)" if len(levels) > 6 else ""
        text = f"category: {', '.join(levels[:6])}{more}; "
        text += f"baseline {entry['reference']!r}"
    else:
        text, extra = "number", 0
        if "range" in entry:
            low, high = entry["range"]
            if high > low:  # what lies far from zero needs more digits
                extra = int(np.log10(max(-low, high, high - low) / (high - low)))
            text += f" from {low:.{6 + extra}g} to {high:.{6 + extra}g}"
        text += f"; reference {entry['reference']:.{4 + extra}g}"
    return text + ("; may be missing" if entry["may_be_missing"] else "")


def show_rows(
    est: Any,
    explained: Iterable[tuple[TablePart, Any]],
    columns: FeatureColumns,
    rows: Sequence[int],
    as_json: bool,
) -> None:
    """Print the explanation of some rows, which count from one."""
    wanted, found, last = set(rows), {}, 0
    if min(rows) < 1:
        raise UserError(f"Rows count from 1, got {min(rows)}.")
    for part, explanation in explained:
        last = part.first + len(part.table)
        for row in sorted(wanted):
            if part.first < row <= last:
                one = explanation[row - 1 - part.first]
                cells = part.table.slice(row - 1 - part.first, 1)
                found[row] = _describe_row(est, one, row, cells, columns)
        if max(wanted) <= last:
            break
    beyond = wanted - found.keys()
    if beyond:
        raise UserError(f"There is no row {min(beyond)}; the table has {last} rows.")
    if as_json:
        print_json([found[row] for row in rows])
        return
    for row in rows:
        _print_row(found[row])
    print(
        "contribution: what the value adds to the base value. local effect: what one\n"
        "unit more, or a level instead of the baseline, does in this row."
    )


def _describe_row(
    est: Any, one: Any, row: int, cells: Any, columns: FeatureColumns
) -> dict[str, Any]:
    order = np.argsort(-np.abs(one.values[0]), kind="stable")
    predicted = name_prediction(est, one)
    return {
        "row": row,
        **{name: values[:1].tolist()[0] for name, values in predicted.items()},
        "eta": float(one.eta[0]),
        "base_value": one.base_value,
        "offset": float(one.offset[0]),
        "features": [
            {
                "feature": one.names[j],
                "value": cells[columns.features[j]][0].as_py(),
                "contribution": float(one.values[0, j]),
                "local_coef": float(one.local_coef[0, j]),
                "local_effect": float(one.local_effect[0, j]),
            }
            for j in order
        ],
        "note": one.note,
    }


def _print_row(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    prediction, eta = found.get("prediction"), found["eta"]
    chances = {
        name.removeprefix("probability_"): value
        for name, value in found.items()
        if name.startswith("probability_")
    }
    title = f"Row {found['row']}: prediction "
    title += f"{prediction}" if chances or prediction is None else f"{prediction:.5g}"
    if "explained_class" in found:
        title = f"Row {found['row']}: {found['explained_class']} against the mean of "
        title += f"all classes, on the scale of logarithms {eta:.4g}"
    elif chances:
        second, chance = list(chances.items())[1]
        title += f"; probability of {second} is {chance:.3g}, log-odds {eta:.4g}"
    elif prediction != eta:
        title += f", linear predictor {eta:.5g}"
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for name in ("feature", "value", "contribution", "local effect"):
        table.add_column(name, justify="left" if name == "feature" else "right")
    table.add_row("base value", "", f"{found['base_value']:.4g}", "")
    if found["offset"]:
        table.add_row("offset", "", f"{found['offset']:+.4g}", "")
    for entry in found["features"]:
        if entry["contribution"] or entry["local_effect"]:
            table.add_row(
                Text(entry["feature"]),
                Text(_show_value(entry["value"])),
                f"{entry['contribution']:+.4g}",
                f"{entry['local_effect']:+.4g}",
            )
    Console(highlight=False, soft_wrap=True).print(table)
    print()


def _show_value(value: Any) -> str:
    if value is None:
        return "missing"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def follow(tables: Iterable[T], reader: TableReader, quiet: bool) -> Iterator[T]:
    """Pass tables on with a bar on standard error, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield from tables
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(reader.name, total=None)
        for table in tables:
            yield table
            share = reader.progress
            if share is not None:
                progress.update(task, total=1.0, completed=share)

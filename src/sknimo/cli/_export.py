"""Models for other programs: ONNX graphs, SQL queries, cards of points."""

from pathlib import Path
from typing import Any

from sknimo.cli._errors import UserError, count_rows
from sknimo.cli._output import open_output

ENDINGS = {".onnx": "onnx", ".sql": "sql", ".csv": "scorecard", ".md": "scorecard"}


def choose_export(path: str, given: str | None) -> str:
    """What to write, by option or by the ending of the file."""
    ending = Path(path).suffix.lower()
    if given is None and ending not in ENDINGS:
        raise UserError(
            f"The ending of {path} names no export. Use .onnx, .sql, or .csv or .md "
            "for a scorecard, or say --format."
        )
    kind = given or ENDINGS[ending]
    if given is not None and ENDINGS.get(ending, given) != given:
        raise UserError(f"{path} has the ending of another format than {given}.")
    return kind


def write_export(
    est: Any, path: str, kind: str, table: str, data: str | None, float32: bool
) -> str:
    """Write one; returns what is said about it."""
    if kind == "onnx":
        est.to_onnx(path, dtype="float32" if float32 else "float64")
        return f"ONNX graph written to {path}."
    if kind == "sql":
        X = None if data is None else _read_features(est, data)
        with count_rows(0):
            query = est.to_sql(table=table, X=X)
        _write(path, query)
        remark = [line[3:] for line in query.splitlines() if line.startswith("-- ")][1:]
        return "\n".join([f"SQL query written to {path}.", *remark])
    card = est.scorecard()
    _write(path, card.to_csv() if path.lower().endswith(".csv") else card.to_markdown())
    return (
        f"Scorecard written to {path}: 0 to {card.most} points, eta = "
        f"{card.base:.6g} + {card.unit:.6g} x points, at most {card.error:.2g} off."
    )


def _read_features(est: Any, data: str) -> Any:
    from sknimo.cli._apply import find_columns
    from sknimo.cli._tables import TableReader

    with TableReader(data) as reader:
        columns = find_columns(est, reader)
        return columns.select(reader.read(columns.features, columns.types))


def _write(path: str, text: str) -> None:
    with open_output(path) as file:
        file.write(text.encode())

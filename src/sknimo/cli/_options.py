"""Arguments and options, each declared once."""

from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

# Groups of options in help texts.
for_columns = partial(typer.Option, rich_help_panel="Columns")
for_model = partial(typer.Option, rich_help_panel="Model")
for_text = partial(typer.Option, rich_help_panel="Reading text")

FamilyChoice = StrEnum(
    "FamilyChoice",
    [
        "AUTO",
        "GAUSSIAN",
        "BINOMIAL",
        "POISSON",
        "GAMMA",
        "NEGATIVE_BINOMIAL",
        "TWEEDIE",
    ],
)
BasisChoice = StrEnum("BasisChoice", ["LINEAR", "POLY2", "SPLINE", "RAMPS", "AUTO"])
MissingChoice = StrEnum("MissingChoice", ["ERROR", "INDICATOR"])
UnknownChoice = StrEnum("UnknownChoice", ["ERROR", "REFERENCE"])
DeviceChoice = StrEnum("DeviceChoice", ["AUTO", "CPU", "CUDA"])
FormatChoice = StrEnum("FormatChoice", ["CSV", "TSV", "PARQUET", "JSONL"])
WhatChoice = StrEnum(
    "WhatChoice",
    {
        "CONTRIBUTIONS": "contributions",
        "LOCAL_COEFFICIENTS": "local-coefficients",
        "LOCAL_EFFECTS": "local-effects",
        "ALL": "all",
    },
)
MethodChoice = StrEnum(
    "MethodChoice", ["MIN_ENERGY", "NATIVE", "INTEGRATED_GRADIENTS", "SHAPLEY"]
)

ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A saved model.")]
OtherFile = Annotated[str, typer.Argument(metavar="OTHER", help="Another one.")]
DataFile = Annotated[
    str, typer.Argument(metavar="DATA", help="A table; - reads standard input.")
]
TargetOption = Annotated[
    str, typer.Option("--target", "-t", metavar="COLUMN", help="What to predict.")
]
TargetOrTime = Annotated[
    str | None,
    typer.Option("--target", "-t", metavar="COLUMN", help="What to predict."),
]
TimeOption = Annotated[
    str | None,
    typer.Option(
        "--time", metavar="COLUMN", help="Instead of a target: time to an event."
    ),
]
EventOption = Annotated[
    str | None,
    typer.Option(
        "--event",
        metavar="COLUMN",
        help="With --time: 1 where the event happened then, 0 where it was not seen.",
    ),
]

# Where results go.
ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="FILE", help="Save the model here."),
]
ReportOption = Annotated[
    str | None,
    typer.Option("--report", "-r", metavar="FILE", help="Write an HTML report here."),
]
TestRows = Annotated[
    str | None,
    typer.Option(
        "--test",
        metavar="SHARE|FILE",
        help="Judge the model by rows that it has not seen: a share of the table, "
        "such as 0.2, or another table.",
    ),
]
TestFile = Annotated[
    str | None,
    typer.Option(
        "--test", metavar="FILE", help="A table of rows that the model has not seen."
    ),
]
TableOutput = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Where to write; - is standard output."
    ),
]
PageOutput = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Where to write.")
]
PageOption = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write an HTML page here."),
]
FormatOption = Annotated[
    FormatChoice | None,
    typer.Option("--format", help="Format of the output, else by its ending."),
]
RawTextFlag = Annotated[
    bool,
    typer.Option(
        "--raw-text",
        help="Write text as it is, even what a spreadsheet would run as a formula.",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
QuietFlag = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")
]
VerboseFlag = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Progress as lines with times if there is no terminal."
    ),
]
DebugFlag = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]

# What the columns are for.
WeightOption = Annotated[
    str | None, for_columns("--weight", metavar="COLUMN", help="Weights of the rows.")
]
OffsetOption = Annotated[
    str | None,
    for_columns(
        "--offset",
        metavar="COLUMN",
        help="Known part of the linear predictor, such as a log exposure.",
    ),
]
EntryOption = Annotated[
    str | None,
    for_columns(
        "--entry", metavar="COLUMN", help="With --time: when the observation began."
    ),
]
StrataOption = Annotated[
    str | None,
    for_columns(
        "--strata",
        metavar="COLUMN",
        help="With --time: groups with a baseline hazard of their own.",
    ),
]
AtOption = Annotated[
    list[float] | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Of a survival model: also the chance to be without the event then; "
        "repeat the option.",
    ),
]
DropOption = Annotated[
    list[str] | None,
    for_columns(
        "--drop",
        metavar="COLUMNS",
        help="Leave out; repeat the option or part by commas.",
    ),
]
CategoricalOption = Annotated[
    list[str] | None,
    for_columns(
        "--categorical",
        metavar="COLUMNS",
        help="Numbers that stand for categories; text and codes such as 01234 do.",
    ),
]
NumericOption = Annotated[
    list[str] | None,
    for_columns(
        "--numeric", metavar="COLUMNS", help="Codes such as 007 that are numbers."
    ),
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option("--keep", metavar="COLUMNS", help="Columns of the data to copy."),
]
KeepAllFlag = Annotated[
    bool, typer.Option("--keep-all", help="Copy all columns of the data.")
]

# What is fitted.
FamilyOption = Annotated[
    FamilyChoice,
    for_model(
        "--family",
        help="Distribution of the target; auto takes binomial for text and for two "
        "values, else gaussian, and says what else the values suggest.",
    ),
]
BasisOption = Annotated[
    BasisChoice | None,
    for_model(
        "--basis",
        help="How numbers enter: as lines, parabolas, smooth curves or curves of "
        "straight pieces. A search decides by itself among the first three; with "
        "--fixed they are lines unless this says otherwise.",
    ),
]
MissingOption = Annotated[
    MissingChoice,
    for_model("--missing", help="Refuse missing cells, or give them a coefficient."),
]
DropMissingFlag = Annotated[
    bool, for_model("--drop-missing", help="Leave out rows with missing cells.")
]
UnknownOption = Annotated[
    UnknownChoice | None,
    for_model(
        "--unknown",
        help="In predictions, refuse new levels or take them for the baseline.",
    ),
]
IntervalOption = Annotated[
    float | None,
    typer.Option(
        "--interval",
        metavar="LEVEL",
        help="Add an interval for the next observation, such as 0.9; for classes, "
        "which of them it may be.",
    ),
]
FixedFlag = Annotated[
    bool,
    for_model(
        "--fixed", help="Penalties set by hand (--set alpha=0.1) instead of found."
    ),
]
SettingOption = Annotated[
    list[str] | None,
    for_model(
        "--set", metavar="NAME=VALUE", help="Any other parameter of the estimator."
    ),
]
SeedOption = Annotated[int, for_model("--seed", help="Governs everything random.")]
MaxTimeOption = Annotated[
    float | None,
    for_model(
        "--max-time", metavar="SECONDS", help="Begin no further restart after this."
    ),
]
JobsOption = Annotated[
    int | None,
    for_model(
        "--jobs", metavar="NUMBER", help="Processes; the answer does not depend on it."
    ),
]
BudgetOption = Annotated[
    str | None,
    for_model(
        "--memory-budget",
        metavar="SIZE",
        help="Memory for the fit, such as 4GB; larger tables are read part by part.",
    ),
]
CheckpointOption = Annotated[
    str | None,
    for_model(
        "--checkpoint",
        metavar="FOLDER",
        help="Keep the state of the fit here and go on from it; removed once saved.",
    ),
]
DeviceOption = Annotated[DeviceChoice, for_model("--device", help="Where to fit.")]

# How rows are explained.
WhatOption = Annotated[
    WhatChoice, typer.Option("--what", help="What to write of every feature.")
]
LongFlag = Annotated[
    bool,
    typer.Option("--long/--wide", help="One line per row and feature, or per row."),
]
RowOption = Annotated[
    list[int] | None,
    typer.Option(
        "--row",
        metavar="NUMBER",
        help="Only show this row, the first is 1; repeat for more.",
    ),
]
ClassOption = Annotated[
    str | None,
    typer.Option(
        "--class",
        metavar="LABEL",
        help="Of more than two classes, the one to explain.",
    ),
]
MethodOption = Annotated[
    MethodChoice, typer.Option("--method", help="How contributions are shared out.")
]
ExportChoice = StrEnum("ExportChoice", ["ONNX", "SQL", "SCORECARD"])
ExportOption = Annotated[
    ExportChoice | None,
    typer.Option("--format", help="What to write, else by the ending of the file."),
]
TableName = Annotated[
    str,
    typer.Option("--table", metavar="NAME", help="The table that SQL is to score."),
]
NearOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="Rows on which SQL approximates a network by curves, with the error.",
    ),
]
Float32Flag = Annotated[
    bool, typer.Option("--float32", help="Single precision in and out.")
]

# How text is read.
DelimiterOption = Annotated[
    str | None,
    for_text(
        "--delimiter",
        metavar="CHARACTER",
        help="Between cells, else found in the header.",
    ),
]
EncodingOption = Annotated[
    str, for_text("--encoding", metavar="NAME", help="Encoding.")
]
DecimalOption = Annotated[
    str,
    for_text("--decimal", metavar="CHARACTER", help="Decimal point; a comma in 12,5."),
]
ThousandsOption = Annotated[
    str | None,
    for_text(
        "--thousands",
        metavar="CHARACTER",
        help="Between thousands: a comma in 1,234, a point in 1.234,56.",
    ),
]
# The same by name, with their defaults: several commands have them.
TEXT_OPTIONS: dict[str, tuple[Any, str | None]] = {
    "delimiter": (DelimiterOption, None),
    "encoding": (EncodingOption, "utf-8"),
    "decimal": (DecimalOption, "."),
    "thousands": (ThousandsOption, None),
}

"""Arguments and options, each declared once."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer


def takes(
    metavar: str | None = None, panel: str | None = None, **limits: Any
) -> Callable[..., Any]:
    """Options of one kind, by their names and, as the last word, their help."""
    kind = {"metavar": metavar, "rich_help_panel": panel, **limits}

    def option(*names: str) -> Any:
        *flags, told = names
        return typer.Option(*flags, help=told, **kind)

    return option


flag, column, file = takes(), takes("COLUMN"), takes("FILE")
# Groups of options in help texts.
role, roles = takes("COLUMN", "Columns"), takes("COLUMNS", "Columns")
choice = takes(panel="Model")
character = takes("CHARACTER", "Reading text")

FamilyChoice = StrEnum(
    "FamilyChoice", "AUTO GAUSSIAN BINOMIAL POISSON GAMMA NEGATIVE_BINOMIAL TWEEDIE"
)
BasisChoice = StrEnum("BasisChoice", "LINEAR POLY2 SPLINE RAMPS AUTO")
MissingChoice = StrEnum("MissingChoice", "ERROR INDICATOR")
UnknownChoice = StrEnum("UnknownChoice", "ERROR REFERENCE")
DeviceChoice = StrEnum("DeviceChoice", "AUTO CPU CUDA")
FormatChoice = StrEnum("FormatChoice", "CSV TSV PARQUET JSONL")
ExportChoice = StrEnum("ExportChoice", "ONNX SQL SCORECARD")
MethodChoice = StrEnum("MethodChoice", "MIN_ENERGY NATIVE INTEGRATED_GRADIENTS SHAPLEY")
WhatChoice = StrEnum(
    "WhatChoice",
    {
        "CONTRIBUTIONS": "contributions",
        "LOCAL_COEFFICIENTS": "local-coefficients",
        "LOCAL_EFFECTS": "local-effects",
        "ALL": "all",
    },
)

ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A saved model.")]
OtherFile = Annotated[str, typer.Argument(metavar="OTHER", help="Another one.")]
DataFile = Annotated[
    str, typer.Argument(metavar="DATA", help="A table; - reads standard input.")
]
TargetOption = Annotated[str, column("--target", "-t", "What to predict.")]
TargetOrTime = Annotated[str | None, column("--target", "-t", "What to predict.")]
TimeOption = Annotated[
    str | None, column("--time", "Instead of a target: time to an event.")
]
EventOption = Annotated[
    str | None,
    column(
        "--event",
        "With --time: 1 where the event happened then, 0 where it was not seen.",
    ),
]

# Where results go.
ModelOption = Annotated[str | None, file("--model", "-m", "Save the model here.")]
ReportOption = Annotated[
    str | None, file("--report", "-r", "Write an HTML report here.")
]
TestRows = Annotated[
    str | None,
    takes("SHARE|FILE")(
        "--test",
        "Judge the model by rows that it has not seen: a share of the table, such as "
        "0.2, or another table.",
    ),
]
TestFile = Annotated[
    str | None, file("--test", "A table of rows that the model has not seen.")
]
TableOutput = Annotated[
    str, file("--output", "-o", "Where to write; - is standard output.")
]
PageOutput = Annotated[str, file("--output", "-o", "Where to write.")]
PageOption = Annotated[str | None, file("--output", "-o", "Write an HTML page here.")]
FormatOption = Annotated[
    FormatChoice | None, flag("--format", "Format of the output, else by its ending.")
]
RawTextFlag = Annotated[
    bool,
    flag(
        "--raw-text",
        "Write text as it is, even what a spreadsheet would run as a formula.",
    ),
]
JsonFlag = Annotated[bool, flag("--json", "Print JSON instead of text.")]
QuietFlag = Annotated[bool, flag("--quiet", "-q", "No progress and no remarks.")]
VerboseFlag = Annotated[
    bool,
    flag("--verbose", "-v", "Progress as lines with times if there is no terminal."),
]
DebugFlag = Annotated[bool, flag("--debug", "Show tracebacks of errors.")]

# What the columns are for.
WeightOption = Annotated[str | None, role("--weight", "Weights of the rows.")]
OffsetOption = Annotated[
    str | None,
    role("--offset", "Known part of the linear predictor, such as a log exposure."),
]
EntryOption = Annotated[
    str | None, role("--entry", "With --time: when the observation began.")
]
StrataOption = Annotated[
    str | None,
    role("--strata", "With --time: groups with a baseline hazard of their own."),
]
AtOption = Annotated[
    list[float] | None,
    takes("TIME")(
        "--at",
        "Of a survival model: also the chance to be without the event then; repeat "
        "the option.",
    ),
]
DropOption = Annotated[
    list[str] | None, roles("--drop", "Leave out; repeat the option or part by commas.")
]
CategoricalOption = Annotated[
    list[str] | None,
    roles(
        "--categorical",
        "Numbers that stand for categories; text and codes such as 01234 do.",
    ),
]
NumericOption = Annotated[
    list[str] | None, roles("--numeric", "Codes such as 007 that are numbers.")
]
KeepOption = Annotated[
    list[str] | None, takes("COLUMNS")("--keep", "Columns of the data to copy.")
]
KeepAllFlag = Annotated[bool, flag("--keep-all", "Copy all columns of the data.")]

# What is fitted.
FamilyOption = Annotated[
    FamilyChoice,
    choice(
        "--family",
        "Distribution of the target; auto takes binomial for text and for two values, "
        "else gaussian, and says what else the values suggest.",
    ),
]
BasisOption = Annotated[
    BasisChoice | None,
    choice(
        "--basis",
        "How numbers enter: as lines, parabolas, smooth curves or curves of straight "
        "pieces. A search decides by itself among the first three; with --fixed they "
        "are lines unless this says otherwise.",
    ),
]
MissingOption = Annotated[
    MissingChoice,
    choice("--missing", "Refuse missing cells, or give them a coefficient."),
]
DropMissingFlag = Annotated[
    bool, choice("--drop-missing", "Leave out rows with missing cells.")
]
UnknownOption = Annotated[
    UnknownChoice | None,
    choice(
        "--unknown", "In predictions, refuse new levels or take them for the baseline."
    ),
]
IntervalOption = Annotated[
    float | None,
    takes("LEVEL")(
        "--interval",
        "Add an interval for the next observation, such as 0.9; for classes, which of "
        "them it may be; for survival, of the time.",
    ),
]
FixedFlag = Annotated[
    bool, choice("--fixed", "Penalties set by hand (--set alpha=0.1) instead of found.")
]
SettingOption = Annotated[
    list[str] | None,
    takes("NAME=VALUE", "Model")("--set", "Any other parameter of the estimator."),
]
SeedOption = Annotated[
    int, takes("NUMBER", "Model", min=0)("--seed", "Governs everything random.")
]
MaxTimeOption = Annotated[
    float | None,
    takes("SECONDS", "Model")("--max-time", "Begin no further restart after this."),
]
JobsOption = Annotated[
    int | None,
    takes("NUMBER", "Model")("--jobs", "Processes; the answer does not depend on it."),
]
BudgetOption = Annotated[
    str | None,
    takes("SIZE", "Model")(
        "--memory-budget",
        "Memory for the fit, such as 4GB; larger tables are read part by part.",
    ),
]
CheckpointOption = Annotated[
    str | None,
    takes("FOLDER", "Model")(
        "--checkpoint",
        "Keep the state of the fit here and go on from it; removed once saved.",
    ),
]
DeviceOption = Annotated[DeviceChoice, choice("--device", "Where to fit.")]

# How rows are explained, and models exported.
WhatOption = Annotated[WhatChoice, flag("--what", "What to write of every feature.")]
LongFlag = Annotated[
    bool, flag("--long/--wide", "One line per row and feature, or per row.")
]
RowOption = Annotated[
    list[int] | None,
    takes("NUMBER")("--row", "Only show this row, the first is 1; repeat for more."),
]
ClassOption = Annotated[
    str | None,
    takes("LABEL")("--class", "Of more than two classes, the one to explain."),
]
MethodOption = Annotated[
    MethodChoice, flag("--method", "How contributions are shared out.")
]
ExportOption = Annotated[
    ExportChoice | None,
    flag("--format", "What to write, else by the ending of the file."),
]
TableName = Annotated[str, takes("NAME")("--table", "The table that SQL is to score.")]
NearOption = Annotated[
    str | None,
    file(
        "--data", "Rows on which SQL approximates a network by curves, with the error."
    ),
]
Float32Flag = Annotated[bool, flag("--float32", "Single precision in and out.")]

# How text is read, by name and with defaults: several commands have these.
TEXT_OPTIONS: dict[str, tuple[Any, str | None]] = {
    "delimiter": (
        Annotated[
            str | None,
            character("--delimiter", "Between cells, else found in the header."),
        ],
        None,
    ),
    "encoding": (
        Annotated[str, takes("NAME", "Reading text")("--encoding", "Encoding.")],
        "utf-8",
    ),
    "decimal": (
        Annotated[str, character("--decimal", "Decimal point; a comma in 12,5.")],
        ".",
    ),
    "thousands": (
        Annotated[
            str | None,
            character(
                "--thousands",
                "Between thousands: a comma in 1,234, a point in 1.234,56.",
            ),
        ],
        None,
    ),
}

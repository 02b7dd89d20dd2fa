"""Arguments and options, each declared once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

# Groups of options in help texts.
COLUMNS, MODEL, READING = "Columns", "Model", "Reading text"


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


class Device(StrEnum):
    """Choices of --device."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


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
TargetOption = Annotated[
    str, typer.Option("--target", "-t", metavar="COLUMN", help="What to predict.")
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
TestShare = Annotated[
    float | None,
    typer.Option(
        "--test",
        metavar="SHARE",
        help="Hold out this share of the rows, for example 0.2, to judge the model.",
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
FormatOption = Annotated[
    Format | None,
    typer.Option("--format", help="Format of the output, else by its ending."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
QuietFlag = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")
]
DebugFlag = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]

# What the columns are for.
WeightOption = Annotated[
    str | None,
    typer.Option(
        "--weight",
        metavar="COLUMN",
        help="Weights of the rows.",
        rich_help_panel=COLUMNS,
    ),
]
OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="COLUMN",
        help="Known part of the linear predictor, such as a log exposure.",
        rich_help_panel=COLUMNS,
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="COLUMNS",
        help="Leave out; repeat the option or part by commas.",
        rich_help_panel=COLUMNS,
    ),
]
CategoricalOption = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        metavar="COLUMNS",
        help="Numbers that stand for categories; text always does.",
        rich_help_panel=COLUMNS,
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
    Family,
    typer.Option(
        "--family",
        help="Distribution of the target; auto takes binomial for text and for two "
        "values, else gaussian.",
        rich_help_panel=MODEL,
    ),
]
BasisOption = Annotated[
    Basis | None,
    typer.Option(
        "--basis",
        help="How numbers enter: as lines, parabolas or curves. A search decides by "
        "itself; with --fixed they are lines unless this says otherwise.",
        rich_help_panel=MODEL,
    ),
]
MissingOption = Annotated[
    Missing,
    typer.Option(
        "--missing",
        help="Refuse missing cells, or give them a coefficient.",
        rich_help_panel=MODEL,
    ),
]
DropMissingFlag = Annotated[
    bool,
    typer.Option(
        "--drop-missing",
        help="Leave out rows with missing cells.",
        rich_help_panel=MODEL,
    ),
]
UnknownOption = Annotated[
    Unknown,
    typer.Option(
        "--unknown",
        help="In predictions, refuse new levels or take them for the baseline.",
        rich_help_panel=MODEL,
    ),
]
FixedFlag = Annotated[
    bool,
    typer.Option(
        "--fixed",
        help="Penalties set by hand (--set alpha=0.1) instead of found.",
        rich_help_panel=MODEL,
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other parameter of the estimator.",
        rich_help_panel=MODEL,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option("--seed", help="Governs everything random.", rich_help_panel=MODEL),
]
MaxTimeOption = Annotated[
    float | None,
    typer.Option(
        "--max-time",
        metavar="SECONDS",
        help="Begin no further restart after this.",
        rich_help_panel=MODEL,
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="NUMBER",
        help="Processes; the answer does not depend on it.",
        rich_help_panel=MODEL,
    ),
]

BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--memory-budget",
        metavar="SIZE",
        help="Memory for the fit, such as 4GB; larger tables are read part by part.",
        rich_help_panel=MODEL,
    ),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="FOLDER",
        help="Keep the state of the fit here and go on from it; removed once saved.",
        rich_help_panel=MODEL,
    ),
]
DeviceOption = Annotated[
    Device,
    typer.Option("--device", help="Where to fit.", rich_help_panel=MODEL),
]

# How rows are explained.
WhatOption = Annotated[
    What, typer.Option("--what", help="What to write of every feature.")
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
MethodOption = Annotated[
    Method, typer.Option("--method", help="How contributions are shared out.")
]
Float32Flag = Annotated[
    bool, typer.Option("--float32", help="Single precision in and out.")
]

# How text is read.
DelimiterOption = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHARACTER",
        help="Between cells, else found in the header.",
        rich_help_panel=READING,
    ),
]
EncodingOption = Annotated[
    str,
    typer.Option(
        "--encoding", metavar="NAME", help="Encoding.", rich_help_panel=READING
    ),
]

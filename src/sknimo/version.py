"""The version of the package, written here and nowhere else."""

VERSION = "0.1.0.dev0"

"""Warnings and errors that users may want to catch by name."""


class DataWarning(UserWarning):
    """The data are usable, but something in them deserves a look."""


class SeparationWarning(UserWarning):
    """The classes are separated perfectly, so the size of coefficients is arbitrary."""


class ModelFileError(ValueError):
    """A file is no saved model of this library, or a damaged or newer one."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, or belongs to another piece of work."""

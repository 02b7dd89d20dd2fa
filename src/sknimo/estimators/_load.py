"""Load a saved estimator."""

import math
import os
from typing import Any

import numpy as np

from sknimo.estimators._base import BaseNIMO
from sknimo.estimators._plain import Certificate, NIMOClassifier, NIMORegressor
from sknimo.estimators._saved_errors import (
    read_baseline,
    read_dial,
    read_errors,
    read_intervals,
)
from sknimo.estimators._saving import (
    CERTIFICATE,
    CLASS_REACH,
    FIXED_ATTRIBUTES,
    LATER_ATTRIBUTES,
    SEARCH_ATTRIBUTES,
    TENSORS,
    read_classes,
    read_facts,
    read_param,
    read_reach,
)
from sknimo.estimators._searching import NIMOClassifierCV, NIMORegressorCV, Searching
from sknimo.estimators._survival import NIMOSurvival, NIMOSurvivalCV
from sknimo.estimators._survival_task import SurvivalTask
from sknimo.estimators._tasks import ClassificationTask
from sknimo.exceptions import ModelFileError
from sknimo.explain import widest_class
from sknimo.families import SOFTMAX
from sknimo.io import Archive, Node, Tensors, read_archive, unpack_model
from sknimo.model import ClassModels

# The only classes that a file can name.
CLASSES: dict[str, type[BaseNIMO]] = {
    "NIMOClassifier": NIMOClassifier,
    "NIMOClassifierCV": NIMOClassifierCV,
    "NIMORegressor": NIMORegressor,
    "NIMORegressorCV": NIMORegressorCV,
    "NIMOSurvival": NIMOSurvival,
    "NIMOSurvivalCV": NIMOSurvivalCV,
}


def load(path: str | os.PathLike[str]) -> Any:
    """Load an estimator that `save` wrote.

    A file holds values and arrays, never code, and everything in it is checked against
    fixed limits first: loading a file from elsewhere is safe, which does not make its
    predictions right.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    NIMORegressor, NIMOClassifier, NIMOSurvival, or one of them that searches
        Fitted; it predicts and explains as before it was saved.

    Raises
    ------
    ModelFileError
        If the file is not a saved model, is damaged, or was written by a newer version
        with another schema.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sknimo import NIMORegressor, load, datasets
    >>> data = datasets.make_nimo_regression(n_samples=100, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     est.save(Path(folder) / "model.sknimo")
    ...     again = load(Path(folder) / "model.sknimo")
    >>> bool((again.predict(data.X) == est.predict(data.X)).all())
    True
    """
    archive = read_archive(path, TENSORS)
    try:
        with np.errstate(all="ignore"):  # finite numbers may still overflow in sums
            return restore_estimator(archive)
    except (ModelFileError, MemoryError, RecursionError) as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {error}") from error


# What the document of every file has.
ENTRIES = (
    *("library", "class", "params", "omitted", "named", "classes", "attributes"),
    *("certificate", "facts", "errors", "model"),
)


def restore_estimator(archive: Archive) -> BaseNIMO:
    """Undo `describe_estimator`."""
    baseline = archive.content.keys() & {"baseline"}  # of survival models alone
    archive.content.setdefault("errors", None)  # not in files of earlier versions
    found = Node(archive.content, "document").mapping(*baseline, *ENTRIES)
    class_name, classes = found["class"], found["classes"]
    cls = CLASSES[class_name.text(CLASSES)]
    est = cls(**_read_params(found["params"], found["omitted"], cls))
    tensors = Tensors(archive.tensors)
    model = unpack_model(found["model"], tensors)
    several = model.family is SOFTMAX
    if (several or model.family.is_binary) != issubclass(cls, ClassificationTask):
        raise class_name.refuse(f"a class for the {model.family.name} family")
    if not model.family.is_hazard == issubclass(cls, SurvivalTask) == bool(baseline):
        raise class_name.refuse(f"a class for the {model.family.name} family")
    est._saved_by = found["library"].text()
    _read_attributes(est, found["attributes"], found["certificate"])
    shown: Any = model
    if isinstance(est, ClassificationTask):
        est.classes_ = read_classes(classes, several)
    elif classes.value is not None:
        raise classes.refuse("null for a regression")
    count = len(est.classes_) if several else 1
    if several:
        if model.n_members % count or found["facts"].value is not None:
            raise classes.refuse(
                f"labels among which {model.n_members} members are shared"
            )
        shown = ClassModels(model, count)
        if CLASS_REACH in tensors:
            est._class_reach = read_reach(tensors, CLASS_REACH, widest_class(shown))
    est._show_model(shown)
    est._facts = read_facts(found["facts"], tensors, model)
    est._conformal = read_intervals(tensors, model)
    est._uncertainty = read_errors(
        found["errors"], tensors, model.features, model.n_members, count
    )
    if isinstance(est, SurvivalTask):
        est._show_baseline(read_baseline(found["baseline"], tensors))
    if isinstance(est, Searching):
        n_terms = len(model.features.term_feature)
        est._dial = read_dial(tensors, n_terms, count, est.bend_)
    tensors.finish()
    est.n_features_in_ = model.features.n_features
    if found["named"].flag():
        est.feature_names_in_ = np.array(model.features.names, dtype=object)
    return est


def _read_params(params: Node, omitted: Node, cls: type[BaseNIMO]) -> dict[str, Any]:
    """Parameters by name; those that were not written keep their defaults."""
    known = cls().get_params(deep=False)
    for name in omitted.items():
        name.text(known)
    if type(params.value) is not dict:
        raise params.refuse("a mapping of parameters")
    for name in params.value:
        Node(name, "name of a parameter").text(known)
    nodes = params.mapping(*params.value)
    values = {name: read_param(node) for name, node in nodes.items()}
    # `fit` checks parameters; these two are used without it.
    if "handle_unknown" in nodes:
        nodes["handle_unknown"].text(("error", "reference"))
    if not isinstance(values.get("reference", ""), str | dict):
        raise nodes["reference"].refuse("a string or a dict")
    return values


def _read_attributes(est: BaseNIMO, attributes: Node, certificate: Node) -> None:
    """Small fitted attributes, which differ between plain and searching classes."""
    readers = SEARCH_ATTRIBUTES if isinstance(est, Searching) else FIXED_ATTRIBUTES
    given = attributes.value if isinstance(attributes.value, dict) else {}
    absent = [name for name in LATER_ATTRIBUTES if name not in given]
    names = [name for name in readers if name not in absent]
    read = {name: readers[name](x) for name, x in attributes.mapping(*names).items()}
    precision = read.pop("network_alpha_", math.nan)  # see `_write_attribute`
    for name, value in read.items():
        setattr(est, name, value)
    if isinstance(est, Searching):
        if certificate.value is not None:
            raise certificate.refuse("null for a search")
        for name in absent:
            setattr(est, name, "" if name == "status_" else math.nan)
        by_evidence = not math.isnan(est.log_evidence_)
        est.input_precision_ = precision if by_evidence else math.nan
        return
    *numbers, status = certificate.fields(*CERTIFICATE, "status")
    kkt, objective, glm_objective = (each.real() for each in numbers)
    est.certificate_ = Certificate(kkt, objective, glm_objective, status.text())

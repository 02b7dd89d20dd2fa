"""Estimators that show themselves: curves, surfaces, reports, notebooks."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sknimo import explain as records
from sknimo.estimators._explaining import (
    held_out_scores,
    read_weights,
    refuse_half,
)
from sknimo.estimators._intervals import Foreseeing
from sknimo.explain import find_origin
from sknimo.training import read_offset

if TYPE_CHECKING:
    from sknimo.report import ModelCard, Report, Sample

# Values whose representation says all and is the same in every process.
PLAIN = str | int | float | bool | None | np.generic | np.ndarray | Sequence | Mapping


class Reportable(Foreseeing):
    """An estimator that draws curves, writes a report and shows itself in notebooks."""

    def effect_curve(
        self, feature: int | str, X: Any = None, *, n_grid: int = 101
    ) -> records.EffectCurve:
        """Follow the effect of one feature, all others at the reference.

        Parameters
        ----------
        feature : int or str
            Position or name.
        X : array or data frame, optional
            Rows whose range the grid covers; two standard deviations around the
            reference without them. A category is shown at all of its levels.
        n_grid : int, default=101

        Returns
        -------
        EffectCurve
            Effect and slope at each value; `to_frame()` makes it a data frame.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> curve = est.effect_curve("x0", n_grid=5)
        >>> bool(abs(curve.slope - est.coef_[0]).max() < 1e-9)
        True
        """
        return records.effect_curve(
            self._explained(),
            feature,
            n_grid=n_grid,
            table=None if X is None else self._read_table(X),
            origin=find_origin(X),
        )

    def reference_sensitivity(
        self, X: Any, *, sample_weight: Any = None
    ) -> records.ReferenceSensitivity:
        """Set the coefficients beside the effects at other points.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Rows whose mean, median and quartiles are the other points.
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        ReferenceSensitivity
            One row per coefficient, with its largest relative change.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.reference_sensitivity(data.X).effects.shape  # features, points
        (5, 4)
        """
        table = self._read_table(X)
        return records.reference_sensitivity(
            self._explained(),
            table,
            weight=read_weights(sample_weight, len(table)),
            origin=find_origin(X),
        )

    def pair_surface(
        self, j: int | str, k: int | str, *, X: Any = None, n_grid: int = 25
    ) -> records.PairSurface:
        """Evaluate two features together, all else at the reference.

        Parameters
        ----------
        j, k : int or str
            Positions or names.
        X : array or data frame, optional
            Rows whose range the grid covers; two standard deviations around the
            reference without them.
        n_grid : int, default=25
            Grid values per feature.

        Returns
        -------
        PairSurface

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.pair_surface("x0", "x1", X=data.X).surface.shape
        (25, 25)
        """
        table = None if X is None else self._read_table(X)
        return records.pair_surface(self._explained(), j, k, n_grid=n_grid, table=table)

    def correction_curve(
        self,
        feature: int | str,
        modifier: int | str,
        *,
        X: Any = None,
        n_grid: int = 50,
    ) -> records.CorrectionCurve:
        """Follow the coefficient of a feature along another, all else at the reference.

        Parameters
        ----------
        feature, modifier : int or str
            Positions or names.
        X : array or data frame, optional
            Rows whose range the grid covers, and whose gauge is used where no training
            rows were summed up.
        n_grid : int, default=50

        Returns
        -------
        CorrectionCurve

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.correction_curve("x0", "x1", X=data.X).local_coef.shape
        (50,)
        """
        table = None if X is None else self._read_table(X)
        swap = None if self._facts is None else self._facts.swap
        if swap is None and table is not None:
            swap = self._swap(table)
        return records.correction_curve(
            self._explained(), feature, modifier, swap=swap, n_grid=n_grid, table=table
        )

    def report(
        self,
        path: str | os.PathLike[str] | None,
        X: Any,
        y: Any,
        *,
        X_test: Any = None,
        y_test: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        sample_weight_test: Any = None,
        offset_test: Any = None,
        rows: int | Sequence[int] | None = None,
        row_names: Sequence[str] | None = None,
        title: str | None = None,
        class_: Any = None,
    ) -> Report:
        """Write a report as one HTML file that needs nothing else.

        It judges, shows and explains the model, checks the data, and holds the model
        itself in a page on which every feature can be moved. Needs the extra `report`.

        Parameters
        ----------
        path : str, path or None
            Where to write; None only returns the report.
        X, y : as in `fit`
            Rows that effects, figures and checks refer to; best the training rows.
        X_test, y_test : optional
            Rows that the model has not seen, to judge it by.
        sample_weight, offset, sample_weight_test, offset_test : array, optional
            Of `X` and of `X_test`.
        rows : int or sequence of int, optional
            Rows of `X` to explain in full: how many, by default eight, or where.
        row_names : sequence of str, optional
            What these rows are called; by default their positions and labels.
        title : str, optional
        class_ : label of a class, optional
            Of more than two classes the one that the page is of; by default the last.

        Returns
        -------
        Report
            Shows itself in notebooks; `save(path)` writes it.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> "A look" in est.report(None, data.X, data.y, title="A look").html
        True
        """
        check_is_fitted(self)
        shown = self._shown(class_)
        refuse_half(X_test, y_test, "X_test and y_test")
        sample = _name_rows(shown._read_sample(X, y, sample_weight, offset), row_names)
        test = X_test, y_test, sample_weight_test, offset_test
        held_out = None if X_test is None else shown._read_sample(*test)
        return shown._render(path, sample, held_out, rows, title)

    def _render(
        self,
        path: str | os.PathLike[str] | None,
        sample: Sample,
        held_out: Sample | None,
        rows: int | Sequence[int] | None,
        title: str | None,
    ) -> Report:
        from sknimo.machine import torch_threads
        from sknimo.report import render_report

        more: dict[str, Any] = {"held_out": held_out, "rows": rows, "title": title}
        with torch_threads(0):  # many small evaluations: threads would only wait
            report = render_report(self._model_card(), sample, **more)
        if path is not None:
            report.save(path)
        return report

    def _shown(self, class_: Any) -> Reportable:
        """The estimator that a page is of."""
        if class_ is not None:
            raise ValueError(
                f"class_={class_!r} chooses among more than two classes, which this "
                "model does not have. Leave it out."
            )
        return self

    def _read_sample(self, X: Any, y: Any, weight: Any, offset: Any) -> Sample:
        """Validate rows and targets as the model knows them."""
        from sknimo.report import Sample

        table, target = self._read_pairs(X, y)
        index: Any = getattr(X, "index", None)
        name = getattr(y, "name", None)
        return Sample(
            table=table,
            y=target,
            weight=read_weights(weight, len(table)),
            offset=None if offset is None else read_offset(offset, len(table)),
            labels=tuple(map(str, index)) if hasattr(index, "to_numpy") else None,
            target="the target" if name is None else str(name),
        )

    def _model_card(self) -> ModelCard:
        """What a report says of the estimator itself."""
        from sknimo.report import ModelCard

        classes = getattr(self, "classes_", None)
        settings = {name: _show(v) for name, v in self.get_params(deep=False).items()}
        defaults = inspect.signature(type(self)).parameters
        return ModelCard(
            model=self._explained(),
            facts=self._facts,
            kind=type(self).__name__,
            settings=tuple(settings.items()),
            changed=tuple(
                name
                for name, shown in settings.items()
                if name not in defaults or shown != _show(defaults[name].default)
            ),
            classes=None if classes is None else (str(classes[0]), str(classes[1])),
            certificate=getattr(self, "certificate_", None),
            converged=self.converged_,
            status=getattr(self, "status_", ""),
            scores=held_out_scores(self),
            errors=self._known_errors(),
            left_out=getattr(self, "oob_prediction_", None),
            straight=None if self._held_out is None else self._held_out.straight,
            conformal=self._conformal,
            uncertainty=self._uncertainty,
            dial=getattr(self, "_dial", None),
        )

    # Notebooks ask for a bundle, other tools for HTML: scikit-learn's own diagram until
    # the fit, then the summary.

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle and hasattr(self, "model_"):
            bundle["text/html"] = self.summary()._repr_html_()
        return bundle

    @property
    def _repr_html_(self) -> Any:
        diagram = super()._repr_html_  # type: ignore[misc]
        return self.summary()._repr_html_ if hasattr(self, "model_") else diagram


def _name_rows(sample: Sample, names: Sequence[str] | None) -> Sample:
    """The rows with their names, if there are any."""
    if names is None:
        return sample
    if len(names) != len(sample):
        raise ValueError(
            f"row_names has {len(names)} entries but X has {len(sample)} rows; give "
            "one for each."
        )
    return replace(sample, names=tuple(map(str, names)))


def _show(value: Any) -> str:
    """A parameter as text; of an object only its type, which is never an address."""
    return repr(value) if isinstance(value, PLAIN) else f"<{type(value).__name__}>"

"""Fitted estimators with the methods of scikit-learn, recognised by ``predict``, as modules.

Regressors are explained by ``predict``, classifiers by ``predict_proba``, or by ``decision_function`` where they have
no probabilities. A bound method of an estimator chooses another function. An estimator is called with what it was
fitted on: a data frame if it knows the names of its columns, else an array.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from geh_explain.data.conversion import is_frame
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError, warn
from geh_explain.model.callable_model import CallableModel
from geh_explain.units.unit_lookup import list_names, suggest

#: Methods that return one number, or one per class, for each row.
_METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples")
#: Methods whose outputs are one column per class.
_BY_CLASS = ("predict_proba", "predict_log_proba", "decision_function")
#: Names that LightGBM gives to the columns of an array.
_GENERIC_NAME = re.compile(r"Column_\d+")


class ReturnedProbability:
    """``output`` of an estimator's ``predict_proba``, which returns probabilities already."""

    def __call__(self, raw: Any) -> Any:
        return raw

    def __repr__(self) -> str:
        return "probability"


class EstimatorModel(CallableModel):
    """A method of a fitted estimator as a module.

    Attributes
    ----------
    estimator
        The estimator: of scikit-learn, or another one with the same methods.
    method
        Name of the method that is explained.
    classes
        Labels of the classes, in the order of the columns; None for regressors.
    feature_names
        Names of the columns on which it was fitted; None if it was fitted on an array, or does not tell.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> model = EstimatorModel(LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"]), "predict_proba")
    >>> model.target_index("no"), model.target_index(None)
    (0, 1)
    """

    def __init__(self, estimator: Any, method: str) -> None:
        super().__init__(getattr(estimator, method))
        self.estimator = estimator
        self.method = method
        classes = getattr(estimator, "classes_", None)
        is_one_list = isinstance(classes, (np.ndarray, list)) and np.ndim(classes[0]) == 0
        self.classes: list[Any] | None = np.asarray(classes).tolist() if is_one_list else None
        self.feature_names = _feature_names(estimator)

    @property
    def takes_arrays(self) -> bool:
        """Whether the estimator was fitted on an array, by the convention of scikit-learn."""
        is_fitted_on_array = self.feature_names is None and _get(self.estimator, "n_features_in_") is not None
        return is_fitted_on_array or hasattr(self.estimator, "module_")

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what the method returns for rows, a tensor (n, D) or a data frame; whole numbers as floats."""
        out = self.function(self._as_fitted(x), *args, **kwargs)
        # Regressors may predict counts; labels of clusters stay whole numbers, which are refused.
        if isinstance(out, np.ndarray) and out.dtype.kind in "iu" and not hasattr(self.estimator, "fit_predict"):
            return out.astype(np.float64)
        return out

    def _as_fitted(self, x: Any) -> Any:
        """Return rows as a frame or an array, whichever the estimator was fitted on."""
        import pandas as pd

        if isinstance(x, Tensor):
            array = x.detach().cpu().numpy()
            return array if self.feature_names is None else pd.DataFrame(array, columns=self.feature_names)
        return x.to_numpy() if self.takes_arrays and is_frame(x) else x

    def target_index(self, target: Any) -> Any:
        """Return the column of a class that is given by its label or index; None is the second of two classes.

        Raises
        ------
        GEHValueError
            If the label is unknown.
        """
        if self.classes is None or self.method not in _BY_CLASS or isinstance(target, tuple):
            return target
        one_column = self.method == "decision_function" and len(self.classes) == 2
        if target is None:
            return 1 if len(self.classes) == 2 and not one_column else None
        if isinstance(target, (list, np.ndarray, Tensor)) or hasattr(target, "to_numpy"):
            labels = target.to_numpy() if hasattr(target, "to_numpy") else target
            labels = labels.tolist() if isinstance(labels, (np.ndarray, Tensor)) else labels
            if isinstance(labels, list):
                return [self._class_index(label) for label in labels]
        index = self._class_index(target)
        if not one_column:
            return index
        if index != 1:
            raise GEHValueError(
                f"target={target!r}: decision_function has one column, for the class {self.classes[1]!r}; explain that "
                "one, target=None. Interactions of the other class have the opposite sign."
            )
        return None

    def targets_by_label(self, target: Any, targets: Any) -> Any:
        """Return the columns of several classes by their labels: of all of them, or of a list that has labels."""
        if self.classes is None or self.method not in _BY_CLASS:
            return targets
        if targets is None and not (isinstance(target, str) and target == "all"):
            return None
        numbers = [label for label in self.classes if isinstance(label, (int, float))]
        if numbers != list(range(len(numbers))):
            raise GEHValueError(
                f"targets: the classes {list_names(self.classes)} are numbers, and others than their columns; explain "
                f"one class at a time, target={self.classes[0]!r} for instance."
            )
        if targets is None or (isinstance(targets, str) and targets == "all"):
            return {label: column for column, label in enumerate(self.classes)}
        if isinstance(targets, (list, tuple)) and all(isinstance(entry, str) for entry in targets):
            return {label: self._class_index(label) for label in targets}
        return targets

    def _class_index(self, target: Any) -> Any:
        """Return the column of one class; anything that is no label and may be an index is returned as it is."""
        assert self.classes is not None
        label = target.item() if isinstance(target, np.generic) else target
        if label in self.classes:
            index = self.classes.index(label)
            if isinstance(label, int) and index != label and label < len(self.classes):
                warn(
                    f"target={target!r} is taken for the label {label!r} of a class, which is in column {index}; the "
                    f"class in column {label} is target={self.classes[label]!r}."
                )
            return index
        if isinstance(label, (int, list)) and not isinstance(label, bool):
            return label
        raise GEHValueError(
            f"target={target!r} is none of the classes {list_names(self.classes)}{suggest(str(target), self.classes)}"
        )

    def class_indices(self, y: Any) -> Any:
        """Return labels of classes, one per row, as columns of the outputs; anything else unchanged."""
        if self.classes is None or self.method not in ("predict_proba", "predict_log_proba"):
            return y
        labels = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
        codes = {label: code for code, label in enumerate(self.classes)}
        entries = labels.tolist()
        if labels.ndim != 1 or not all(isinstance(label, (str, int, float)) and label in codes for label in entries):
            return y
        return np.array([codes[label] for label in entries], dtype=np.int64)

    def check_inputs(self, inputs: Any, argument: str) -> Any:
        """Return inputs with the columns on which the estimator was fitted, arrays as frames where these have names.

        Raises
        ------
        GEHValueError
            If columns are missing, unknown or in another order, or if there are too few or too many.
        """
        import pandas as pd

        if is_frame(inputs):
            if self.feature_names is not None:
                _check_columns([str(name) for name in inputs.columns], self.feature_names, argument)
            else:
                self._check_width(inputs.shape[1], argument)
            return inputs
        if not isinstance(inputs, (np.ndarray, Tensor)) or inputs.ndim != 2:
            return inputs
        self._check_width(inputs.shape[1], argument)
        array = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else inputs
        if self.feature_names is not None:
            return pd.DataFrame(array, columns=self.feature_names)
        # Tensors of whole numbers are refused, as they have no derivatives; frames of them are not.
        return pd.DataFrame(array).add_prefix("x") if array.dtype.kind in "iub" else inputs

    def _check_width(self, width: int, argument: str) -> None:
        names = self.feature_names
        expected = len(names) if names is not None else _get(self.estimator, "n_features_in_")
        if isinstance(expected, (int, np.integer)) and expected != width:
            raise GEHValueError(
                f"{argument}: there are {width} columns, and the {type(self.estimator).__name__} was fitted on "
                f"{expected}; give the same columns in the same order"
                + ("." if names is None else f": {list_names(names)}.")
            )


def estimator_output(model: EstimatorModel, output: Any) -> Any:
    """Return ``output`` for an estimator: what ``predict_proba`` returns needs no softmax."""
    returns_probability = model.method == "predict_proba" and model.classes is not None
    return ReturnedProbability() if returns_probability and output in ("raw", "probability") else output


def model_name(model: nn.Module) -> str:
    """Return the name of a model's class; for an estimator that of the estimator's."""
    return type(model.estimator if isinstance(model, EstimatorModel) else model).__name__


def find_estimator(model: Any) -> nn.Module | None:
    """Return the module of an estimator, or of a bound method of one; None for anything else.

    A fitted net of skorch is its network, ``net.module_``, which has derivatives, layers and dropout.

    Raises
    ------
    GEHRuntimeError
        If the estimator was not fitted.
    GEHTypeError
        If it predicts labels only.
    """
    owner, name = getattr(model, "__self__", None), getattr(model, "__name__", "")
    if name in _METHODS and hasattr(owner, "fit") and not isinstance(owner, (nn.Module, type)):
        _check_fitted(owner)
        return EstimatorModel(owner, name)
    has_predict = callable(getattr(model, "predict", None))
    if isinstance(model, (nn.Module, type)) or not has_predict or (callable(model) and not hasattr(model, "fit")):
        return None
    _check_fitted(model)
    network = getattr(model, "module_", None)
    if isinstance(network, nn.Module):
        return network
    return EstimatorModel(model, _choose_method(model))


def _choose_method(estimator: Any) -> str:
    """Return the method that is explained where the user does not choose one."""
    if hasattr(estimator, "predict_proba"):
        return "predict_proba"
    if not hasattr(estimator, "classes_"):
        return "predict"
    if hasattr(estimator, "decision_function"):
        return "decision_function"
    raise GEHTypeError(
        f"model: a {type(estimator).__name__} predicts labels, and has neither predict_proba nor decision_function, so "
        "that there is no number to explain; fit one with probabilities, for instance "
        "sklearn.calibration.CalibratedClassifierCV."
    )


def _check_fitted(estimator: Any) -> None:
    """Raise if an estimator says that it was not fitted, or if one of scikit-learn shows it."""
    kind = type(estimator)
    says = getattr(estimator, "__sklearn_is_fitted__", None) or getattr(estimator, "is_fitted", None)
    if hasattr(estimator, "initialize") and hasattr(estimator, "initialized_"):  # skorch
        fitted = bool(estimator.initialized_)
    elif callable(says):
        fitted = bool(says())
    elif kind.__module__.startswith("sklearn."):
        # The convention of scikit-learn: fit() sets attributes whose names end with an underscore.
        fitted = any(name.endswith("_") and not name.startswith("__") for name in vars(estimator))
    else:
        return
    if not fitted:
        raise GEHRuntimeError(f"model: the {kind.__name__} is not fitted; call model.fit(X, y) first.")


def _get(estimator: Any, name: str) -> Any:
    """Return an attribute, None where the estimator, or the one that it asks, does not have it."""
    try:
        return getattr(estimator, name, None)
    except Exception:  # properties of wrappers may raise whatever the wrapped estimator does
        return None


def _feature_names(estimator: Any) -> list[str] | None:
    """Return the names of the columns on which an estimator was fitted, if it knows them."""
    names = _get(estimator, "feature_names_in_")
    if names is None:
        return None
    texts = [str(name) for name in names]
    return None if not texts or all(map(_GENERIC_NAME.fullmatch, texts)) else texts


def _check_columns(columns: Sequence[str], fitted: Sequence[str], argument: str) -> None:
    """Raise unless a frame has the columns on which an estimator was fitted, in the same order."""
    missing = [name for name in fitted if name not in columns]
    if missing:
        raise GEHValueError(
            f"{argument}: the column {missing[0]!r}, on which the model was fitted, is missing"
            + (f", and {len(missing) - 1} more" if len(missing) > 1 else "")
            + f"; the columns are {list_names(columns)}{suggest(missing[0], columns)}"
        )
    unknown = [name for name in columns if name not in fitted]
    if unknown:
        raise GEHValueError(
            f"{argument}: the columns {list_names(unknown)} are none of those on which the model was fitted; leave "
            f"them out, {argument}[list(model.feature_names_in_)]."
        )
    if list(columns) != list(fitted):
        place = next(place for place, pair in enumerate(zip(columns, fitted, strict=False)) if pair[0] != pair[1])
        raise GEHValueError(
            f"{argument}: column {place} is {columns[place]!r}, and was {fitted[place]!r} when the model was fitted; "
            f"give the same order, {argument}[list(model.feature_names_in_)]."
        )

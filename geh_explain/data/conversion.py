"""Arrays and data frames as tensors, with errors that name the argument and the place of a bad value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.errors import GEHTypeError, GEHValueError

#: NumPy kinds that torch has: float, signed and unsigned integer, boolean.
_NUMERIC_KINDS = "fiub"


def is_frame(value: Any) -> bool:
    """Return whether ``value`` looks like a data frame (pandas, or a library with the same interface)."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def frame_to_tensor(frame: Any, argument: str) -> Tensor:
    """Return a data frame of numbers as a double tensor (rows, columns); missing values become NaN.

    >>> import pandas as pd
    >>> frame_to_tensor(pd.DataFrame({"age": [30, 41], "member": [True, False]}), "inputs")
    tensor([[30.,  1.],
            [41.,  0.]], dtype=torch.float64)
    """
    # Extension dtypes of pandas may lack a kind.
    kinds = [getattr(dtype, "kind", "O") for dtype in frame.dtypes]
    wrong = [str(name) for name, kind in zip(frame.columns, kinds, strict=True) if kind not in _NUMERIC_KINDS]
    if wrong:
        raise GEHTypeError(
            f"{argument}: the columns {wrong} are not numbers; encode them as they were encoded for the model "
            "(for instance with pandas.get_dummies)."
        )
    return array_to_tensor(frame.to_numpy(dtype=np.float64, na_value=np.nan), argument)


def encode_categories(frame: Any, columns: Sequence[str], argument: str) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """Return a data frame with its categories of pandas among ``columns`` as codes, and the names of the codes.

    Raises
    ------
    GEHValueError
        If such a column has missing values.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"place": pd.Categorical(["sea", "hill"])})
    >>> encoded, names = encode_categories(frame, ["place"], "inputs")
    >>> encoded["place"].tolist(), names
    ([1, 0], {'place': ('hill', 'sea')})
    """
    names: dict[str, tuple[str, ...]] = {}
    # A copy of the table without that of its columns: the user's own stays as it is.
    encoded = frame.copy(deep=False)
    for column in frame.columns:
        if str(column) in columns and hasattr(frame[column], "cat"):
            if bool(frame[column].isna().any()):
                raise GEHValueError(
                    f"{argument}: {int(frame[column].isna().sum())} values of the category {str(column)!r} are "
                    "missing; remove their rows, or give missing values a level of their own."
                )
            encoded[column] = frame[column].cat.codes
            names[str(column)] = tuple(str(level) for level in frame[column].cat.categories)
    return encoded, names


def array_to_tensor(array: np.ndarray[Any, Any], argument: str) -> Tensor:
    """Return an array of numbers as a tensor, which shares its memory where torch allows that.

    Arrays are copied if torch would refuse them or warn: those with a foreign byte order, long doubles, negative
    strides or without write permission.

    Raises
    ------
    GEHTypeError
        If the array is complex or does not hold numbers.
    GEHValueError
        If entries of a masked array are masked.
    """
    check_unmasked(array, argument)
    if array.dtype.kind == "c":
        raise GEHTypeError(
            f"{argument}: an array of dtype {array.dtype} is complex; pass its real and imaginary parts as columns."
        )
    if array.dtype.kind not in _NUMERIC_KINDS:
        raise GEHTypeError(f"{argument}: an array of dtype {array.dtype} is not numbers; convert it to float32.")
    is_long_double = array.dtype.kind == "f" and array.dtype.itemsize > 8
    dtype = np.float64 if is_long_double else array.dtype.newbyteorder("=")
    return torch.as_tensor(np.require(array.astype(dtype, copy=False), requirements=["C", "W"]))


def check_unmasked(value: Any, argument: str) -> None:
    """Raise if ``value`` is a masked array of NumPy with masked entries, whose values conversion would uncover."""
    masked = int(np.sum(value.mask)) if isinstance(value, np.ma.MaskedArray) else 0
    if masked:
        raise GEHValueError(
            f"{argument}: {masked} of {value.size} entries of a masked array are masked; remove their rows, or impute "
            f"them, for instance with {argument}.filled(value)."
        )


def suggest_conversion(value: Any) -> str:
    """Return how to convert an unsupported kind of data, in parentheses for a message; empty if unknown.

    >>> suggest_conversion([[1.0, 2.0], [3.0, 4.0]])
    ' (convert it with torch.tensor(inputs))'
    """
    if hasattr(value, "toarray"):
        return " (convert it with inputs.toarray())"  # sparse matrices of SciPy
    if hasattr(value, "to_frame"):
        return " (convert it with inputs.to_frame())"  # a single column of pandas
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        return " (convert it with torch.stack(inputs), or tuple(inputs) for several arguments of the model)"
    return " (convert it with torch.tensor(inputs))" if isinstance(value, list) else ""


def to_device(value: Any, device: torch.device | None) -> Any:
    """Return a tensor on ``device`` (None: where it is); anything else unchanged.

    Tensors made under ``torch.inference_mode()`` can never enter autograd. Their copies can, as the explainer runs with
    inference mode off.
    """
    if not isinstance(value, Tensor):
        return value
    return (value.clone() if value.is_inference() else value).to(device)


def check_finite(x: Tensor, start: int, columns: Sequence[str] | None, argument: str) -> None:
    """Raise if a row of ``x`` (n, ...) has a NaN or infinite value.

    The message counts such rows and gives the first one by its index among all points (``start`` is the index of the
    first row of ``x``) and the column by its name, if ``columns`` has names, else by its index.
    """
    # One sum is faster than a test of each number. It may also overflow, so the numbers decide.
    if bool(torch.isfinite(x.sum())):
        return
    bad = ~torch.isfinite(x).reshape(len(x), -1)
    if bool(bad.any()):
        row, column = (int(i) for i in bad.nonzero()[0])
        name = repr(columns[column]) if columns is not None else str(column)
        raise GEHValueError(
            f"{argument}: {int(bad.any(dim=1).sum())} of {len(x)} rows have NaN or infinite values (the first is row "
            f"{start + row}, column {name}); remove or impute them."
        )


def image_conversion(images: Tensor) -> str:
    """Return how to convert images of bytes (n, ...) for a network, as the end of a message.

    >>> image_conversion(torch.zeros(2, 32, 32, 3, dtype=torch.uint8))[:57]
    'pass images as numbers between 0 and 1, with the channels'
    """
    channels_last = images.ndim == 4 and images.shape[-1] in (1, 3, 4) and images.shape[1] not in (1, 3, 4)
    call = "with the channels first, images.permute(0, 3, 1, 2)" if channels_last else "images"
    return (
        f"pass images as numbers between 0 and 1, {call}.float() / 255, then normalised as in training by the "
        "network's own preprocessing (mean and std, weights.transforms() in torchvision)."
    )

"""Many distinct strings in little memory: a column of a million different numbers is one buffer, not
a million objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["Words"]

# numbers that Arrow and Python read alike: no sign +, no overflow, no underscore
_PLAIN_NUMBER = r"^-?([0-9]{1,17}\.?[0-9]{0,17}|\.[0-9]{1,17})([eE][+-]?[0-9]{1,2})?$"


@final
class Words(Sequence[str]):
    """A list of strings that lie in an Arrow array; each is made when it is asked for.

    Args:
        array: a `pyarrow.StringArray` or `LargeStringArray` without nulls.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self._array), 8192):
            yield from self._array.slice(start, 8192).to_pylist()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self._array.take(np.arange(len(self))[index]).to_pylist())
        return str(self._array[int(index)].as_py())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def plain_numbers(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The numbers that strings of a plain spelling hold, and which strings those are; `float`
        reads each of them as the same number.
        """
        import pyarrow
        import pyarrow.compute

        plain = pyarrow.compute.match_substring_regex(self._array, _PLAIN_NUMBER)
        read = pyarrow.compute.if_else(plain, self._array, pyarrow.scalar("0", self._array.type))
        numbers = read.cast(pyarrow.float64())
        return (
            numbers.to_numpy(zero_copy_only=False),
            plain.to_numpy(zero_copy_only=False).astype(np.bool_),
        )

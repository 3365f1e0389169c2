"""The benchmark's peer: Flower's SecAgg+, its own client stages and its own server primitives in
the order of its workflow.

Everybody in one process, complete graph, nobody drops out, no transport. Flower masks floats that
it quantises itself; the sum comes out as the average of the clients' vectors, which
`flower_average` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    factor_extract,
    get_parameters_shape,
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.quantization import dequantize
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

# a function of the same name hides the module from an ordinary import
client = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")

CLIPPING_RANGE = 8.0
QUANTIZATION_RANGE = 1 << 22
MODULUS_RANGE = 1 << 32
MAX_WEIGHT = 1000.0
EXAMPLES = 10


def flower_average(vectors: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Stages 0 to 3 for all clients, then the server's unmasking."""
    count = len(vectors)
    configs = {
        Key.SAMPLE_NUMBER: count,
        Key.SHARE_NUMBER: count,
        Key.THRESHOLD: count * 2 // 3 + 1,
        Key.CLIPPING_RANGE: CLIPPING_RANGE,
        Key.TARGET_RANGE: QUANTIZATION_RANGE,
        Key.MOD_RANGE: MODULUS_RANGE,
        Key.MAX_WEIGHT: MAX_WEIGHT,
    }
    states = {number: client.SecAggPlusState() for number in range(count)}
    keys: dict[str, Any] = {}
    for number, state in states.items():
        state.nid = number
        reply = client._setup(state, configs)
        keys[str(number)] = (reply[Key.PUBLIC_KEY_1], reply[Key.PUBLIC_KEY_2])
    boxes: dict[int, dict[str, list[Any]]] = {
        number: {Key.SOURCE_LIST: [], Key.CIPHERTEXT_LIST: []} for number in states
    }
    for number, state in states.items():
        reply = client._share_keys(state, keys)
        for receiver, sealed in zip(
            reply[Key.DESTINATION_LIST], reply[Key.CIPHERTEXT_LIST], strict=True
        ):
            boxes[receiver][Key.SOURCE_LIST].append(number)
            boxes[receiver][Key.CIPHERTEXT_LIST].append(sealed)
    total: list[npt.NDArray[Any]] | None = None
    for number, state in states.items():
        parameters = ndarrays_to_parameters([vectors[number]])
        reply = client._collect_masked_vectors(state, boxes[number], EXAMPLES, parameters)
        masked = [bytes_to_ndarray(data) for data in reply[Key.MASKED_PARAMETERS]]
        total = masked if total is None else parameters_addition(total, masked)
    assert total is not None
    return _unmask(parameters_mod(total, MODULUS_RANGE), states)


def _unmask(total: list[npt.NDArray[Any]], states: dict[int, Any]) -> npt.NDArray[np.float64]:
    """Stage 3 of the clients and the end of the server's workflow."""
    request = {Key.ACTIVE_NODE_ID_LIST: list(states), Key.DEAD_NODE_ID_LIST: []}
    shares: dict[int, list[bytes]] = {number: [] for number in states}
    for state in states.values():
        reply = client._unmask(state, request)
        for owner, share in zip(reply[Key.NODE_ID_LIST], reply[Key.SHARE_LIST], strict=True):
            shares[owner].append(share)
    for own_shares in shares.values():
        seed = combine_shares(own_shares)
        total = parameters_subtraction(
            total, pseudo_rand_gen(seed, MODULUS_RANGE, get_parameters_shape(total))
        )
    ratio, quantized = factor_extract(parameters_mod(total, MODULUS_RANGE))
    (average,) = dequantize(quantized, CLIPPING_RANGE, QUANTIZATION_RANGE)
    average += -(len(states) - 1) * CLIPPING_RANGE
    average *= QUANTIZATION_RANGE / ratio
    return np.asarray(average, dtype=np.float64)

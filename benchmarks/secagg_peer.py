"""The benchmark's peer: Flower's own SecAgg+ primitives, called in the order of its client mod and server workflow.

Quantisation, serialisation and transport are left out, in Flower's favour; inputs are the integers it would mask.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod, parameters_subtraction
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

MODULUS = 1 << 32
SEED_BYTES = 32


class FlowerClient:
    """One client's state through the four stages."""

    def __init__(self, number: int) -> None:
        self.number = number
        mask_secret, mask_public = generate_key_pairs()
        share_secret, share_public = generate_key_pairs()
        self.mask_secret, self.mask_public = private_key_to_bytes(mask_secret), public_key_to_bytes(mask_public)
        self.share_secret, self.share_public = private_key_to_bytes(share_secret), public_key_to_bytes(share_public)
        self.seed = os.urandom(SEED_BYTES)
        self.shared: dict[int, bytes] = {}
        self.own_share = b""
        self.held: dict[int, bytes] = {}

    def share(self, publics: dict[int, tuple[bytes, bytes]], threshold: int) -> dict[int, bytes]:
        """Stage 1: shares of the seed and the mask key, encrypted for everybody."""
        seed_shares = create_shares(self.seed, threshold, len(publics))
        key_shares = create_shares(self.mask_secret, threshold, len(publics))
        sealed = {}
        for place, (other, (_, share_public)) in enumerate(publics.items()):
            if other == self.number:
                self.held[other] = seed_shares[place]
                continue
            key = generate_shared_key(bytes_to_private_key(self.share_secret), bytes_to_public_key(share_public))
            self.shared[other] = key
            plain = share_keys_plaintext_concat(self.number, other, seed_shares[place], key_shares[place])
            sealed[other] = encrypt(key, plain)
        return sealed

    def mask(
        self, vector: npt.NDArray[np.int64], publics: dict[int, tuple[bytes, bytes]], received: dict[int, bytes]
    ) -> list[npt.NDArray[np.int64]]:
        """Stage 2: open the others' shares and mask the vector."""
        for other, sealed in received.items():
            _, _, seed_share, _ = share_keys_plaintext_separate(decrypt(self.shared[other], sealed))
            self.held[other] = seed_share
        shapes = [vector.shape]
        words = parameters_addition([vector], pseudo_rand_gen(self.seed, MODULUS, shapes))
        for other, (mask_public, _) in publics.items():
            if other == self.number:
                continue
            key = generate_shared_key(bytes_to_private_key(self.mask_secret), bytes_to_public_key(mask_public))
            pair = pseudo_rand_gen(key, MODULUS, shapes)
            words = parameters_addition(words, pair) if self.number > other else parameters_subtraction(words, pair)
        return parameters_mod(words, MODULUS)


def flower_sum(vectors: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """All clients and the server in one process, nobody drops out."""
    clients = [FlowerClient(number) for number in range(len(vectors))]
    threshold = len(clients) * 2 // 3 + 1
    publics = {client.number: (client.mask_public, client.share_public) for client in clients}
    boxes = {client.number: client.share(publics, threshold) for client in clients}
    total = [np.zeros_like(vectors[0])]
    for client, vector in zip(clients, vectors, strict=True):
        received = {sender: sealed[client.number] for sender, sealed in boxes.items() if sender != client.number}
        total = parameters_addition(total, client.mask(vector, publics, received))
    total = parameters_mod(total, MODULUS)
    for client in clients:
        seed = combine_shares([holder.held[client.number] for holder in clients[:threshold]])
        total = parameters_subtraction(total, pseudo_rand_gen(seed, MODULUS, [vectors[0].shape]))
    return parameters_mod(total, MODULUS)[0]

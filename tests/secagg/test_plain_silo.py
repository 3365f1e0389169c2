"""The page is enough: a silo written from it alone, without a line of the package, reproduces the
test vectors and sums with real silos, whoever drops out.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from oracles import plain_bytes
from oracles.plain_graph import graph_of
from oracles.plain_server import open_round
from oracles.plain_silo import PlainSilo
from oracles.secagg_federation import round_id, terms_for
from sumus.randomness import RandomSource
from sumus.secagg.guard import MemoryRoundGuard
from sumus.secagg.kem import has_kem
from sumus.secagg.keyring import MemoryKeyStore
from sumus.secagg.keys import SERVER_NAME, Identity, Roster
from sumus.secagg.server_setup import ServerSetup
from sumus.secagg.silo import answer
from sumus.secagg.silo_setup import SiloSetup
from sumus.secagg.terms import Terms
from support.local_federation import LocalFederation, plan

DOCS = Path(__file__).parents[2] / "docs"
VECTORS: dict[str, Any] = json.loads((DOCS / "vectors" / "protocol.json").read_text())


class Kem:
    """ML-KEM-768 as the library has it."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import mlkem

        self._library = mlkem

    def generate(self) -> Any:
        return self._library.MLKEM768PrivateKey.generate()

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        return self._library.MLKEM768PublicKey.from_public_bytes(public).encapsulate()


def plain_silo(
    identity: Identity, roster: Roster, terms: Terms, vector: list[int], **options: Any
) -> PlainSilo:
    return PlainSilo(
        identity._signing.private_bytes_raw(),
        dict(roster.public_keys),
        roster.server_key,
        asdict(terms),
        lambda payload, seeds: with_noise(vector, seeds, terms),
        **options,
    )


def with_noise(vector: list[int], seeds: list[bytes], terms: Terms) -> list[int]:
    """The application's part: what the removable seeds expand to is added to the vector."""
    for seed in seeds:
        words = plain_bytes.mask(seed, terms.length, terms.modulus_bits)
        vector = [value + word for value, word in zip(vector, words, strict=True)]
    return [value % (1 << terms.modulus_bits) for value in vector]


# -- the vectors


def from_vectors(number: int) -> PlainSilo:
    """A silo of the vectors, whose random numbers are those that the vectors name."""
    names = sorted(set(VECTORS["roster"]["private keys"]) - {"server"})
    private = bytes.fromhex(VECTORS["roster"]["private keys"][names[number]])
    roster = Roster.parse(VECTORS["roster"]["file"])
    of_round = {entry["number"]: entry for entry in VECTORS["round"]["silos"]}.get(number, {})
    drawn = [VECTORS["set-up"]["X25519 private keys"][number]]
    drawn += [of_round[name] for name in ("salt", "own key") if of_round]
    numbers: Iterator[bytes] = map(bytes.fromhex, drawn)
    terms = {**VECTORS["terms"], "plan_hash": bytes.fromhex(VECTORS["terms"]["plan_hash"])}
    return PlainSilo(
        private,
        dict(roster.public_keys),
        roster.server_key,
        terms,
        lambda payload, seeds: of_round["vector"],
        random=lambda count: next(numbers),
    )


def of_kind(name: str, sender: int | None = None) -> list[bytes]:
    """The vectors' messages of a kind, by their sender."""
    return [
        bytes.fromhex(message["bytes"])
        for message in VECTORS["messages"]
        if message["name"] == name and sender in (None, message["fields"]["sender"])
    ]


@pytest.mark.parametrize("number", range(4))
def test_the_plain_silo_says_what_the_vectors_say(number: int) -> None:
    silo = from_vectors(number)
    assert silo.session.hex() == VECTORS["session"]
    assert [silo.advert()] == of_kind("KeyAdvert", number)
    assert [silo.handle(of_kind("KeyDirectory")[number])] == of_kind("Encapsulations", number)
    for pair, root in VECTORS["set-up"]["pair roots of sum 0"].items():
        one, other = map(int, pair.split("-"))
        if number in (one, other):
            assert silo.roots[other if number == one else one].hex() == root
    assert [silo.handle(of_kind("CipherTexts")[number])] == of_kind("Ready", number)
    if number not in VECTORS["round"]["survivors"]:
        return
    for asked, answered in (
        ("Invitation", "MaskedInput"),
        ("DroppedSet", "SetSignature"),
        ("SetCertificate", "RevealedShares"),
    ):
        assert [silo.handle(of_kind(asked)[0])] == of_kind(answered, number)


def test_a_greeting_of_the_vectors_is_welcomed() -> None:
    silo, greeting = from_vectors(0), of_kind("Greeting")[0]
    welcome, expected = silo.handle(greeting), of_kind("Welcome")[0]
    # the vectors' silo admits that it simulates
    assert welcome[: 72 + 32] == expected[: 72 + 32]
    assert welcome[72 + 33 : -64] == expected[72 + 33 : -64]


def test_the_vectors_have_every_kind_of_message() -> None:
    from sumus.secagg.messages import _KINDS

    assert {message["kind"] for message in VECTORS["messages"]} == set(_KINDS)


@pytest.mark.parametrize("case", VECTORS["sharing"], ids=lambda case: str(case["threshold"]))
def test_corrections_of_the_vectors(case: dict[str, Any]) -> None:
    pads = [bytes.fromhex(pad) for pad in case["pads"]]
    secret = bytes.fromhex(case["secret"])
    given = plain_bytes.corrections(secret, pads, case["threshold"])
    assert given.hex() == case["corrections"]


@pytest.mark.parametrize("case", VECTORS["masks"], ids=lambda case: str(case["modulus_bits"]))
def test_masks_of_the_vectors(case: dict[str, Any]) -> None:
    bits = case["modulus_bits"]
    words = plain_bytes.mask(bytes.fromhex(case["seed"]), len(case["words"]), bits)
    assert [word % (1 << bits) for word in words] == case["words"]
    assert plain_bytes.pack(words, bits).hex() == case["packed"]


@pytest.mark.parametrize(
    "case", VECTORS["sparse graphs"], ids=lambda case: str(case["terms"]["silos"])
)
def test_sparse_graphs_of_the_vectors(case: dict[str, Any]) -> None:
    graph = graph_of(case["terms"], bytes.fromhex(case["session"]))
    assert (graph.threshold, graph.quorum) == (case["threshold"], case["quorum"])
    assert sorted(graph.committee) == case["committee"]
    assert sorted(graph.circles[0]) == case["circle of silo 0"]
    assert len(graph.circles[0]) == case["degree"] + 1


def test_ratchet_and_hybrid_root_of_the_vectors() -> None:
    chain = [bytes.fromhex(r) for r in VECTORS["set-up"]["pair root 0-1 of sums 0 to 3"]]
    assert [plain_bytes.expand(root, b"ratchet") for root in chain[:-1]] == chain[1:]
    pair = {name: bytes.fromhex(value) for name, value in VECTORS["hybrid"].items()}
    info = b"sumus hybrid root 2" + plain_bytes.h(pair["ciphertext"])
    assert plain_bytes.hkdf(pair["shared secret"], pair["root before"], info) == pair["root"]


def test_the_messages_of_the_vectors_open_to_their_sum() -> None:
    """The server's part of the page."""
    expected = VECTORS["round"]
    inputs = {silo: of_kind("MaskedInput", silo)[0] for silo in expected["survivors"]}
    revealed = {silo: of_kind("RevealedShares", silo)[0] for silo in expected["survivors"]}
    for helpers in (revealed, dict(list(revealed.items())[-3:])):
        total, removed = open_round(inputs, helpers, range(4), VECTORS["terms"])
        assert total == expected["sum"]
        assert {
            str(silo): {str(place): seed.hex() for place, seed in seeds.items()}
            for silo, seeds in removed.items()
        } == expected["removed seeds"]
    modulus = 1 << VECTORS["terms"]["modulus_bits"]
    columns = zip(*(silo["vector"] for silo in expected["silos"]), strict=True)
    assert [sum(column) % modulus for column in columns] == expected["sum"]


def generator(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not has_kem(), reason="this installation has no ML-KEM")
def test_the_vectors_are_what_the_code_gives() -> None:
    """To update: `python docs/gen_vectors.py`."""
    made = generator("gen_vectors").render()
    assert made == (DOCS / "vectors" / "protocol.json").read_text(encoding="utf-8")


def test_the_page_is_what_the_code_gives() -> None:
    """To update: `python docs/gen_protocol.py`."""
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    assert generator("gen_protocol").page(text) == text


@pytest.mark.parametrize("name", ["plain_bytes", "plain_graph", "plain_server", "plain_silo"])
def test_the_plain_silo_knows_nothing_of_the_package(name: str) -> None:
    source = (DOCS.parent / "tests" / "oracles" / f"{name}.py").read_text(encoding="utf-8")
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {str(module).split(".")[0] for module in imported} <= {
        "__future__",
        "collections",
        "cryptography",
        "fractions",
        "hashlib",
        "hmac",
        "math",
        "oracles",
        "os",
        "typing",
    }
    assert all(module.startswith("oracles.plain_") for module in imported if "oracles" in module)


# -- in rounds with real silos


class Mixed:
    """A real server, and silos of which some are plain."""

    def __init__(self, terms: Terms, plain: frozenset[int], *, with_kem: bool) -> None:
        self.terms, self.inputs = terms, {}
        random = RandomSource.simulation(3, "plain")
        identities = [Identity.generate(f"s{number:02d}", random) for number in range(terms.silos)]
        own = Identity.generate(SERVER_NAME, random)
        roster = Roster.of(own, identities)
        setup = ServerSetup(own, roster, terms)
        self.handle: dict[int, Callable[[bytes], bytes]] = {}
        waiting: dict[int, Any] = {}
        for number, identity in enumerate(identities):
            self.inputs[number] = [int(value) for value in RandomSource().bytes(terms.length)]
            if number in plain:
                silo = plain_silo(
                    identity,
                    roster,
                    terms,
                    self.inputs[number],
                    kem=Kem() if with_kem else None,
                )
                self.handle[number] = silo.handle
                advert = silo.advert()
            else:
                waiting[number], advert = SiloSetup.start(
                    identity, roster, terms=terms, random=RandomSource(), post_quantum=with_kem
                )
            setup.receive(advert)
        carrying, directories = setup.close()
        for number, directory in directories.items():
            if number in plain:
                reply = self.handle[number](directory)
            else:
                waiting[number], reply = waiting[number].receive(directory)
            carrying.receive(reply)
        self.server, ciphertexts = carrying.close()
        for number, message in ciphertexts.items():
            if number in plain:
                self.handle[number](message)
            else:
                self.handle[number] = self._real(number, waiting[number], message)

    def _real(self, number: int, state: Any, message: bytes) -> Callable[[bytes], bytes]:
        session, _ = state.receive(message, MemoryRoundGuard(), MemoryKeyStore())

        def vector_for(invited: Any) -> list[int]:
            return with_noise(self.inputs[number], list(invited.removable_seeds), self.terms)

        return lambda request: answer(session, request, vector_for)

    def sum(self, number: int, gone: dict[str, frozenset[int]]) -> None:
        """One round in which silos vanish; the sum without the noise that is not needed must be
        that of the survivors with the noise that is.
        """
        terms, there = self.terms, set(self.handle)
        collecting, message = self.server.invite(round_id(number), sequence=number)
        state: Any = collecting
        for stage in ("masked", "consistency", "unmask"):
            there -= gone.get(stage, frozenset())
            for silo in sorted(there):
                state.receive(self.handle[silo](message), sender=silo)
            if stage != "unmask":
                state, message = state.close()
        outcome = state.close()
        assert outcome.survivors == set(self.handle) - gone.get("masked", frozenset())
        total = [int(word) for word in outcome.total]
        for seeds in outcome.removed_seeds.values():
            for seed in seeds.values():
                words = plain_bytes.mask(seed, terms.length, terms.modulus_bits)
                total = [value - word for value, word in zip(total, words, strict=True)]
        missing = terms.silos - len(outcome.survivors)
        if missing == 0:
            columns = zip(*self.inputs.values(), strict=True)
            modulus = 1 << terms.modulus_bits
            assert [value % modulus for value in total] == [sum(c) % modulus for c in columns]
        for seeds in outcome.removed_seeds.values():
            assert sorted(seeds) == list(range(min(missing, terms.removable), terms.removable))
        if not terms.removable:
            columns = zip(*(self.inputs[silo] for silo in outcome.survivors), strict=True)
            modulus = 1 << terms.modulus_bits
            assert [value % modulus for value in total] == [sum(c) % modulus for c in columns]


@pytest.mark.deep
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_plain_and_real_silos_sum_together_whoever_drops_out(data: st.DataObject) -> None:
    silos = data.draw(st.integers(3, 7))
    dropouts = data.draw(st.integers(0, (silos - 1) // 2))
    terms = terms_for(
        silos,
        length=data.draw(st.integers(1, 9)),
        modulus_bits=data.draw(st.sampled_from([9, 16, 20, 32, 40, 64])),
        dropouts=dropouts,
        removable=data.draw(st.integers(0, dropouts)),
    )
    plain = data.draw(st.sets(st.integers(0, silos - 1), min_size=1))
    mixed = Mixed(terms, frozenset(plain), with_kem=has_kem() and data.draw(st.booleans()))
    for number in data.draw(st.sampled_from([(0,), (0, 1), (2, 7)])):
        order = data.draw(st.permutations(range(silos)))
        lost = order[: data.draw(st.integers(0, dropouts))]
        stages = [data.draw(st.sampled_from(["masked", "consistency", "unmask"])) for _ in lost]
        mixed.sum(
            number,
            {
                stage: frozenset(silo for silo, at in zip(lost, stages, strict=True) if at == stage)
                for stage in set(stages)
            },
        )


@pytest.mark.deep
def test_plain_and_real_silos_sum_together_on_a_sparse_graph() -> None:
    terms = terms_for(20, length=3, dropouts=4, graph="sparse")
    mixed = Mixed(terms, frozenset(range(0, 20, 2)), with_kem=False)
    assert mixed.server.topology.degree < 19
    mixed.sum(0, {"masked": frozenset({3, 8}), "consistency": frozenset({5})})
    mixed.sum(1, {"masked": frozenset({4}), "unmask": frozenset({11})})


@pytest.mark.deep
def test_a_plain_silo_takes_part_in_a_training(tmp_path: Path) -> None:
    """Greeting, keys and rounds of a real server party, with a silo of another make among its
    silos.
    """
    across = LocalFederation(tmp_path, plan())
    terms, name = across.agreement.terms, across.roster.names[2]
    identity = Identity.parse((across.folder(name) / "identity.key").read_text())
    across.stop(2)
    silo = plain_silo(identity, across.roster, terms, [0] * terms.length)
    across.driver.silos[2] = silo.handle
    server = across.server()
    server.greet()
    records = list(server.train(across.run_folder()))
    across.close()
    assert [record.dropped for record in records] == [()] * 3

"""Secure aggregation: the sum and nothing else.

Transport-free states for silo and server, a `secure_sum` that runs them all in one process, and the
keys and roster they rest on; `masking`, `schedule` and `secrets` also serve other aggregators.
Knows nothing of privacy accounting. docs/protocol.md has the protocol, its proof and its limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.secagg.accusation import Accusation as Accusation
    from sumus.secagg.certificates import certified as certified
    from sumus.secagg.envelope import (
        SERVER as SERVER,
        Head as Head,
        Message as Message,
        Reader as Reader,
        head_of as head_of,
        size_of as size_of,
    )
    from sumus.secagg.epochs import (
        Endorsement as Endorsement,
        RosterHistory as RosterHistory,
        changes_between as changes_between,
        quorum_of as quorum_of,
        successor as successor,
    )
    from sumus.secagg.guard import (
        FileRoundGuard as FileRoundGuard,
        MemoryRoundGuard as MemoryRoundGuard,
        RoundGuard as RoundGuard,
        claimed_rounds as claimed_rounds,
    )
    from sumus.secagg.in_process import (
        Drop as Drop,
        InProcessFederation as InProcessFederation,
        Traffic as Traffic,
        check_drop as check_drop,
        vanished as vanished,
    )
    from sumus.secagg.keyring import (
        KeyRing as KeyRing,
        KeySet as KeySet,
        KeyStore as KeyStore,
        MemoryKeyStore as MemoryKeyStore,
        RoundInFlight as RoundInFlight,
    )
    from sumus.secagg.keys import (
        SERVER_NAME as SERVER_NAME,
        Identity as Identity,
        Roster as Roster,
        public_keys as public_keys,
        session_digest as session_digest,
    )
    from sumus.secagg.masking import (
        Words as Words,
        add_masks as add_masks,
        as_words as as_words,
        pack as pack,
        reduce_words as reduce_words,
        unpack as unpack,
        word_type as word_type,
    )
    from sumus.secagg.messages import (
        DroppedSet as DroppedSet,
        Invitation as Invitation,
        SetCertificate as SetCertificate,
        decode as decode,
        decode_any as decode_any,
        verify as verify,
    )
    from sumus.secagg.protected import (
        is_protected as is_protected,
        open_identity as open_identity,
        protect as protect,
        public_key_of as public_key_of,
    )
    from sumus.secagg.recovery import (
        Disagreements as Disagreements,
        UnopenedError as UnopenedError,
    )
    from sumus.secagg.schedule import (
        PublicHalf as PublicHalf,
        agree as agree,
        expand as expand,
    )
    from sumus.secagg.sealing import seal as seal, unseal as unseal
    from sumus.secagg.secrets import pair_sign as pair_sign
    from sumus.secagg.server import (
        RoundSum as RoundSum,
        ServerCertifying as ServerCertifying,
        ServerCollecting as ServerCollecting,
        ServerSession as ServerSession,
        ServerUnmasking as ServerUnmasking,
    )
    from sumus.secagg.server_setup import (
        ServerAgreeing as ServerAgreeing,
        ServerSetup as ServerSetup,
    )
    from sumus.secagg.setup_messages import (
        CipherTexts as CipherTexts,
        Encapsulations as Encapsulations,
        Greeting as Greeting,
        KeyDirectory as KeyDirectory,
        Ready as Ready,
        Refusal as Refusal,
        Welcome as Welcome,
        request_digest as request_digest,
    )
    from sumus.secagg.silo import (
        SiloDone as SiloDone,
        SiloInvited as SiloInvited,
        SiloSession as SiloSession,
        SiloSigned as SiloSigned,
        SiloSubmitted as SiloSubmitted,
        answer as answer,
    )
    from sumus.secagg.silo_setup import (
        SiloAgreeing as SiloAgreeing,
        SiloSetup as SiloSetup,
    )
    from sumus.secagg.summing import (
        SecureSum as SecureSum,
        secure_sum as secure_sum,
        terms_of as terms_of,
    )
    from sumus.secagg.terms import Terms as Terms

__getattr__, __dir__, __all__ = door(
    __name__,
    accusation="Accusation",
    certificates="certified",
    envelope="Head Message Reader SERVER head_of size_of",
    epochs="Endorsement RosterHistory changes_between quorum_of successor",
    guard="FileRoundGuard MemoryRoundGuard RoundGuard claimed_rounds",
    in_process="Drop InProcessFederation Traffic check_drop vanished",
    keyring="KeyRing KeySet KeyStore MemoryKeyStore RoundInFlight",
    keys="Identity Roster SERVER_NAME public_keys session_digest",
    masking="Words add_masks as_words pack reduce_words unpack word_type",
    messages="DroppedSet Invitation SetCertificate decode decode_any verify",
    protected="is_protected open_identity protect public_key_of",
    recovery="Disagreements UnopenedError",
    schedule="PublicHalf agree expand",
    sealing="seal unseal",
    secrets="pair_sign",
    server="RoundSum ServerCertifying ServerCollecting ServerSession ServerUnmasking",
    server_setup="ServerAgreeing ServerSetup",
    setup_messages="CipherTexts Encapsulations Greeting KeyDirectory Ready Refusal Welcome request_digest",
    silo="SiloDone SiloInvited SiloSession SiloSigned SiloSubmitted answer",
    silo_setup="SiloAgreeing SiloSetup",
    summing="SecureSum secure_sum terms_of",
    terms="Terms",
)

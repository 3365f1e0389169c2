"""What is done to the processes: kills, hangs, full disks, clocks that jump; each with what it was
done to, and how long it took until rounds went on.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

from soaking.federation import Federation
from soaking.sampling import Sampler

__all__ = ["Blow", "Blows"]

_HOUR = 3600


@dataclass
class Blow:
    """One thing that was done.

    Args:
        at, ended: seconds after the beginning; `ended`: when nothing more was done.
        before: rounds that were finished by then; what comes later is no answer of before.
        victim: whose part in a round shows that it is back; empty: nobody's.
        next_round: seconds from the end of the blow until a round was committed.
        back: until a round with the victim was; None: it never came, or there is no victim.
    """

    kind: str
    at: float
    ended: float
    victim: str
    before: int
    next_round: float | None = None
    back: float | None = None

    @property
    def recovered(self) -> bool:
        """Whether rounds went on, and not only the next one with the victim if there is one."""
        return self.next_round is not None and (not self.victim or self.back is not None)


class Blows:
    """Hurts a federation.

    Args:
        hang_seconds: longer than silos have for an answer.
        wait_seconds: for a recovery.
        meanwhile: done again and again while one is waited for.
    """

    def __init__(
        self,
        federation: Federation,
        sampler: Sampler,
        *,
        seed: int,
        hang_seconds: float,
        wait_seconds: float,
        meanwhile: Callable[[], None],
    ) -> None:
        self._federation, self._sampler = federation, sampler
        self.meanwhile = meanwhile
        self._random = random.Random(seed)
        self._hang, self._wait = hang_seconds, wait_seconds
        self.done: list[Blow] = []
        self._acts: dict[str, Callable[[str], str]] = {
            "vault killed": lambda silo: self._kill(silo, "vault"),
            "relay killed": lambda silo: self._kill(silo, "relay"),
            "silo's job process killed": lambda silo: self._kill(silo, "silo-job"),
            "whole silo killed": self._kill_all,
            "server process killed": lambda silo: self._kill("server", "server"),
            "server's job process killed": lambda silo: self._kill("server", "server-job"),
            "whole server killed": lambda silo: self._kill_all("server"),
            "operator killed": lambda silo: self._kill_all("operator"),
            "vault hangs": lambda silo: self._hang_up(silo, "vault"),
            "relay hangs": lambda silo: self._hang_up(silo, "relay"),
            "server's job process hangs": lambda silo: self._hang_up("server", "server-job"),
            "silo's disk full": self._fill,
            "silo's clock jumps ahead": lambda silo: self._jump(silo, 3 * _HOUR),
            "silo's clock jumps back": lambda silo: self._jump(silo, -5 * _HOUR),
            "server's clock jumps ahead": lambda silo: self._jump("server", 2 * _HOUR),
            "server's clock jumps back": lambda silo: self._jump("server", -2 * _HOUR),
        }

    def order(self) -> Iterator[str]:
        """Every kind once in a random order, then again in another."""
        while True:
            kinds = list(self._acts)
            self._random.shuffle(kinds)
            yield from kinds

    def strike(self, kind: str) -> Blow | None:
        """Do it to somebody, at some moment of a round; None: there was nobody to do it to."""
        federation = self._federation
        silo = self._random.choice(federation.silos)
        time.sleep(self._random.uniform(0.0, 1.5))
        at = self._sampler.clock()
        try:
            victim = self._acts[kind](silo)
        except (psutil.Error, LookupError):
            return None
        blow = self.ended(kind, at, victim)
        self.wait_for(blow)
        return blow

    def ended(self, kind: str, at: float, victim: str) -> Blow:
        """It is over at this moment; what the server has finished by now is looked at first."""
        before = self._sampler.watched.look()
        blow = Blow(kind, at, self._sampler.clock(), victim, before)
        self.done.append(blow)
        return blow

    def wait_for(self, blow: Blow) -> None:
        """Wait until rounds went on, and the victim was in one."""
        until = time.monotonic() + self._wait
        while time.monotonic() < until and not blow.recovered:
            for place, each in enumerate(self._sampler.rounds[blow.before :]):
                if blow.next_round is None:
                    blow.next_round = each.at - blow.ended
                # whoever was hit may have answered in the first of them before
                if place and blow.victim in each.survivors and blow.back is None:
                    blow.back = each.at - blow.ended
            self.meanwhile()
            time.sleep(0.25)

    # -- the acts; each returns whose part in a round shows that it is back

    def _kill(self, party: str, kind: str) -> str:
        self._found(party, kind).send_signal(signal.SIGKILL)
        return party if party in self._federation.silos else ""

    def _kill_all(self, party: str) -> str:
        self._federation.services[party].kill()
        return party if party in self._federation.silos else ""

    def _hang_up(self, party: str, kind: str) -> str:
        process = self._found(party, kind)
        process.suspend()
        time.sleep(self._hang)
        with contextlib.suppress(psutil.NoSuchProcess):  # whoever keeps it may have ended it
            process.resume()
        return party if party in self._federation.silos else ""

    def _fill(self, silo: str) -> str:
        if self._federation.state(silo) not in self._federation.mounted:
            raise LookupError("no small disk here")
        filler = self._federation.state(silo) / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
        with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
            while file.write(bytes(64)):
                pass
        time.sleep(self._hang)
        filler.unlink()
        return silo

    def _jump(self, party: str, seconds: int) -> str:
        if self._federation.clocks is None:
            raise LookupError("no clock that can jump")
        self._federation.set_clock(party, seconds)
        time.sleep(self._hang)
        self._federation.set_clock(party, 0)
        return party if party in self._federation.silos else ""

    def _found(self, party: str, kind: str) -> psutil.Process:
        process = self._federation.services[party].find(kind)
        if process is None:
            raise LookupError(f"{party} has no {kind}")
        return process

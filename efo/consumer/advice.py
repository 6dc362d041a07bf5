"""Advice of one consumer: each trap is reported once, and kept for its status.

Those who find traps give them here: the shard sync, the lease coordinator, the end of a run, the watch of the loop. Two
are found in diagnostic events: that Kinesis lets a restart wait, and that another program takes subscriptions over.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from efo.errors import ResourceInUseError
from efo.events import AdviceGiven, AdviceTopic, Event, Observer, SubscribeAttempted, SubscriptionEnded
from efo.identity import time_text
from efo.model import Lease, Position, PositionType
from efo.protocol.assignment.placement import ManualAssignment
from efo.settings import TRIM_HORIZON, ConsumerSettings

TAKEOVERS: Final = 3
TAKEOVERS_WITHIN: Final = 600.0
"""So many take-overs of one shard within so many seconds are reported: a lease that moves by force is one."""
_AT_THE_START: Final = 10.0
"""Seconds after the start in which a refusal by ResourceInUse is that of a restart."""
_MAX_NAMED: Final = 5


class Advice:
    """Gives advice to `observer`, and observes the events of the consumer itself. `clock`: monotonic seconds.

    `consumer_name`: of the fan-out consumer. `position_is_chosen`: whether the application named an initial position.
    `prefix`: of the keys by which an assignment names the shards, if the stream is one of many.
    """

    def __init__(
        self,
        observer: Observer,
        clock: Callable[[], float],
        consumer_name: str,
        *,
        position_is_chosen: bool = False,
        prefix: str = "",
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._consumer_name = consumer_name
        self._position_is_chosen = position_is_chosen
        self._prefix = prefix
        self._started_at = clock()
        self._given: dict[AdviceTopic, AdviceGiven] = {}
        self._takeovers: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=TAKEOVERS))

    @property
    def given(self) -> tuple[AdviceGiven, ...]:
        """The last advice on each topic, in any thread."""
        return tuple(self._given.copy().values())

    def give(self, topic: AdviceTopic, what: str, remedy: str, *, is_warning: bool = True) -> None:
        """Report an advice, unless one on its topic was given, and keep it."""
        is_first = topic not in self._given
        self.keep(topic, what, remedy, is_warning=is_warning)
        if is_first:
            self._observer(self._given[topic])

    def keep(self, topic: AdviceTopic, what: str, remedy: str, *, is_warning: bool = True) -> None:
        """Keep an advice that is reported otherwise."""
        self._given[topic] = AdviceGiven(topic, what, remedy, is_warning)

    # --- found in events ---------------------------------------------------------------------------------------------

    def observes(self, event_type: type) -> bool:
        """Whether an event of this type may be a reason for advice (see `combine_observers`)."""
        return event_type in {SubscribeAttempted, SubscriptionEnded}

    def __call__(self, event: Event) -> None:
        """Look at one event."""
        match event:
            case SubscribeAttempted(error_type=ResourceInUseError.error_type):
                if self._clock() - self._started_at < _AT_THE_START:
                    self.give(
                        "subscribe_wait",
                        f"Kinesis refuses to subscribe {event.shard_id} for up to 5 s after the last subscription by"
                        f" the fan-out consumer {self._consumer_name}, which was probably that before this start",
                        "nothing: reading begins when they are over",
                        is_warning=False,
                    )
            case SubscriptionEnded(error_type=ResourceInUseError.error_type, reason="service"):
                self._taken_over(event.shard_id)

    def _taken_over(self, shard_id: str) -> None:
        times = self._takeovers[shard_id]
        times.append(self._clock())
        if len(times) == TAKEOVERS and times[-1] - times[0] < TAKEOVERS_WITHIN:
            self.give(
                "taken_over",
                f"another program has taken the subscription of {shard_id} over {TAKEOVERS} times in"
                f" {times[-1] - times[0]:.0f} s, though this worker holds its lease: it reads by the same fan-out"
                f" consumer {self._consumer_name}, and keeps its leases in another store",
                "give each application a name of its own, or all workers of one application the same leases",
            )

    # --- what the sentences say --------------------------------------------------------------------------------------

    def unacked(self, records: Mapping[str, int]) -> None:
        """Tell how many records of which shards were not acked when the consumer ended. Empty: none."""
        if records:
            self.give(
                "unacked",
                f"{sum(records.values())} records of {_named(records)} were delivered and not acked: they come again"
                " at the next start, with those after them",
                "ack what is done, by consumer.ack(batch), shard.ack(batch) or checkpointer.checkpoint(); a handler"
                " that returns HOLD needs flush=",
            )

    def shards_listed(
        self, stream: str, settings: ConsumerSettings, listed: Collection[str], leases: Mapping[str, Lease]
    ) -> None:
        """Look at the shards and leases that a consumer finds at its start."""
        known = {*listed, *leases}
        self._unknown("shards=", settings.shards if isinstance(settings.shards, Collection) else (), stream, known)
        if isinstance(settings.assignment, ManualAssignment):
            named = [key for key in settings.assignment.named if key.startswith(self._prefix) or "/" not in key]
            self._unknown("manual_assignment", named, stream, {f"{self._prefix}{one}" for one in known})
        if self._position_is_chosen or settings.start_position != TRIM_HORIZON:  # which is the default
            self._overridden(settings, leases)

    def _unknown(self, where: str, ids: Iterable[str], stream: str, known: Collection[str]) -> None:
        if unknown := sorted({*ids}.difference(known)):
            self.give(
                "unknown_shards",
                f"{where} names {_names(unknown)}, which the stream {stream} does not have",
                f"write ids that it has: {_names(sorted(known))}",
            )

    def _overridden(self, settings: ConsumerSettings, leases: Mapping[str, Lease]) -> None:
        position = settings.start_position
        own = [lease for lease in leases.values() if settings.selects(lease) and not lease.is_finished]
        begun = [
            lease
            for lease in own
            if not lease.checkpoint.is_sentinel
            or (lease.checkpoint != settings.initial_checkpoint and not any(key in leases for key in lease.parents))
        ]
        if begun:
            self.give(
                "initial_position",
                f"initial_position={_text(position)} has no effect on {_named([lease.key for lease in begun])}, of"
                f" {len(own)}: the leases say where to go on",
                "to read them from there, use another application name, or efo leases reset",
                is_warning=position.type is PositionType.AT_TIMESTAMP,
            )

    def worker_id(self, worker_id: str, shard_id: str) -> None:
        """Tell that another worker renews the lease of a shard under this worker's id."""
        self.give(
            "worker_id",
            f"another worker renews leases under this worker's id {worker_id}, first that of {shard_id}: the two take"
            " shards from each other",
            "give each worker an id of its own, or pass no worker_id",
        )

    def lease_file(self, path: object) -> None:
        """Tell where a lease file is that was named relative to the working directory."""
        self.give(
            "lease_file",
            f"the leases are in {path}, whose name is relative to the working directory",
            "write the whole path, if the program may be started in another directory: it would have other leases",
            is_warning=False,
        )


def slow_batch(shard_id: str, records: int, seconds: float) -> AdviceGiven:
    """Return what is reported of a batch that has been in flight for very long."""
    return AdviceGiven(
        "slow_batch",
        f"{shard_id}: {records} records were delivered and are not acked, the first for {seconds:.0f} s: the checkpoint"
        " does not move, and the shard waits",
        "ack each batch, or make the handler faster: efo.in_thread(handler), key_concurrency=, a timeout of its own",
    )


def _named(shard_ids: Collection[str]) -> str:
    return f"{len(shard_ids)} shards ({_names(sorted(shard_ids))})" if len(shard_ids) > 1 else _names(shard_ids)


def _names(shard_ids: Iterable[str]) -> str:
    ids = list(shard_ids)
    more = f" and {len(ids) - _MAX_NAMED} more" if len(ids) > _MAX_NAMED else ""
    return f"{', '.join(ids[:_MAX_NAMED])}{more}"


def _text(position: Position) -> str:
    return str(position) if position.timestamp is None else time_text(position.timestamp)

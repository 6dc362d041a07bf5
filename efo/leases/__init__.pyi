from efo.consumer.streams.leases import MultiStreamTable as MultiStreamTable, StreamLeases as StreamLeases
from efo.leases.store import Inspection as Inspection, LeaseStore as LeaseStore
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore as DynamoDbLeaseStore
from efo.leases.stores.dynamodb.table import NewTable as NewTable
from efo.leases.stores.key_value import KeyValueLeaseStore as KeyValueLeaseStore
from efo.leases.stores.memory import MemoryLeaseStore as MemoryLeaseStore
from efo.leases.stores.postgres.store import PostgresLeaseStore as PostgresLeaseStore
from efo.leases.stores.redis.store import RedisLeaseStore as RedisLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore as SqliteLeaseStore
from efo.leases.writes import (
    LeaseWrite as LeaseWrite,
    ReleaseLease as ReleaseLease,
    RenewLease as RenewLease,
    SettleWrite as SettleWrite,
    SingleWrites as SingleWrites,
    TakeLease as TakeLease,
    write_each as write_each,
)
from efo.model import Lease as Lease
from efo.protocol.assignment.balance import (
    balanced_assignment as balanced_assignment,
    weighted_assignment as weighted_assignment,
)
from efo.protocol.assignment.placement import manual_assignment as manual_assignment, zone_assignment as zone_assignment
from efo.protocol.assignment.view import (
    Assignment as Assignment,
    AssignmentPlan as AssignmentPlan,
    AssignmentView as AssignmentView,
)

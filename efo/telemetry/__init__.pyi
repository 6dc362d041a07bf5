from efo.telemetry.cloudwatch.kcl_metrics import CloudWatchLevel as CloudWatchLevel
from efo.telemetry.cloudwatch.publisher import open_cloudwatch as open_cloudwatch
from efo.telemetry.combined import combine_observers as combine_observers
from efo.telemetry.log import LoggingObserver as LoggingObserver
from efo.telemetry.observer import OtelObserver as OtelObserver
from efo.telemetry.producer_observer import OtelProducerObserver as OtelProducerObserver
from efo.telemetry.spans import OtelTracing as OtelTracing
from efo.telemetry.trace_context import TraceContext as TraceContext, TraceExtractor as TraceExtractor

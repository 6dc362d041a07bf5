"""A client of Spark Connect: reads the log into a file of its own, and lets the cluster copy it to Parquet.

With --register it registers efo's source itself, and needs efo; without, efo must be missing here.
"""

import argparse
import importlib.util
import json

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
for name in ("server", "log", "options", "batch"):
    parser.add_argument(name)
parser.add_argument("--stream", nargs=2, metavar=("OUTPUT", "CHECKPOINT"))
parser.add_argument("--register", action="store_true")
arguments = parser.parse_args()
if (importlib.util.find_spec("efo_service") is not None) is not arguments.register:
    raise SystemExit("efo is installed here" if not arguments.register else "efo is not installed here")

spark = SparkSession.builder.remote(arguments.server).getOrCreate()
if arguments.register:
    from efo_service.spark.source.data_source import EfoDataSource

    spark.dataSource.register(EfoDataSource)
options = json.loads(arguments.options)
records = spark.read.format("efo").options(**options).load(arguments.log)
pq.write_table(records.select("partition", "offset", "key", "value").toArrow(), arguments.batch)
if arguments.stream:
    output, checkpoint = arguments.stream
    stream = spark.readStream.format("efo").options(**options).option("startingOffsets", "earliest").load(arguments.log)
    query = stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(output)
    query.awaitTermination()

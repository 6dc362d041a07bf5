"""Copies what the log has now to Parquet. The source is registered explicitly: the driver's Python has efo."""

import json
import sys

from pyspark.sql import SparkSession

from efo_service.spark.source.data_source import EfoDataSource

log, options, output, checkpoint = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
spark = SparkSession.builder.appName("stream").getOrCreate()
spark.dataSource.register(EfoDataSource)
records = spark.readStream.format("efo").options(**options).option("startingOffsets", "earliest").load(log)
query = records.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(output)
query.awaitTermination()

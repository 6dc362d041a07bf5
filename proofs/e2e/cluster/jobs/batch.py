"""Counts the records of the log. By name: nothing of efo is imported here."""

import json
import sys

from pyspark.sql import SparkSession

log, options = sys.argv[1], json.loads(sys.argv[2])
spark = SparkSession.builder.appName("batch").getOrCreate()
sys.stdout.write(f"{spark.read.format('efo').options(**options).load(log).count()} records\n")

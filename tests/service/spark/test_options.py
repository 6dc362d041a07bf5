from pathlib import Path

import pytest

from efo.errors import ConfigurationError
from service.spark.offsets import TopicPartition
from service.spark.options import EARLIEST, LATEST, parse_options

NEEDED = {"path": "/log", "subscribe": "t"}


def test_the_defaults() -> None:
    options = parse_options(NEEDED)
    assert (options.root, options.topics) == (Path("/log"), ("t",))
    assert (options.starting, options.ending, options.max_rows) == (None, None, None)
    assert options.tasks >= 1
    assert (options.headers, options.fail_on_data_loss) == (False, True)


def test_names_are_taken_in_any_case() -> None:
    options = parse_options(
        {
            "PATH": "file:///log",
            "Subscribe": "a, b,",
            "startingoffsets": "Earliest",
            "ENDINGOFFSETS": "latest",
            "maxoffsetspertrigger": "10",
            "minPartitions": "3",
            "includeheaders": "TRUE",
            "failOnDataLoss": "false",
        }
    )
    assert (options.root, options.topics) == (Path("/log"), ("a", "b"))
    assert (options.starting, options.ending, options.max_rows, options.tasks) == (EARLIEST, LATEST, 10, 3)
    assert (options.headers, options.fail_on_data_loss) == (True, False)


def test_offsets_per_partition() -> None:
    options = parse_options({**NEEDED, "startingOffsets": '{"t": {"3": 14, "4": -1}}'})
    assert options.starting == {TopicPartition("t", 3): 14, TopicPartition("t", 4): LATEST}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "/log"}, "needs its topics"),
        ({"path": "/log", "subscribe": " , "}, "needs its topics"),
        ({"subscribe": "t"}, "needs the log's directory"),
        ({**NEEDED, "maxOffsetPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({**NEEDED, "kafka.bootstrap.servers": "x:9092"}, "it knows path, subscribe"),
        ({**NEEDED, "maxOffsetsPerTrigger": "0"}, "above 0"),
        ({**NEEDED, "maxOffsetsPerTrigger": "ten"}, "above 0"),
        ({**NEEDED, "includeHeaders": "yes"}, "true or false"),
        ({**NEEDED, "startingOffsets": "soon"}, "earliest, latest or JSON"),
        ({**NEEDED, "endingOffsets": "earliest"}, "earliest, latest or JSON"),
        ({**NEEDED, "startingOffsets": '{"u": {"0": 1}}'}, "speaks of u"),
        ({**NEEDED, "endingOffsets": '{"t": {"0": -2}}'}, "cannot be earliest"),
    ],
)
def test_options_that_are_wrong(given, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_options(given)

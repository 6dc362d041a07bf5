from efo.kinesis.client import (
    Connect as Connect,
    ControlPlane as ControlPlane,
    Correct as Correct,
    Sign as Sign,
    StreamLocation as StreamLocation,
)

from efo.kinesis.client import Connect as Connect, Correct as Correct, Sign as Sign, StreamLocation as StreamLocation
from efo.kinesis.control_plane import ControlPlane as ControlPlane

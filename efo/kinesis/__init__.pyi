from efo.kinesis.client import Connect as Connect, Correct as Correct, Sign as Sign
from efo.kinesis.control_plane import ControlPlane as ControlPlane

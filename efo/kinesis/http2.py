"""h2's side of a connection: all frames but GOAWAY, and the state and windows of DATA that was split off before h2."""

from __future__ import annotations

import logging
from typing import Final

import h2.config
import h2.connection
import h2.settings

from efo.third_party_logs import keep_at

keep_at(logging.INFO, "h2", "hpack")

_INITIAL_WINDOW: Final = 65_535
"""The connection's window before the first WINDOW_UPDATE (RFC 9113, section 6.9.2)."""
_MAX_HEADER_LIST: Final = 64 * 1024


class Http2(h2.connection.H2Connection):
    """The client's end of an HTTP/2 connection, without I/O. h2 owns all windows.

    `stream_window`, `connection_window`: bytes that the peer may send.
    """

    def __init__(self, *, stream_window: int, connection_window: int) -> None:
        # Headers as bytes: h2 raises UnicodeDecodeError for headers that are not in the given encoding.
        super().__init__(h2.config.H2Configuration(client_side=True, header_encoding=None))
        self._connection_window = connection_window
        settings = h2.settings.SettingCodes
        self.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                settings.ENABLE_PUSH: 0,
                settings.INITIAL_WINDOW_SIZE: stream_window,
                settings.MAX_HEADER_LIST_SIZE: _MAX_HEADER_LIST,
            },
        )

    def initiate_connection(self) -> None:
        """Send the preface, the settings and the connection's window."""
        super().initiate_connection()
        self.increment_flow_control_window(self._connection_window - _INITIAL_WINDOW)

    def receive_split_data(self, stream_id: int, size: int) -> None:
        """Do with DATA frames what `receive_data` does: check the stream's state, its content-length and both windows.

        The frames have so many bytes of content, no padding, and do not end the stream. Raises h2's ProtocolError.
        """
        self._inbound_flow_control_window_manager.window_consumed(size)
        content = range(size)  # h2 looks at its length alone, and returns it in an event that nobody needs
        self.streams[stream_id].receive_data(content, end_stream=False, flow_control_len=size)  # type: ignore[arg-type]

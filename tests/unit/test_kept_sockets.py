"""Sockets that kafka-python forgets to close are closed together with their producer."""

from __future__ import annotations

import socket

from kafka.net.inet import KafkaNetSocket

from harness.clients.scripted.kafka_python_sockets import KeptSocket


def opened(owner: str) -> socket.socket:
    """Open a socket as kafka-python does. The scheme of the proxy URL `owner` selects the socket factory."""
    made: socket.socket = KafkaNetSocket(owner).socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    return made


def test_a_forgotten_socket_is_closed_with_its_producer_and_no_other() -> None:
    mine, other = KeptSocket.new_owner(), KeptSocket.new_owner()
    forgotten, used = opened(mine), opened(other)

    KeptSocket.close_all(mine)

    assert forgotten.fileno() == -1
    assert used.fileno() >= 0
    KeptSocket.close_all(other)
    KeptSocket.close_all(other)  # closing twice is harmless
    assert used.fileno() == -1

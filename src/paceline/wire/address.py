"""Where a node can be reached, and whether that is on this very host."""

from __future__ import annotations

import ipaddress
import os
import sys

from msgspec import Struct


class Address(Struct, frozen=True):
    """All the ways to one listener. `host_id` tells whether the Unix socket is one that we could reach."""

    host: str | None = None
    port: int = 0
    unix: str | None = None  # a name in the abstract namespace
    host_id: str = ""
    memory: str | None = None  # a name within a MemoryNetwork

    def __str__(self) -> str:
        if self.memory is not None:
            return f"memory {self.memory}"
        return f"{self.host}:{self.port}" if self.host is not None else f"unix {self.unix}"


def host_id() -> str:
    """The same for two processes if a Unix socket of one can be seen by the other; empty if there is no telling."""
    if sys.platform != "linux":
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return ""


def is_loopback(host: str) -> bool:
    """A name that is no number counts as somewhere else, unless it is localhost: whoever resolves it decides."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""

"""Headwater: stream tables for Apache Spark.

import headwater as hw

wh = hw.connect("shop")
wh.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, region STRING, amount DECIMAL(12, 2))")
wh.create_stream_table("sales", "SELECT region, count(*) AS n, sum(amount) AS total FROM orders GROUP BY region")
wh.refresh("sales")
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.model.tables import RefreshAction, RefreshMode, WhenFull

if TYPE_CHECKING:
    from headwater.opening import connect
    from headwater.warehouse import Warehouse

logging.getLogger("headwater").addHandler(logging.NullHandler())

__version__ = "0.1.0.dev0"
__all__ = ["HeadwaterError", "RefreshAction", "RefreshMode", "Warehouse", "WhenFull", "__version__", "connect"]


def __getattr__(name: str) -> Any:
    """Load Spark's libraries only when a warehouse is used."""
    if name == "connect":
        return import_module("headwater.opening").connect
    if name == "Warehouse":
        return import_module("headwater.warehouse").Warehouse
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")

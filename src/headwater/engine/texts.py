"""Users' SQL, analysed in a worker where the tables it may mean have their own names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from headwater.engine.catalyst import spark_errors_as_query_errors
from headwater.engine.worker import Frame, Worker
from headwater.model.sql import quoted


@contextmanager
def named_views(worker: Worker, frames: Mapping[str, Frame]) -> Iterator[None]:
    """Give frames the names of tables while texts are analysed; what was analysed keeps reading them afterwards."""
    for name, frame in frames.items():
        frame.createOrReplaceTempView(quoted(name))
    try:
        with spark_errors_as_query_errors():
            yield
    finally:
        for name in frames:
            worker.session.catalog.dropTempView(quoted(name))

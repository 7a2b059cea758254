"""Federated training of the cut model: pipelines of micro-batches, exchange, aggregation, evaluation."""

"""One model over several processes: ranks, counted collectives, tensor, pipeline, experts."""

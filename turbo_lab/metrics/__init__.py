"""What one request's events mean: TTFT, ITL, TPOT, E2E, throughput, goodput, cost."""

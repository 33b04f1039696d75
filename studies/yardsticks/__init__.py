"""Public yardsticks: benchmarks that other authors defined."""

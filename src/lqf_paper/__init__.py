"""The experiments of the LQF paper: baselines, methods, tables and figures, run by `lqf paper`."""

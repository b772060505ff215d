"""Where and how to compute: device, precision, free memory, the processes that share the work."""

"""Predictions against labels: metrics, calibration, leave-one-out."""

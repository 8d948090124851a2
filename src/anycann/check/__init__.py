"""Accuracy: sample inputs, golden values in float64, the acceptance standards, and reports."""

"""Data only: what to run. `base.py` holds every knob once."""

"""Everything that makes a run and reads it back."""

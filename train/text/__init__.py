"""Reading parallel files, tokenising, vocabularies, length buckets, scoring of text."""

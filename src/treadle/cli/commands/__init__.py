"""The commands and their options. What a command does is imported when it runs."""
